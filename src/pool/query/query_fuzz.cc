// Any bytes as a query of a small frame with every kind of column: loops and plans refuse or answer it alike, and an
// accepted query can be encoded again.
#include <cstddef>
#include <cstdint>

#include "pool/query/query_run.h"
#include "testing/pool/frames.h"

using namespace offpath;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto cache = service::BufferCache::make({});
  static const auto threads = pool::QueryThreads::make(1);
  static const pool::FramePtr frames[] = {pool::frame_of(*pool::mixed_batch(70), *cache),
                                          pool::frame_of(*pool::particles(70, 1), *cache)};
  const auto query = pool::decode_query(std::as_bytes(std::span(data, size)));
  if (!query) return 0;
  const auto again = pool::encode(*query);
  OFP_ASSERT(pool::encode(pool::decode_query(again).value()) == again);
  for (const auto& frame : frames) {
    pool::QueryLimits limits;
    limits.threads = 1;
    limits.memory_bytes_max = 16 << 20;
    auto run = pool::QueryRun::make(*query, {{frame, "row", "column"}}, limits, threads, cache, 0);
    OFP_ASSERT(run);
    for (bool finished = false; !finished;) {
      const auto step = (*run)->step({});
      finished = !step || step->finished;
    }
  }
  return 0;
}
