// An IPv4 address that the kernel has on an interface, too: TCP to it is the stack's, all else stays the kernel's.
// Without this the kernel would answer the stack's peers with RST.
#pragma once

#include <string>

#include "base/fd.h"
#include "base/status.h"
#include "tcp/segment/address.h"

namespace offpath::tcp {

class SharedAddress {
 public:
  // A BPF program at the interface's ingress (TCX), behind the packet sockets and before the kernel's own stack, drops
  // what comes by TCP to this address. It is there as long as this object, or the process. Takes CAP_BPF and
  // CAP_NET_ADMIN, and Linux 6.6.
  [[nodiscard]] static Result<SharedAddress> begin(const std::string& interface, Ipv4Address address);

 private:
  explicit SharedAddress(Fd link) noexcept : link_(std::move(link)) {}
  Fd link_;
};

}  // namespace offpath::tcp
