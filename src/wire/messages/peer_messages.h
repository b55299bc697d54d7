// Agent to agent: the members of a group, and the pools that they share.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "wire/coding.h"
#include "wire/limits.h"
#include "wire/region.h"

namespace offpath::wire {

// Agent to agent: the poster's table of members lies there, as a MemberTable. Answered by Done when it has been read.
struct PostTable {
  BufferRef table;
};

// Agent to agent, for a pool they share: the asking one acts for `user`. `pool` is its name with its options, `owner`
// the user whose pool it is at the asking one. A member that has not heard of the pool defines it as the owner's; one
// that knows it as another user's refuses the request. All of them are served from what the one asked holds itself.
// A put is answered by Done: 0 when it is here, or need not be; the counter of a later object that is here, if it is to
// be stamped again.
struct PeerPut {
  std::uint64_t user, owner;
  std::uint64_t writer;  // process and number of the put: the same again is the same put, whose answer was lost
  std::uint64_t number;
  std::uint64_t rows;
  std::uint64_t keep;    // as of OpenStream
  std::int64_t wait_ns;  // for room; nobody wants to know any more then
  bool arrow;
  bool hidden;          // until its step has ended on all ranks
  bool moved;           // from another owner: the later one of it and of what is there stays (pool/directory/put_id.h)
  std::uint64_t offer;  // not 0: the bytes are in the descriptor of that number
  BufferRef object;     // where the bytes are, or how many
  std::string_view pool, row_key, column_key;
  std::uint64_t counter;  // its version, and the versions it replaced, 16 bytes each
  Bytes over;
};

// Answered by Got: `pushed`, if the object fitted the inbox and lies there; `delivered`, if it was delivered under
// `delivery` by a PeerDeliver, for which the one asked was the asking one.
struct PeerGet {
  std::uint64_t user, owner;
  std::int64_t wait_ns;
  std::uint64_t delivery;
  BufferRef inbox;
  std::string_view reader;  // the asking member
  std::string_view pool, row_key, column_key;
};

// The asking member's part of a query: of the rows whose first living owner the one asked is. `query` are its bytes,
// `number` the asking member's for this part, `view` stands for the members that it knows of: if the one asked knows of
// others, it is would_block. Answered by Done when the part has begun: 0, if nothing matches there.
struct PeerQuery {
  std::uint64_t user, owner;  // of tracks: no owner, 0
  std::int64_t wait_ns;
  std::uint64_t number;
  std::uint64_t view;
  BufferRef query;
  std::string_view pool, row_glob, column_glob;
};

// A frame of that part, in order. Answered as PeerGet is, and by Done after the last one.
struct PeerQueryNext {
  std::uint64_t number;
  std::uint64_t index;
  std::uint64_t delivery;
  BufferRef inbox;
  std::string_view reader;
};

// What was asked on the same channel is not wanted any more: a query's part or a receive by its number, a computation
// or a get by its delivery. What waits for an answer gets a failure. Answered by Done, also if there is nothing of that
// number.
struct PeerCancel {
  enum class What : std::uint8_t { query, computation, get, receive } what;
  std::uint64_t number;
};

struct PeerDeliver {
  std::uint64_t delivery;
  std::uint64_t rows;
  bool arrow;
  std::uint64_t offer;
  BufferRef object;
};

// PoolCompute asked of the row's owner; answered as PeerGet is, or by Done.
struct PeerCompute {
  std::uint64_t user, owner;
  std::int64_t wait_ns;
  std::uint64_t delivery;
  BufferRef inbox;
  std::string_view reader;
  std::string_view pool, row_key, column_key;
  bool stores;
  std::string_view plugin, function;
  std::string_view result_row, result_column;
  Bytes arguments;
};

struct PeerList {  // Listed
  std::uint64_t user;
  std::uint64_t after;
  std::string_view pool, row_glob, column_glob;
};

struct PeerDrop {  // Done: how many rows it is the first owner of
  std::uint64_t user;
  std::string_view pool, row_glob, column_glob;
};

struct PeerStepEnd {
  std::uint64_t user;  // whose pool it is: the asking member has admitted the stream that ends it
  std::uint32_t rank, ranks;
  std::string_view pool, row_key;
};

struct PeerDefine {
  std::uint64_t user;  // whose pool it is
  std::string_view pool;
};

// What the asking member has of a pool's rows that it and the one asked own: a digest of each 64th of them by their
// hash. Answered by Done: a bit for each that is another one there. `view` as of PeerQuery.
struct PeerCompare {
  std::uint64_t user;  // whose pool it is
  std::uint64_t view;
  std::string_view reader, pool;
  Bytes digests;
};
inline constexpr std::size_t compared_parts = 64;

// One member of a group of agents, as one of them knows it (docs/internals/group.md).
struct MemberEntry {
  enum class State : std::uint8_t { alive, left, dead } state;
  std::uint64_t incarnation;  // grows with each start of the agent of that name that the others were told of
  std::uint64_t process;      // tells two processes of one name and incarnation apart
  std::uint64_t beats;        // grows while it lives
  std::string_view name;
  std::string_view address;  // for channels
  std::string_view http;     // empty: it has none
};

struct MemberTable {
  std::string_view sender;  // one of the entries
  std::vector<MemberEntry> entries;
};
inline constexpr std::uint32_t members_max = 1024;  // of one table
inline constexpr std::uint64_t member_table_bytes_max = 1 << 20;
static_assert(members_max * (25 + 3 * (2 + name_bytes_max)) + 512 <= member_table_bytes_max);

// clang-format off: a list
#define OFFPATH_PEER_MESSAGES(X) \
  X(PostTable) X(MemberTable) X(PeerPut) X(PeerGet) X(PeerDeliver) X(PeerList) X(PeerDrop) X(PeerStepEnd) \
  X(PeerDefine) X(PeerCompare) X(PeerCompute) X(PeerQuery) X(PeerQueryNext) X(PeerCancel)
// clang-format on
OFFPATH_PEER_MESSAGES(OFFPATH_DECLARE_CODING)

}  // namespace offpath::wire
