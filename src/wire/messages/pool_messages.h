// What a program asks of pools, and of the objects that its agent lends it.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "wire/coding.h"
#include "wire/region.h"

namespace offpath::wire {

// Answered by Got, with a descriptor, or `needs_segment` where none can cross: a PushLease follows.
struct PoolGet {
  std::string_view pool;
  std::string_view row_key;
  std::string_view column_key;
  std::int64_t wait_ns;  // how long the agent may hold the request until the object is there
};

struct PoolList {
  std::string_view pool;
  std::string_view row_glob;
  std::string_view column_glob;
  std::uint64_t after;  // sequence of the last entry known; 0: from the beginning
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

// The query's bytes (pool/query/query.h) are pulled from `query`. Answered by Done with the number of the answer, which
// lasts until its last frame was asked for, it is released, or `wait_ns` is over; -1: for ever.
struct PoolQuery {
  std::string_view pool;
  std::string_view row_glob;
  std::string_view column_glob;
  std::int64_t wait_ns;
  BufferRef query;
};

// Frame `index` of an answer, in order: those before it have arrived. Answered as PoolGet is; by Done after the last
// one.
struct QueryNext {
  std::uint64_t answer;
  std::uint64_t index;
};

// A function of a plug-in over one object, or over all of a row where `column_key` is empty, called where the row lies.
// Answered as PoolGet is, with its output, or by Done with how many there were: none, or they were put into the pool.
struct PoolCompute {
  std::string_view pool;
  std::string_view row_key, column_key;
  // for objects and function together; 0: the objects have to be there, the function has its plug-in's time
  std::int64_t wait_ns;
  bool stores;  // outputs are put under the result's keys
  std::string_view plugin, function;
  std::string_view result_row, result_column;
  Bytes arguments;
};

// The frame of a lease is to be pushed into a segment of as many bytes, and the lease is over. Answered by Got:
// `pushed`.
struct PushLease {
  std::uint64_t lease;
  RegionId segment;
};

// Numbers of answers have this bit, leases have not.
inline constexpr std::uint64_t answer_flag = 1ull << 63;

// Of a frame's lease, or of an answer that no more frames are wanted of.
struct Release {
  std::uint64_t lease;
};

// A PoolGet, PoolCompute, PoolQuery or QueryNext of this channel, by the ticket of its request, is not wanted any more.
// It is answered all the same, by a failure if it was under way; this has no answer of its own.
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
