// Agent to agent: which lanes its programs have, and what functions on them send each other (docs/guides/tasks.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "wire/coding.h"
#include "wire/limits.h"
#include "wire/region.h"

namespace offpath::wire {

// Agent to agent: which lanes of which teams of programs the asking one has, all of them, as a LaneTable that lies
// there. Done when it has been read.
struct PeerLanes {
  std::uint64_t process;  // of the sender: another one has other sessions
  std::uint64_t version;  // of its table: grows
  BufferRef table;
  std::string_view sender;
};

// Agent to agent: lane `to`, of the asking one, wants the next message that lane `from`, of the one asked, has sent it
// under `tag`; as soon as there is one. That comes by a PeerMessage with `number`. Done: 0, it was taken; otherwise it
// has so many bytes, and stays, for there is room for fewer. A failure: it stays, where there is any.
struct PeerReceive {
  std::uint64_t user;
  std::uint64_t session;  // of lane `from`
  std::uint64_t number;
  std::uint64_t room;
  std::uint64_t got;  // what was taken before of these, up to this message: that its answer has come nobody knows
  std::uint32_t lanes, from, to, tag;
  std::string_view reader;  // the asking member
  std::string_view team;
};

// The answer to a PeerReceive, in the other direction. Enclosed, in a descriptor, or to be pulled. Done when it was
// taken; not_found: nobody waits for it any more.
struct PeerMessage {
  std::uint64_t number;
  std::uint64_t message;  // of the sender's session
  std::uint64_t length;
  std::uint64_t offer;  // as of PeerPut
  BufferRef object;
  Bytes bytes;  // enclosed
};
inline constexpr std::uint64_t message_enclosed_max = 4096;
inline constexpr std::uint64_t message_bytes_max = 256ull << 20;  // of one message between lanes

// The lanes that sessions of an agent's programs have claimed.
struct LaneEntry {
  std::uint64_t user;
  std::uint64_t session;
  std::uint32_t lane, lanes;
  std::string_view team;
};
struct LaneTable {
  std::vector<LaneEntry> entries;
};
inline constexpr std::size_t lane_table_max = 6000;
inline constexpr std::uint64_t lane_table_bytes_max = 2 << 20;  // what a request may name as its body (group::Reach)
static_assert(lane_table_max * (24 + 2 + name_bytes_max) + 64 <= lane_table_bytes_max);

// clang-format off: a list
#define OFFPATH_LANE_MESSAGES(X) X(PeerLanes) X(PeerReceive) X(PeerMessage) X(LaneTable)
// clang-format on
OFFPATH_LANE_MESSAGES(OFFPATH_DECLARE_CODING)

}  // namespace offpath::wire
