// A program's requests about pools, and about objects that its agent lends it.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "wire/coding.h"
#include "wire/region.h"

namespace offpath::wire {

// Answered by Got, with a descriptor, or `needs_segment` if descriptors cannot cross: then a PushLease follows.
struct PoolGet {
  std::string_view pool;
  std::string_view row_key;
  std::string_view column_key;
  std::int64_t wait_ns;  // how long the agent may hold the request until the object exists
};

struct PoolList {
  std::string_view pool;
  std::string_view row_glob;
  std::string_view column_glob;
  std::uint64_t after;  // sequence number of the last known entry; 0: from the start
};

struct PoolDrop {
  std::string_view pool;
  std::string_view row_glob;
  std::string_view column_glob;
};

struct PoolWrite {
  std::string_view pool;
  std::uint64_t offer;  // number of the descriptor offered on the control socket
};

// The query's bytes (wire/query/query.h) are pulled from `query`. Answered by Done with the number of the answer, which
// lasts until its last frame was requested, it is released, or `wait_ns` has passed; -1: forever.
struct PoolQuery {
  std::string_view pool;
  std::string_view row_glob;
  std::string_view column_glob;
  std::int64_t wait_ns;
  BufferRef query;
};

// Requests frame `index` of an answer, in order: the earlier ones have arrived. Answered like PoolGet; by Done after
// the last frame.
struct QueryNext {
  std::uint64_t answer;
  std::uint64_t index;
};

// Calls a function of a plug-in on one object, or on all of a row if `column_key` is empty, on the row's owner.
// Answered like PoolGet, with its output, or by Done with the number of outputs: none, or they were put into the pool.
struct PoolCompute {
  std::string_view pool;
  std::string_view row_key, column_key;
  // for objects and function together; 0: the objects have to exist, and the plug-in's deadline counts
  std::int64_t wait_ns;
  bool stores;  // outputs are put under the result's keys
  std::string_view plugin, function;
  std::string_view result_row, result_column;
  Bytes arguments;
};

// Pushes the frame of a lease into a segment that holds it, which ends the lease. Answered by Got: `pushed`.
struct PushLease {
  std::uint64_t lease;
  RegionId segment;
};

// Numbers of answers have this bit; leases do not.
inline constexpr std::uint64_t answer_flag = 1ull << 63;

// Releases a frame's lease, or an answer whose further frames are not wanted.
struct Release {
  std::uint64_t lease;
};

// Cancels a PoolGet, PoolCompute, PoolQuery or QueryNext of this channel, by the ticket of its request. That request is
// still answered, by a failure if it was under way; this one has no answer of its own.
struct PoolCancel {
  std::uint64_t ticket;
};

// clang-format off: a list
#define OFFPATH_POOL_MESSAGES(X) \
  X(PoolGet) X(PoolList) X(PoolDrop) X(PoolWrite) X(PoolQuery) X(QueryNext) X(PoolCompute) X(PushLease) X(Release) \
  X(PoolCancel)
// clang-format on
OFFPATH_POOL_MESSAGES(OFFPATH_DECLARE_CODING)

}  // namespace offpath::wire
