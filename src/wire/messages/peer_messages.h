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

// Agent to agent: the sender's table of members, or a part of it, as a MemberTable. One of at most enclosed_bytes_max
// is enclosed, a larger one is to be pulled. Answered by Done when it has been read.
struct PostTable {
  BufferRef table;  // of length 0: it is enclosed
  Bytes enclosed;
};

// Agent to agent, for a pool that they share: the sender acts for `user`. `pool` is the pool's name with its options,
// `owner` its owner at the sender. A member that does not know the pool defines it with this owner; a member that knows
// it with another owner refuses the request. These requests concern only objects that the receiver itself holds.
//
// A put is answered by Done: 0 if the object is stored or not needed; the counter of a later object if it needs a new
// version.
struct PeerPut {
  std::uint64_t user, owner;
  std::uint64_t writer;  // process and number of the put: a repeated pair is the same put, whose answer was lost
  std::uint64_t number;
  std::uint64_t rows;
  std::uint64_t keep;    // as in OpenStream
  std::int64_t wait_ns;  // for room; afterwards the sender has given up
  bool arrow;
  bool hidden;          // until its step has ended on all ranks
  bool moved;           // from another owner: the later of it and the existing object stays (pool/directory/put_id.h)
  std::uint64_t offer;  // not 0: the bytes are in the descriptor of that number
  BufferRef object;     // the bytes' location, or only their length
  std::string_view pool, row_key, column_key;
  std::uint64_t counter;  // its version, and the versions that it replaced, 16 bytes each
  Bytes over;
};

// Answered by Got. `pushed`: the object was pushed into the inbox. `delivered`: it was delivered under `delivery` by a
// PeerDeliver, a request in the other direction.
struct PeerGet {
  std::uint64_t user, owner;
  std::int64_t wait_ns;
  std::uint64_t delivery;
  BufferRef inbox;
  std::string_view reader;  // the name of the requesting member
  std::string_view pool, row_key, column_key;
};

// A part of the sender's query: rows whose first living owner is the receiver. `query` are the query's bytes, `number`
// is the sender's number of this part. `view` identifies the members that the sender knows: if the receiver knows
// others, the answer is would_block. Answered by Done when the part has begun: 0 if nothing matches there.
struct PeerQuery {
  std::uint64_t user, owner;  // for tracks: no owner, 0
  std::int64_t wait_ns;
  std::uint64_t number;
  std::uint64_t view;
  BufferRef query;
  std::string_view pool, row_glob, column_glob;
};

// The next frame of that part, in order. Answered like PeerGet, and by Done after the last frame.
struct PeerQueryNext {
  std::uint64_t number;
  std::uint64_t index;
  std::uint64_t delivery;
  BufferRef inbox;
  std::string_view reader;
};

// Cancels an earlier request on the same channel: a query's part, a receive or a question for the directory by its
// number, a computation or a get by its delivery. If it waits for an answer, it gets a failure. Answered by Done, even
// if there is no such request.
struct PeerCancel {
  enum class What : std::uint8_t { query, computation, get, receive, resources } what;
  std::uint64_t number;
};

struct PeerDeliver {
  std::uint64_t delivery;
  std::uint64_t rows;
  bool arrow;
  std::uint64_t offer;
  BufferRef object;
};

// A PoolCompute for the row's owner; answered like PeerGet, or by Done.
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

struct PeerDrop {  // Done: the number of rows whose first owner it is
  std::uint64_t user;
  std::string_view pool, row_glob, column_glob;
};

struct PeerStepEnd {
  std::uint64_t user;  // the pool's owner: the sender has admitted the stream that ends the step
  std::uint32_t rank, ranks;
  std::string_view pool, row_key;
};

struct PeerDefine {
  std::uint64_t user;  // the pool's owner
  std::string_view pool;
  Bytes definition{};  // of a sift pool, which `pool` names by its hash (sift/definition.h); empty: the hash alone
};
inline constexpr std::size_t definition_bytes_max = 256 << 10;

// The sender's rows of a pool that both sides own, as a digest of each 64th of them by hash. Answered by Done: a bit
// for each digest that differs there. `view` as in PeerQuery.
struct PeerCompare {
  std::uint64_t user;  // the pool's owner
  std::uint64_t view;
  std::string_view reader, pool;
  Bytes digests;
};
inline constexpr std::size_t compared_parts = 64;

// One member of a group of agents, as another member knows it (docs/internals/group.md).
struct MemberEntry {
  enum class State : std::uint8_t { alive, suspect, left, dead } state;
  std::uint64_t incarnation;  // grows with each start of the agent of that name
  std::uint64_t process;      // distinguishes two processes with the same name and incarnation
  std::uint64_t refuted;      // how many suspicions this incarnation has refuted
  std::string_view name;
  std::string_view address;  // for channels
  std::string_view http;     // empty: none
  std::string_view flight;   // likewise
  std::string_view host;     // the machine's name
  std::string_view rack{};   // empty: unknown
  enum class Role : std::uint8_t { host, dpu } role = Role::host;
};

inline constexpr std::size_t rack_bytes_max = 64;
// Letters, digits, '.', '-' and '_', or nothing: names of sift pools contain it.
[[nodiscard]] bool is_rack(std::string_view name) noexcept;

struct MemberTable {
  std::string_view sender;           // one of the entries
  std::uint64_t digest;              // of all entries of the sender's table, in any order
  std::uint32_t members;             // how many these are
  std::vector<MemberEntry> entries;  // all of them, or those that changed lately
};
inline constexpr std::uint32_t members_max = 1024;  // of one table
inline constexpr std::uint64_t member_table_bytes_max = 2 << 20;
static_assert(members_max * (26 + 6 * (2 + name_bytes_max)) + 512 <= member_table_bytes_max);

// A program's question for the members whose names come after `after`, in their order. Answered by a MemberTable of as
// many as a reply has room for; its `members` tells how many there are.
struct GroupMembers {
  std::string_view after;
};

// A program's question for the directory (group/resources.h): resources below `path` that `member` has, those behind
// `after`. Empty: the asked agent, with entries that all agents know. If the directory there has version `seen`, the
// answer comes when it has another one, or after `wait_ns`. Answered by Listed: paths as rows, descriptions as columns,
// the version as view; without entries if the version is `seen`.
struct ListResources {
  std::string_view member, path, after;
  std::uint64_t seen;
  std::int64_t wait_ns;
};

// The same from another member, for a program of `user`.
struct PeerResources {
  std::uint64_t user;
  std::uint64_t number;  // for PeerCancel
  std::string_view path, after;
  std::uint64_t seen;
  std::int64_t wait_ns;
};
inline constexpr std::uint32_t resource_path_bytes_max = 2048;
// clang-format off: a list
#define OFFPATH_PEER_MESSAGES(X) \
  X(PostTable) X(MemberTable) X(GroupMembers) X(ListResources) X(PeerResources) X(PeerPut) X(PeerGet) X(PeerDeliver) \
  X(PeerList) X(PeerDrop) X(PeerStepEnd) X(PeerDefine) X(PeerCompare) X(PeerCompute) X(PeerQuery) X(PeerQueryNext) \
  X(PeerCancel)
// clang-format on
OFFPATH_PEER_MESSAGES(OFFPATH_DECLARE_CODING)

}  // namespace offpath::wire
