#include "channel/host/announcements.h"

#include <gtest/gtest.h>

#include "testing/channel/host_parts.h"

namespace offpath::channel {
namespace {

using wire::EntryKind;
using Calls = std::vector<std::string>;

class AnnouncementsTest : public testing::Test, protected HostParts {
 protected:
  Result<RangeName> announce(TimeNs deadline = 0) {
    return announcements.announce(lock, bytes.data(), bytes.size(), deadline);
  }
  [[nodiscard]] bool is_named() const {
    std::uint32_t hint = 0;
    return memory.name(bytes.data(), bytes.size(), hint).has_value();
  }
  std::vector<EntryKind> kinds() {
    std::vector<EntryKind> all;
    for (const Request& request : take_requests()) all.push_back(request.kind);
    return all;
  }
  using Kinds = std::vector<EntryKind>;

  std::vector<std::byte> bytes = std::vector<std::byte>(1000);
};

TEST_F(AnnouncementsTest, TellTheLinkAndTheAgent) {
  const auto range = announce();
  ASSERT_TRUE(range);
  EXPECT_EQ(link.take_calls(), Calls{"announce 1 1"});
  const auto posted = take_requests();
  ASSERT_EQ(posted.size(), 1u);
  wire::AnnounceRange announced{};
  ASSERT_TRUE(wire::decode(posted[0].payload, announced));
  EXPECT_EQ(announced.range, range->region);
  EXPECT_EQ(announced.generation, range->generation);
  EXPECT_EQ(announced.base, reinterpret_cast<std::uintptr_t>(bytes.data()));
  EXPECT_EQ(announced.length, bytes.size());
  EXPECT_EQ(announced.key, 17u);
  EXPECT_TRUE(is_named());
}

TEST_F(AnnouncementsTest, ThatFailLeaveNothing) {
  EXPECT_EQ(announcements.announce(lock, nullptr, 5, 0).error().code, Error::invalid);
  EXPECT_EQ(announcements.announce(lock, bytes.data(), 0, 0).error().code, Error::invalid);
  EXPECT_EQ(announcements.announce(lock, bytes.data(), wire::region_bytes_max + 1, 0).error().code, Error::too_large);
  fill_ring();
  EXPECT_EQ(announce().error().code, Error::would_block);
  EXPECT_EQ(link.take_calls(), Calls{}) << "room comes first";
  (void)take_requests();
  link.fails = true;
  EXPECT_EQ(announce().error().code, Error::no_memory);
  EXPECT_FALSE(is_named());
  EXPECT_EQ(kinds(), Kinds{});
  link.fails = false;
  EXPECT_EQ(announce().value().region, 1u) << "its number is free again";
}

TEST_F(AnnouncementsTest, OfARangeAgainEndTheOldOneFirst) {
  const RangeName first = announce().value();
  memory.lease(first.region, 1, 5);
  (void)link.take_calls();
  const auto second = announcements.reannounce(lock, first, bytes.data() + 10, 20);
  ASSERT_TRUE(second);
  EXPECT_EQ(link.take_calls(), (Calls{"retire 1 1", "announce 1 2"}));
  EXPECT_EQ(second->region, first.region);
  EXPECT_TRUE(announcements.idle(*second)) << "the lease was of the old memory";
  EXPECT_EQ(announcements.reannounce(lock, first, bytes.data(), 20).error().code, Error::stale);
}

TEST_F(AnnouncementsTest, AreRetiredWhenNoRequestUsesTheRange) {
  const RangeName range = announce().value();
  memory.lease(range.region, 1, 5);
  EXPECT_FALSE(announcements.idle(range));
  (void)kinds();
  (void)link.take_calls();
  link.on_wait = [this](TimeNs) {
    EXPECT_TRUE(is_named());
    set_pulled(1, 5);
  };
  ASSERT_TRUE(announcements.retire(lock, range, time + second_ns));
  EXPECT_EQ(waits.sleeps(), 1u);
  EXPECT_EQ(link.take_calls(), (Calls{"look", "retire 1 1"}));
  EXPECT_EQ(kinds().back(), EntryKind::retire_range);
  EXPECT_FALSE(is_named());
  EXPECT_FALSE(announcements.retire(lock, range, 0));
}

// Requests that are still posted fail as stale.
TEST_F(AnnouncementsTest, AreRetiredAtTheDeadlineAnyway) {
  const RangeName range = announce().value();
  memory.lease(range.region, 1, 5);
  EXPECT_EQ(announcements.retire(lock, range, time + second_ns).error().code, Error::timeout);
  EXPECT_FALSE(is_named());
  EXPECT_EQ(kinds().back(), EntryKind::retire_range);
}

// A request that failed reads no more either.
TEST_F(AnnouncementsTest, AreRetiredAfterARequestThatFailed) {
  const RangeName range = announce().value();
  const std::uint64_t ticket = publish();
  memory.lease(range.region, 1, ticket);
  reply_failed(ticket);
  set_pulled(1, ticket);
  EXPECT_TRUE(announcements.retire(lock, range, never));
}

TEST_F(AnnouncementsTest, AreNotRetiredOnceTheAgentIsLost) {
  const RangeName range = announce().value();
  memory.lease(range.region, 1, 5);
  link.on_wait = [this](TimeNs) { (void)life.lose({Error::peer_lost, "gone"}); };
  EXPECT_EQ(announcements.retire(lock, range, never).error().code, Error::peer_lost);
  EXPECT_TRUE(is_named());
}

TEST_F(AnnouncementsTest, ThatAreWithdrawnEndWhenTheLinkSaysSo) {
  const RangeName range = announce().value();
  (void)kinds();
  (void)link.take_calls();
  ASSERT_TRUE(announcements.withdraw(lock, range));
  EXPECT_EQ(link.take_calls(), Calls{"withdraw 1 1"});
  EXPECT_EQ(kinds(), Kinds{EntryKind::retire_range});
  EXPECT_FALSE(announcements.is_withdrawn(range));
  EXPECT_NE(announce().value().region, range.region);
  link.withdrawn = true;
  EXPECT_TRUE(announcements.is_withdrawn(range));
  link.withdrawn = false;
  EXPECT_TRUE(announcements.is_withdrawn(range)) << "once and for all";
}

// Its data is copied through segments.
TEST_F(AnnouncementsTest, AreTheProgramsAloneIfTheLinkCannotReadRanges) {
  link.kind.staged = true;
  const RangeName range = announce().value();
  EXPECT_TRUE(is_named());
  const RangeName again = announcements.reannounce(lock, range, bytes.data(), bytes.size()).value();
  ASSERT_TRUE(announcements.withdraw(lock, again));
  EXPECT_TRUE(announcements.is_withdrawn(again));
  ASSERT_TRUE(announcements.retire(lock, announce().value(), never));
  EXPECT_EQ(link.take_calls(), Calls{});
  EXPECT_EQ(kinds(), Kinds{});
}

TEST_F(AnnouncementsTest, OfSegmentsEndAfterTheRequestsThatUseThem) {
  const auto id = announcements.announce_segment({}, 0);
  ASSERT_TRUE(id);
  EXPECT_EQ(link.take_calls(), Calls{"announce_segment 1"});
  memory.lease(*id, 1, 5);
  link.on_wait = [this](TimeNs) { set_pulled(1, 5); };
  announcements.free(lock, *id);
  EXPECT_EQ(waits.sleeps(), 1u);
  EXPECT_EQ(link.take_calls(), (Calls{"look", "retire_segment 1"}));
  EXPECT_EQ(memory.segment(*id), nullptr);
  announcements.free(lock, *id);
  EXPECT_EQ(link.take_calls(), Calls{});
  link.fails = true;
  EXPECT_EQ(announcements.announce_segment({}, 0).error().code, Error::no_memory);
  EXPECT_EQ(memory.segment(*id), nullptr);
}

}  // namespace
}  // namespace offpath::channel
