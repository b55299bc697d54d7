// Several AF_PACKET sockets on one interface that share its frames: each frame reaches one socket, and each socket is
// the queue of one of the agent's cores. The kernel steers with the program that steering_program() makes: TCP by
// wire/areas/flow_steering.h, ICMP messages by the flow whose segment they quote, everything else, notably ARP, to core
// 0.
#pragma once

#include <linux/filter.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "tcp/port/packet_filter.h"

namespace offpath::tcp {

// Classic BPF over a received frame; its result is the core.
[[nodiscard]] std::vector<sock_filter> steering_program(std::uint32_t cores);

class Fanout {
 public:
  // Adds the next core's socket, which is bound and takes no frames yet (packet_filter.h).
  [[nodiscard]] Status join(int fd);
  // All sockets have joined: each takes the frames steered to it from now on (packet_filter.h).
  [[nodiscard]] Status begin(const std::optional<FrameTargets>& targets);

 private:
  int group_ = -1;  // assigned by the kernel
  std::vector<int> members_;
};

}  // namespace offpath::tcp
