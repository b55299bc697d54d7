// A program's TCP connections (docs/internals/tcp.md).
#pragma once

#include <cstdint>

#include "wire/coding.h"
#include "wire/region.h"

namespace offpath::wire {

// A program's TCP connections (docs/internals/tcp.md): where the area lies (wire/areas/tcp_area.h), and how it is laid
// out. Done, with the area's version; before that a descriptor comes, on which each side wakes the other by a datagram.
struct TcpOpen {
  BufferRef memory;  // the whole of a segment
  std::uint32_t version;
  std::uint32_t wish_slots, news_slots, flows;
};

// Its connections end as they do when the program ends. Done.
struct TcpClose {
  std::uint32_t version;
};

// The sender does the slow path of the agent's TCP from now on: where the memory between them lies
// (wire/areas/tcp_slow_path.h). Done; before that a descriptor comes, as for TcpOpen.
struct TcpSlowPathOpen {
  BufferRef memory;  // the whole of a segment
  std::uint32_t version;
  std::uint32_t ring_bytes;
};

// clang-format off: a list
#define OFFPATH_TCP_MESSAGES(X) X(TcpOpen) X(TcpClose) X(TcpSlowPathOpen)
// clang-format on
OFFPATH_TCP_MESSAGES(OFFPATH_DECLARE_CODING)

}  // namespace offpath::wire
