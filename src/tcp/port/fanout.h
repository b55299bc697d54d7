// Several AF_PACKET sockets on one interface of which each frame reaches one: the queues of an agent's cores. The
// kernel steers by the program that steering_program() makes: TCP by wire/areas/flow_steering.h, and so do ICMP
// messages by what they quote of a flow; all else, ARP above all, goes to core 0.
#pragma once

#include <linux/filter.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "tcp/segment/address.h"

namespace offpath::tcp {

// Classic BPF over a received frame; its answer is the core.
[[nodiscard]] std::vector<sock_filter> steering_program(std::uint32_t cores);

class Fanout {
 public:
  // A socket that is bound and takes nothing (packet_filter.h): of the next core.
  [[nodiscard]] Status join(int fd);
  // All have joined, and take what is steered to them (packet_filter.h).
  [[nodiscard]] Status begin(std::optional<Ipv4Address> address);

 private:
  int group_ = -1;  // the kernel's number
  std::vector<int> members_;
};

}  // namespace offpath::tcp
