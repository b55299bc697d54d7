// libarrow is loaded within the step of a query, in a job, and not by earlier calls on the loop.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "mover/agent_serialise.h"
#include "pool/query/query_run.h"

namespace offpath::pool {
namespace {

bool is_loaded() {
  std::ifstream file("/proc/self/maps");
  const std::string maps((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return maps.find("/libarrow.so") != std::string::npos;
}

TEST(QueryLoaded, IsInItsFirstStep) {
  const auto cache = service::BufferCache::make({});
  const auto bytes = std::make_shared<service::Frame>();
  bytes->buffer = cache->take(64, 0).value();
  bytes->bytes = 64;
  const auto threads = QueryThreads::make(2);
  const auto run = QueryRun::make({}, {{bytes, "row", "column"}}, {}, threads, cache, 0).value();
  EXPECT_EQ(run->counters().rows_read, 0u);
  EXPECT_TRUE(mover::make_agent_serialiser(wire::Destination::arrays, nullptr, 1 << 20));
  EXPECT_FALSE(is_loaded());

  const auto step = run->step({});
  EXPECT_TRUE(is_loaded());
  ASSERT_FALSE(step);
  EXPECT_NE(step.error().message.find("is plain bytes, not Arrow"), std::string::npos) << step.error().message;
}

}  // namespace
}  // namespace offpath::pool
