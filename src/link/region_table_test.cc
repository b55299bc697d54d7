#include "link/region_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace offpath::link {
namespace {

using ::testing::HasSubstr;
using wire::RegionId;

constexpr RegionId segment(std::uint32_t number) { return wire::segment_flag | number; }

// Checks the failure's code, and that its message contains each of `parts`.
template <class T>
void expect_failure(const Result<T>& result, Error code, std::initializer_list<const char*> parts) {
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, code) << result.error().message;
  for (const char* part : parts) EXPECT_THAT(result.error().message, HasSubstr(part));
}

TEST(RegionTable, ResolvesWhatWasAnnounced) {
  RegionTable table;
  ASSERT_TRUE(table.attach(7, 3, 0x1000, 100, 42));
  ASSERT_TRUE(table.attach(segment(7), 0, 0x9000, 200, 43));
  const auto range = table.resolve(7, 3, 10, 90);
  ASSERT_TRUE(range);
  EXPECT_EQ((*range)->base, 0x1000u);
  EXPECT_EQ((*range)->key, 42u);
  const auto other = table.resolve(segment(7), 0, 0, 200);
  ASSERT_TRUE(other);
  EXPECT_EQ((*other)->base, 0x9000u);
  EXPECT_EQ(table.live(), 2u);
}

TEST(RegionTable, SegmentsAreNoRangesAndComeAnotherWay) {
  RegionTable table;
  const auto refused = [](const Status& status) {
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Error::invalid);
    EXPECT_THAT(status.error().message, HasSubstr("is a segment, not a range"));
  };
  refused(table.attach_range(segment(7), 1, 0x1000, 100, 42));
  EXPECT_EQ(table.live(), 0u);
  ASSERT_TRUE(table.attach(segment(7), 0, 0x9000, 200, 43));
  refused(table.detach_range(segment(7), 0));
  ASSERT_TRUE(table.attach_range(7, 1, 0x1000, 100, 42));
  ASSERT_TRUE(table.detach_range(7, 1));
  EXPECT_EQ(table.live(), 1u);
}

TEST(RegionTable, AllowsEmptyPiecesUpToTheEnd) {
  RegionTable table;
  ASSERT_TRUE(table.attach(1, 1, 0x1000, 100, 0));
  EXPECT_TRUE(table.resolve(1, 1, 100, 0));
  expect_failure(table.resolve(1, 1, 101, 0), Error::too_large, {"range 1", "generation 1", "101", "100 bytes"});
  ASSERT_TRUE(table.attach(2, 1, 0, 0, 0));
  EXPECT_TRUE(table.resolve(2, 1, 0, 0));
}

TEST(RegionTable, NeverAnnounced) {
  RegionTable table;
  expect_failure(table.resolve(5, 9, 0, 1), Error::unannounced, {"range 5", "never announced", "generation 9"});
  ASSERT_TRUE(table.attach(6, 1, 0, 10, 0));
  expect_failure(table.resolve(5, 9, 0, 1), Error::unannounced, {"range 5", "never announced", "generation 9"});
  expect_failure(table.resolve(segment(6), 1, 0, 1), Error::unannounced, {"segment 6", "never announced"});
  expect_failure(table.resolve(0x7FFF'FFFF, 1, 0, 1), Error::unannounced, {"range 2147483647"});
}

TEST(RegionTable, AnotherGenerationIsStale) {
  RegionTable table;
  ASSERT_TRUE(table.attach(5, 8, 0x1000, 10, 0));
  expect_failure(table.resolve(5, 7, 0, 1), Error::stale, {"range 5", "generation 7", "announced as generation 8"});
  expect_failure(table.resolve(5, 9, 0, 1), Error::stale, {"range 5", "generation 9", "announced as generation 8"});
  ASSERT_TRUE(table.attach(5, 9, 0x2000, 20, 0));
  expect_failure(table.resolve(5, 8, 0, 1), Error::stale, {"range 5", "generation 8", "announced as generation 9"});
  const auto now = table.resolve(5, 9, 0, 20);
  ASSERT_TRUE(now);
  EXPECT_EQ((*now)->base, 0x2000u);
  EXPECT_EQ(table.live(), 1u);
}

TEST(RegionTable, AWithdrawnRegionIsStale) {
  RegionTable table;
  ASSERT_TRUE(table.attach(5, 8, 0x1000, 10, 0));
  ASSERT_TRUE(table.detach(5, 8));
  EXPECT_EQ(table.find(5), nullptr);
  EXPECT_EQ(table.live(), 0u);
  expect_failure(table.resolve(5, 8, 0, 1), Error::stale,
                 {"range 5", "generation 8 was named", "withdrawn at generation 8"});
  ASSERT_TRUE(table.attach(segment(2), 0, 0x1000, 10, 0));
  ASSERT_TRUE(table.detach(segment(2), 0));
  expect_failure(table.resolve(segment(2), 0, 0, 1), Error::stale, {"segment 2", "withdrawn"});
}

TEST(RegionTable, ReachingBeyondTheEndNamesOffsetLengthAndSize) {
  RegionTable table;
  ASSERT_TRUE(table.attach(5, 8, 0x1000, 4096, 0));
  const auto names = {"range 5", "generation 8", "4096 bytes"};
  expect_failure(table.resolve(5, 8, 0, 4097), Error::too_large, names);
  expect_failure(table.resolve(5, 8, 4090, 7), Error::too_large, {"offset 4090", "length 7", "4096 bytes"});
  expect_failure(table.resolve(5, 8, UINT64_MAX, 1), Error::too_large, names);
  expect_failure(table.resolve(5, 8, UINT64_MAX, UINT64_MAX), Error::too_large, names);
  expect_failure(table.resolve(5, 8, 1, UINT64_MAX), Error::too_large, names);
  EXPECT_TRUE(table.resolve(5, 8, 4090, 6));
}

TEST(RegionTable, WithdrawingNamesBothGenerations) {
  RegionTable table;
  expect_failure(table.detach(5, 8), Error::unannounced, {"range 5", "generation 8"});
  ASSERT_TRUE(table.attach(5, 8, 0x1000, 10, 0));
  expect_failure(table.detach(5, 7), Error::stale, {"range 5", "generation 8", "generation 7"});
  EXPECT_TRUE(table.resolve(5, 8, 0, 10));
  ASSERT_TRUE(table.detach(5, 8));
  expect_failure(table.detach(5, 8), Error::unannounced, {"range 5", "generation 8"});
}

TEST(RegionTable, RefusesImpossibleAnnouncements) {
  RegionTable table;
  expect_failure(table.attach(wire::regions_max, 4, 0, 1, 0), Error::too_large,
                 {"range 1048576", "generation 4", "1048575"});
  expect_failure(table.attach(5, 4, 0, wire::region_bytes_max + 1, 0), Error::too_large,
                 {"range 5", "generation 4", "8796093022209 bytes", "at most 8796093022208"});
  expect_failure(table.attach(5, 4, UINT64_MAX, 2, 0), Error::invalid,
                 {"range 5", "generation 4", "0xffffffffffffffff", "length 2"});
  expect_failure(table.resolve(5, 4, 0, 0), Error::unannounced, {"range 5"});
  EXPECT_EQ(table.live(), 0u);
  EXPECT_TRUE(table.attach(wire::regions_max - 1, 4, 0, wire::region_bytes_max, 0));
}

}  // namespace
}  // namespace offpath::link
