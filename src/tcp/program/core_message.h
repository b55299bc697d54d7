// Messages between the cores of one agent about programs' ports. A flow belongs to one core, and the others know
// nothing of it.
//
//   core 0                                   another core
//   grants a listener: its port is taken
//            listen  ------------------>     has it, too
//            <------------------  done
//   (the last one: tells `listening`)
//   stops it: its port is free
//            stop    ------------------>     gives accept slots back
//            <------------------  done
//   (the last one: tells `gone`, and the handle may be used again)
//
// A connection from a port that its program names is one core's, but the port may be another program's: core 0 decides.
//
//   core 0                                   the connection's core
//            <------------------  claim
//   looks at listeners, keeps the port
//            granted, denied  -->     connects, or tells why not
//            <------------------  unclaim, when the connection is gone
//
// Their carrier keeps the order from one core to another: a port that core 0 grants is free on every core that the
// grant reaches.
#pragma once

#include <cstdint>

#include "tcp/flow/flow.h"

namespace offpath::tcp {

struct CoreMessage {
  // done, claim, unclaim: to core 0; the others: to all but core 0, of which granted and denied concern the one that
  // has the handle.
  enum class Kind : std::uint8_t { listen, stop, done, claim, unclaim, granted, denied } kind;
  std::uint64_t program;
  std::uint32_t handle;
  std::uint16_t port = 0;
  std::uint16_t families = 0;  // wire::tcp_families: of a listener; of a claim, one
  std::uint32_t receive_bytes = 0;
  FlowOptions options{};
};

}  // namespace offpath::tcp
