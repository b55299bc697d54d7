#include "host/send/staging.h"

#include <gtest/gtest.h>

#include <map>

#include "testing/link/loopback_link.h"

namespace offpath::host {
namespace {

using channel::HostEnd;
using Ring = Staging::Ring;

TEST(StagingRing, BlocksLieBehindEachOtherAndWrap) {
  Ring ring(1024);
  std::uint64_t offset = 1;
  ASSERT_TRUE(ring.take(500, 1, offset));
  EXPECT_EQ(offset, 0u);
  ASSERT_TRUE(ring.take(500, 2, offset));
  EXPECT_EQ(offset, 512u);  // blocks begin at cache lines
  EXPECT_FALSE(ring.take(1, 3, offset));
  ring.blocks.pop_front();
  EXPECT_FALSE(ring.take(513, 3, offset));
  ASSERT_TRUE(ring.take(200, 3, offset));
  EXPECT_EQ(offset, 0u);
  ASSERT_TRUE(ring.take(256, 4, offset));
  EXPECT_EQ(offset, 256u);
  EXPECT_FALSE(ring.take(1, 5, offset));  // full: the end of the newest is the beginning of the oldest
  ring.blocks.pop_front();
  ASSERT_TRUE(ring.take(512, 5, offset));
  EXPECT_EQ(offset, 512u);
}

TEST(StagingRing, ABlockLargerThanTheRingNeverFits) {
  Ring ring(4096);
  std::uint64_t offset = 0;
  EXPECT_FALSE(ring.take(4097, 1, offset));
  EXPECT_TRUE(ring.take(4096, 1, offset));
}

// A channel without an agent: the test writes the completion lines.
class StagingTest : public testing::Test {
 protected:
  static constexpr std::uint64_t bytes_max = 16u << 20;

  StagingTest() {
    auto pair = link::make_loopback(fabric_, link::LoopbackOptions{}, layout_);
    OFP_ASSERT(pair);
    agent_ = std::move(pair->agent);
    end_ = std::make_unique<HostEnd>(std::move(pair->host), layout_, link::LoopbackFabric::clock, fabric_.get());
    staging_ = std::make_unique<Staging>(*end_, bytes_max);
    fabric_->set_stepper([this](TimeNs now) {
      std::array<link::LinkEvent, 8> events;
      (void)agent_->poll(now, events);
      return now + microsecond_ns;
    });
  }
  void pull(std::uint32_t stream, std::uint64_t ticket) {
    std::byte* line = agent_->mapped(wire::channel_segment).data() + layout_.completion_line(stream);
    store(line + offsetof(wire::CompletionLine, pulled), ticket);
  }
  Staging::Place place(std::uint64_t length) {
    auto reserved = staging_->reserve(length, 0);
    OFP_ASSERT(reserved);
    return *reserved;
  }

  wire::ChannelLayout layout_;
  std::shared_ptr<link::LoopbackFabric> fabric_ = std::make_shared<link::LoopbackFabric>(1);
  std::unique_ptr<link::AgentLink> agent_;
  std::unique_ptr<HostEnd> end_;
  std::unique_ptr<Staging> staging_;
};

TEST_F(StagingTest, PlacesAreApartAndNamedInTheirSegment) {
  const Staging::Place a = place(1000), b = place(3000);
  EXPECT_EQ(a.region, b.region);
  EXPECT_GE(b.offset, a.offset + a.length);
  EXPECT_EQ(a.data, end_->segment(a.region).data() + a.offset);
  EXPECT_TRUE(wire::is_segment(a.region));
}

TEST_F(StagingTest, APulledBlockIsUsedAgain) {
  for (std::uint64_t ticket = 1; ticket < 100; ++ticket) {
    const Staging::Place each = place(1u << 20);
    staging_->commit(each, 3, ticket);
    pull(3, ticket);
  }
  EXPECT_EQ(staging_->bytes_held(), 4u << 20);  // one segment was enough
}

TEST_F(StagingTest, GivenUpBlocksAndClosedStreamsFreeTheirMemory) {
  for (int i = 0; i < 100; ++i) staging_->give_up(place(1u << 20));
  EXPECT_EQ(staging_->bytes_held(), 4u << 20);
  for (int i = 0; i < 16; ++i) staging_->commit(place(1u << 20), 5, 1000);
  EXPECT_FALSE(staging_->reserve(1u << 20, 0));
  staging_->forget(5);
  EXPECT_TRUE(staging_->reserve(1u << 20, 0));
}

TEST_F(StagingTest, TooLargeNamesBothSizes) {
  const auto reserved = staging_->reserve(bytes_max + 1, never);
  ASSERT_FALSE(reserved);
  EXPECT_EQ(reserved.error().code, Error::too_large);
  EXPECT_NE(reserved.error().message.find(std::to_string(bytes_max + 1)), std::string::npos)
      << reserved.error().message;
  EXPECT_NE(reserved.error().message.find(std::to_string(bytes_max)), std::string::npos) << reserved.error().message;
}

TEST_F(StagingTest, FullWouldBlockAndNamesWhatIsHeld) {
  while (auto reserved = staging_->reserve(1u << 20, 0)) staging_->commit(*reserved, 0, 77);
  const auto refused = staging_->reserve(1u << 20, 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Error::would_block);
  EXPECT_EQ(staging_->bytes_held(), bytes_max);
}

TEST_F(StagingTest, SmallSegmentsAreExchangedForALargeOne) {
  staging_->give_up(place(1000));
  EXPECT_LT(staging_->bytes_held(), bytes_max);
  const Staging::Place large = place(bytes_max);
  EXPECT_EQ(large.length, bytes_max);
  EXPECT_EQ(staging_->bytes_held(), bytes_max);
}

// Random lengths, finished out of order between streams: bytes of unfinished blocks are never given out again.
TEST_F(StagingTest, BlocksInUseAreNeverGivenOutAgain) {
  std::map<std::byte*, std::byte*> in_use;
  struct Posted {
    Staging::Place place;
    std::uint32_t stream;
    std::uint64_t ticket;
  };
  std::vector<Posted> posted;
  link::SeededRandom random(42);
  std::uint64_t ticket = 0, refused = 0;
  for (int round = 0; round < 5000; ++round) {
    const std::uint64_t length = 1 + random.below(2u << 20);
    if (auto reserved = staging_->reserve(length, 0)) {
      const auto next = in_use.lower_bound(reserved->data);
      EXPECT_TRUE(next == in_use.end() || next->first >= reserved->data + length);
      EXPECT_TRUE(next == in_use.begin() || std::prev(next)->second <= reserved->data);
      in_use[reserved->data] = reserved->data + length;
      const auto stream = static_cast<std::uint32_t>(random.below(3));
      staging_->commit(*reserved, stream, ++ticket);
      posted.push_back({*reserved, stream, ticket});
    } else {
      ++refused;
    }
    if (random.below(2) == 0 && !posted.empty()) {
      const std::uint32_t stream = posted.front().stream;
      const std::uint64_t reached = posted[random.below(posted.size())].ticket;
      std::uint64_t newest = 0;
      std::erase_if(posted, [&](const Posted& each) {
        if (each.stream != stream || each.ticket > reached) return false;
        newest = std::max(newest, each.ticket);
        in_use.erase(each.place.data);
        return true;
      });
      if (newest != 0) pull(stream, newest);
    }
  }
  EXPECT_GT(refused, 0u);
  EXPECT_LE(staging_->bytes_held(), bytes_max);
}

}  // namespace
}  // namespace offpath::host
