// Any bytes as an object that a program serialised, read by libarrow as in queries, within a bound of memory. Loops and
// plans refuse or answer it, and release all of that memory.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "pool/query/query_run.h"

using namespace offpath;

namespace {

constexpr std::uint64_t memory_bytes_max = 8 << 20;
constexpr uid_t user = 1000;

pool::Query count() {
  pool::Query query;
  query.aggregates.push_back({pool::AggregateFunction::count, "rows", {}});
  return query;
}

pool::Query nulls_of(const char* column) {
  pool::Query query;
  query.filter = pool::call(pool::Function::is_null, {pool::field(column)});
  return query;
}

void ask(const pool::Query& query, const pool::FramePtr& frame, const std::shared_ptr<service::BufferCache>& cache,
         bool loops) {
  static const auto threads = pool::QueryThreads::make(1);
  pool::QueryLimits limits;
  limits.threads = 1;
  limits.memory_bytes_max = memory_bytes_max;
  limits.frame_bytes_max = limits.step_bytes = 1 << 20;
  limits.loops = loops;
  auto run = pool::QueryRun::make(query, {{frame, "row", "column"}}, limits, threads, cache, user);
  OFP_ASSERT(run);
  for (int steps = 0; steps < 16; ++steps) {
    const auto step = (*run)->step({});
    OFP_ASSERT(cache->held_bytes_of(user) <= memory_bytes_max);
    if (!step || step->finished) break;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto cache = service::BufferCache::make({});
  const auto frame = std::make_shared<service::Frame>();
  frame->buffer = cache->take(size, user).value();
  if (size > 0) std::memcpy(frame->buffer.data(), data, size);
  frame->bytes = size;
  frame->arrow = true;
  for (const bool loops : {true, false}) {
    ask({}, frame, cache, loops);
    ask(count(), frame, cache, loops);
    ask(nulls_of("a"), frame, cache, loops);
  }
  OFP_ASSERT(cache->held_bytes_of(user) == 0);
  return 0;
}
