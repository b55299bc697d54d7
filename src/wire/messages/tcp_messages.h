// A program's TCP connections (docs/internals/tcp.md).
#pragma once

#include <cstdint>

#include "wire/coding.h"
#include "wire/region.h"

namespace offpath::wire {

// A program's TCP connections (docs/internals/tcp.md): location and layout of the area (wire/areas/tcp_area.h).
// Answered by Done, with the area's version; before it the descriptors arrive by which the sides wake each other.
struct TcpOpen {
  BufferRef memory;  // a whole segment
  std::uint32_t version;
  std::uint32_t command_slots, event_slots, flows;
  // Over a link, from a relay of the agent's own user or root: whether the program may listen on ports below 1024.
  // Otherwise that follows from the user of the channel.
  std::uint8_t privileged;
  std::uint32_t user;  // over a link, from a relay: the program's, whose programs may share ports
};

// Ends its connections, as the program's end does. Done.
struct TcpClose {
  std::uint32_t version;
};

// The sender does the slow path of the agent's TCP from now on: location of the shared memory
// (wire/areas/tcp_slow_path.h). Answered by Done; before it a descriptor arrives, on which each side wakes the
// other by a datagram.
struct TcpSlowPathOpen {
  BufferRef memory;  // a whole segment
  std::uint32_t version;
  std::uint32_t ring_bytes;
};

// Over a link: a process of the program has joined, or has ended. Done.
struct TcpProcess {
  std::uint32_t process;
  std::uint8_t joins;
};

// Over a link: the program's area has something for the agent. Not answered.
struct TcpLook {
  std::uint8_t zero;
};

// clang-format off: a list
#define OFFPATH_TCP_MESSAGES(X) X(TcpOpen) X(TcpClose) X(TcpSlowPathOpen) X(TcpProcess) X(TcpLook)
// clang-format on
OFFPATH_TCP_MESSAGES(OFFPATH_DECLARE_CODING)

}  // namespace offpath::wire
