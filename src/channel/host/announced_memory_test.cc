#include "channel/host/announced_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <vector>

#include "base/bytes.h"

namespace offpath::channel {
namespace {

class AnnouncedMemoryTest : public testing::Test {
 protected:
  RangeName announce(const std::byte* address, std::uint64_t length) {
    return known.put(known.reserve().value(), address, length);
  }
  // The number of the range that names this memory; 0: none.
  RegionId found(const std::byte* address, std::uint64_t length) {
    std::uint32_t hint = 0;
    return known.name(address, length, hint) ? hint : 0;
  }

  std::vector<std::byte> bytes = std::vector<std::byte>(1000);
  const std::byte* base = bytes.data();
  AnnouncedMemory known;
};

TEST_F(AnnouncedMemoryTest, NamesWhatLiesWithinARange) {
  const RangeName range = announce(base + 100, 200);
  std::uint32_t hint = 0;
  const auto name = known.name(base + 150, 100, hint);
  ASSERT_TRUE(name);
  EXPECT_EQ(name->region, range.region);
  EXPECT_EQ(name->generation, range.generation);
  EXPECT_EQ(name->offset, 50u);
  EXPECT_EQ(name->length, 100u);
  EXPECT_EQ(hint, range.region);
  EXPECT_EQ(found(base + 100, 200), range.region);
  EXPECT_EQ(found(base + 300, 0), range.region);
  EXPECT_EQ(found(base + 99, 10), 0u);
  EXPECT_EQ(found(base + 100, 201), 0u);
  EXPECT_EQ(found(base + 301, 0), 0u);
}

TEST_F(AnnouncedMemoryTest, NamesAgainWhatTheHintCovers) {
  const RangeName range = announce(base + 100, 200);
  wire::BufferRef name{};
  EXPECT_TRUE(known.name_again(base + 110, 190, range.region, name));
  EXPECT_EQ(name.offset, 10u);
  EXPECT_EQ(name.generation, range.generation);
  EXPECT_FALSE(known.name_again(base + 110, 191, range.region, name));
  EXPECT_FALSE(known.name_again(base + 99, 1, range.region, name));
  EXPECT_FALSE(known.name_again(base + 110, 1, 0, name));
  EXPECT_FALSE(known.name_again(base + 110, 1, range.region + 1, name));
  known.remove(range.region);
  EXPECT_FALSE(known.name_again(base + 110, 1, range.region, name));
}

TEST_F(AnnouncedMemoryTest, FindsTheNearestOfOverlappingRangesThatIsLongEnough) {
  const RegionId large = announce(base, 1000).region, small = announce(base + 100, 50).region;
  EXPECT_EQ(found(base + 110, 20), small);
  EXPECT_EQ(found(base + 110, 60), large);
  EXPECT_EQ(found(base + 90, 20), large);
  known.remove(large);
  EXPECT_EQ(found(base + 110, 60), 0u);
  EXPECT_EQ(found(base + 110, 20), small);
}

TEST_F(AnnouncedMemoryTest, OfANumberThatIsAnnouncedAgainHasTheNextGeneration) {
  const RangeName first = announce(base, 100);
  std::uint64_t epoch = known.epoch();
  const RangeName second = known.put(first.region, base + 500, 100);
  EXPECT_GT(known.epoch(), epoch);
  EXPECT_EQ(second.generation, first.generation + 1);
  EXPECT_FALSE(known.is_announced(first));
  EXPECT_EQ(known.check_announced(first).error().code, Error::stale);
  EXPECT_TRUE(known.check_announced(second));
  EXPECT_EQ(found(base, 100), 0u);
  EXPECT_EQ(found(base + 500, 100), first.region);
  epoch = known.epoch();
  known.remove(first.region);
  EXPECT_GT(known.epoch(), epoch);
  EXPECT_FALSE(known.check_announced(second));
}

TEST_F(AnnouncedMemoryTest, ThatIsReservedNamesNothing) {
  const RegionId reserved = known.reserve().value();
  EXPECT_EQ(found(nullptr, 0), 0u);
  EXPECT_NE(known.reserve().value(), reserved);
  known.give_back(reserved);
  EXPECT_EQ(known.reserve().value(), reserved);
}

TEST_F(AnnouncedMemoryTest, KeepsANumberUntilTheAgentLetsGoOfItsRange) {
  const RangeName range = announce(base, 100);
  known.remove(range.region);
  known.set_leaving(range.region, true);
  EXPECT_TRUE(known.is_leaving(range));
  EXPECT_FALSE(known.is_leaving({range.region, range.generation + 1}));
  EXPECT_NE(announce(base, 100).region, range.region);
  known.set_leaving(range.region, false);
  EXPECT_EQ(announce(base, 100).region, range.region);
}

TEST_F(AnnouncedMemoryTest, IsLeasedUntilEveryStreamHasPulled) {
  const RangeName range = announce(base, 100);
  std::uint64_t pulled = 0;
  const auto of = [&](std::uint32_t) { return pulled; };
  EXPECT_EQ(known.pending(range.region, of).ticket, 0u);
  known.lease(range.region, 1, 10);
  known.lease(range.region, 2, 12);
  EXPECT_EQ(known.pending(range.region, of).ticket, 10u);
  pulled = 11;
  EXPECT_EQ(known.pending(range.region, of).stream, 2u);
  known.forget_stream(2);
  EXPECT_EQ(known.pending(range.region, of).ticket, 0u);
  known.lease(range.region, 1, 20);
  known.remove(range.region);
  EXPECT_EQ(known.pending(range.region, of).ticket, 0u) << "it is not announced";
  EXPECT_EQ(announce(base, 100).region, range.region);
  EXPECT_EQ(known.pending(range.region, of).ticket, 0u) << "the lease was of the old memory";
}

TEST_F(AnnouncedMemoryTest, IncludesSegments) {
  void* mapped = ::mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const auto* data = static_cast<std::byte*>(mapped);
  const RegionId id = known.unused_segment();
  EXPECT_TRUE(wire::is_segment(id));
  EXPECT_NE(id, wire::channel_segment);
  EXPECT_EQ(known.segment(id), nullptr);
  known.put_segment(id, link::SegmentMemory(static_cast<std::byte*>(mapped), page_bytes, Fd()));
  EXPECT_EQ(known.segment(id)->data(), data);
  EXPECT_EQ(found(data + 10, 20), id);
  wire::BufferRef name{};
  EXPECT_TRUE(known.name_again(data, page_bytes, id, name));
  EXPECT_NE(known.unused_segment(), id);
  known.lease(id, 1, 5);
  const std::uint64_t epoch = known.epoch();
  EXPECT_EQ(known.remove_segment(id).data(), data);
  EXPECT_GT(known.epoch(), epoch);
  EXPECT_EQ(known.segment(id), nullptr);
  EXPECT_EQ(found(data + 10, 20), 0u);
  EXPECT_EQ(known.unused_segment(), id);
}

TEST(FindUses, NamesEachRegionOnceAndNoneWithoutBytes) {
  const std::vector<BufferRef> buffers{{.region = 1, .generation = 1, .length = 5},
                                       {.region = 2, .generation = 1, .length = 0},
                                       {.region = 1, .generation = 2, .length = 5},
                                       {.region = 1, .generation = 1, .length = 7}};
  std::vector<RangeName> uses{{9, 9}};
  find_uses(buffers, uses);
  ASSERT_EQ(uses.size(), 2u);
  EXPECT_EQ(uses[0].region, 1u);
  EXPECT_EQ(uses[0].generation, 1u);
  EXPECT_EQ(uses[1].generation, 2u);
}

}  // namespace
}  // namespace offpath::channel
