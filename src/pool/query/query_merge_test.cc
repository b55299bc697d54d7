#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pool/query/query_run.h"
#include "testing/pool/frames.h"

namespace offpath::pool {
namespace {

// Rows of one byte, in order, of one member.
FramePtr ordered_bytes(std::size_t rows, service::BufferCache& cache) {
  std::vector<std::uint8_t> keys(rows);
  for (std::size_t i = 0; i < rows; ++i) keys[i] = static_cast<std::uint8_t>(i * 256 / rows);
  const auto schema = arrow::schema({arrow::field("key", arrow::uint8(), false)});
  return frame_of(*arrow::RecordBatch::Make(schema, static_cast<std::int64_t>(rows), {array_of(keys)}), cache);
}

// The rows are 2 MB, and the keys by which they are compared 16 MB.
TEST(QueryMerge, TheMemoryOfKeysIsWithinTheBoundOfQueries) {
  const auto cache = service::BufferCache::make({.huge_pages = false});
  const std::vector<MergeHead> heads(2, MergeHead{ordered_bytes(1'000'000, *cache)});
  const auto merged = [&](std::uint64_t memory_bytes_max) {
    return merge(heads, {.columns = {"key"}}, 16 << 20, *cache, 0, memory_bytes_max);
  };
  const auto whole = merged(64 << 20);
  ASSERT_TRUE(whole) << whole.error().message;
  std::uint64_t rows = 0;
  for (const FramePtr& frame : whole->frames) rows += frame->rows;
  EXPECT_GE(rows, 1'000'000u);
  const auto refused = merged(12 << 20);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Error::no_memory) << refused.error().message;
  EXPECT_EQ(cache->held_bytes_of(0), 0u) << "all of it is given back";
}

}  // namespace
}  // namespace offpath::pool
