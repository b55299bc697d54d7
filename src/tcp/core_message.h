// What the cores of one agent say to each other about programs' listeners; flows are one core's, and nobody else hears of them.
//
//   core 0                                   another core
//   grants a listener: its port is taken
//            listen  ------------------>     has it, too
//            <------------------  done
//   (the last one: tells `listening`)
//   stops it: its port is free
//            stop    ------------------>     gives seats back
//            <------------------  done
//   (the last one: tells `gone`, and the handle may be used again)
//
// Whatever carries them keeps the order from one core to another: so the port that core 0 grants next is free wherever it gets to.
#pragma once

#include <cstdint>

#include "tcp/flow.h"

namespace offpath::tcp {

struct CoreMessage {
  enum class Kind : std::uint8_t { listen, stop, done } kind;  // done: to core 0; the others: to all but core 0
  std::uint64_t program;
  std::uint32_t handle;
  std::uint16_t port = 0;
  std::uint32_t receive_bytes = 0;
  FlowOptions options{};
};

}  // namespace offpath::tcp
