// Agent to agent: the lanes of each agent's programs, and messages between functions on them (docs/guides/tasks.md).
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

// Agent to agent: all lanes of the sender's programs, as a LaneTable to be pulled. Done when it has been read.
struct PeerLanes {
  std::uint64_t process;  // of the sender: another process has other sessions
  std::uint64_t version;  // of its table: grows
  BufferRef table;
  std::string_view sender;
};

// Agent to agent: the sender's lane `to` requests the next message that the receiver's lane `from` has sent it under
// `tag`, as soon as there is one. The message comes by a PeerMessage with `number`. Done with 0: it was taken;
// otherwise the length of the message, which stays because the reader's room is smaller. After a failure the message,
// if any, stays.
struct PeerReceive {
  std::uint64_t user;
  std::uint64_t session;  // of lane `from`
  std::uint64_t number;
  std::uint64_t room;
  std::uint64_t got;  // messages taken so far, up to this one: acknowledges answers that may have been lost
  std::uint32_t lanes, from, to, tag;
  std::string_view reader;  // the name of the requesting member
  std::string_view team;
};

// The answer to a PeerReceive, in the other direction. Enclosed, in a descriptor, or to be pulled. Done when it was
// taken; not_found: its receive has ended.
struct PeerMessage {
  std::uint64_t number;
  std::uint64_t message;  // its number in the sender's session
  std::uint64_t length;
  std::uint64_t offer;  // as in PeerPut
  BufferRef object;
  Bytes bytes;  // enclosed
};
inline constexpr std::uint64_t message_enclosed_max = 4096;
inline constexpr std::uint64_t message_bytes_max = 256ull << 20;  // of one message between lanes

// A lane that a session of an agent's programs has claimed.
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
inline constexpr std::uint64_t lane_table_bytes_max = 2 << 20;  // the limit of a request's body (group::Reach)
static_assert(lane_table_max * (24 + 2 + name_bytes_max) + 64 <= lane_table_bytes_max);

// clang-format off: a list
#define OFFPATH_LANE_MESSAGES(X) X(PeerLanes) X(PeerReceive) X(PeerMessage) X(LaneTable)
// clang-format on
OFFPATH_LANE_MESSAGES(OFFPATH_DECLARE_CODING)

}  // namespace offpath::wire
