// Shares an IPv4 address between the kernel and the stack: TCP to the address is the stack's, everything else stays the
// kernel's. Without this the kernel would answer the stack's peers with RST.
#pragma once

#include <string>

#include "base/fd.h"
#include "base/status.h"
#include "tcp/segment/address.h"

namespace offpath::tcp {

class SharedAddress {
 public:
  // A BPF program at the interface's ingress (TCX), behind the packet sockets and in front of the kernel's stack, drops
  // TCP to this address. It lasts as long as this object, or the process. Needs CAP_BPF, CAP_NET_ADMIN and Linux 6.6.
  [[nodiscard]] static Result<SharedAddress> begin(const std::string& interface, const IpAddress& address);

 private:
  explicit SharedAddress(Fd link) noexcept : link_(std::move(link)) {}
  Fd link_;
};

}  // namespace offpath::tcp
