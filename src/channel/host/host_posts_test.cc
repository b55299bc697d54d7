#include "channel/host/host_posts.h"

#include <gtest/gtest.h>

#include "testing/channel/host_parts.h"

namespace offpath::channel {
namespace {

using wire::EntryKind;

class HostPostsTest : public testing::Test, protected HostParts {
 protected:
  HostPostsTest() {
    streams[1].open = true;
    set_credit(1, 1000);
  }
  Result<std::uint64_t> send(std::uint64_t charge, std::vector<RangeName> uses = {}, TimeNs deadline = 0) {
    return posts.post_data(lock, EntryKind::send, 1, payload, charge, 500, uses, deadline);
  }
  RangeName range() { return memory.put(memory.reserve().value(), payload.data(), payload.size()); }

  std::vector<std::byte> payload = std::vector<std::byte>(100, std::byte{3});
};

TEST_F(HostPostsTest, OfDataTakeCreditAndLeaseMemory) {
  const RangeName used = range(), other = range();
  const auto ticket = send(400, {used});
  ASSERT_TRUE(ticket);
  EXPECT_EQ(streams[1].charged, 400u);
  EXPECT_EQ(streams[1].last_ticket, *ticket);
  EXPECT_EQ(posts.bytes(), 500u);
  const auto none_pulled = [](std::uint32_t) { return std::uint64_t{0}; };
  EXPECT_EQ(memory.pending(used.region, none_pulled).ticket, *ticket);
  EXPECT_EQ(memory.pending(used.region, none_pulled).stream, 1u);
  EXPECT_EQ(memory.pending(other.region, none_pulled).ticket, 0u);
  const auto posted = take_requests();
  ASSERT_EQ(posted.size(), 1u);
  EXPECT_EQ(posted[0].kind, EntryKind::send);
  EXPECT_EQ(posted[0].payload, payload);
}

TEST_F(HostPostsTest, WithoutCreditWaitOrFail) {
  ASSERT_TRUE(send(400));
  EXPECT_EQ(send(601).error().code, Error::would_block);
  EXPECT_EQ(streams[1].charged, 400u);
  EXPECT_EQ(posts.bytes(), 500u);
  link.on_wait = [this](TimeNs) { set_credit(1, 1001); };
  EXPECT_TRUE(send(601, {}, never));
  EXPECT_EQ(streams[1].charged, 1001u);
}

TEST_F(HostPostsTest, WithoutRoomWaitOrFail) {
  fill_ring();
  EXPECT_EQ(posts.post(lock, EntryKind::probe, payload, 0).error().code, Error::would_block);
  EXPECT_EQ(send(1).error().code, Error::would_block);
  EXPECT_EQ(streams[1].charged, 0u);
  link.on_wait = [this](TimeNs) { (void)take_requests(); };
  EXPECT_TRUE(posts.post(lock, EntryKind::probe, payload, never));
  fill_ring();
  EXPECT_TRUE(send(1, {}, never));
}

// While a post waited for room, another thread took the credit.
TEST_F(HostPostsTest, LookAtTheCreditAgainAfterAWaitForRoom) {
  fill_ring();
  link.on_wait = [this](TimeNs) {
    (void)take_requests();
    streams[1].note(1000, 0);
    link.on_wait = [this](TimeNs) { set_credit(1, 1001); };
  };
  EXPECT_TRUE(send(1, {}, never));
  EXPECT_EQ(waits.sleeps(), 2u);
}

// The number is that of another stream by now, whose pool is not meant.
TEST_F(HostPostsTest, OfAStreamThatWasClosedWhileTheyWaitedFail) {
  const auto reopen = [this] {
    streams.close(1);
    streams[1].open = true;
    (void)take_requests();
    set_credit(1, 5000);
  };
  link.on_wait = [&](TimeNs) {
    EXPECT_EQ(streams[1].credit_waiters, 1u);
    reopen();
  };
  EXPECT_EQ(send(1001, {}, never).error().code, Error::closed);
  EXPECT_EQ(streams[1].charged, 0u);
  EXPECT_EQ(streams[1].credit_waiters, 0u);
  fill_ring();
  link.on_wait = [&](TimeNs) { reopen(); };
  EXPECT_EQ(send(1, {}, never).error().code, Error::closed);
  EXPECT_EQ(streams[1].charged, 0u);
  EXPECT_TRUE(take_requests().empty());
  EXPECT_TRUE(send(1));
}

TEST_F(HostPostsTest, OfMemoryThatIsNotAnnouncedFail) {
  const RangeName used = range();
  memory.remove(used.region);
  EXPECT_EQ(send(1, {used}).error().code, Error::stale);
  EXPECT_EQ(take_requests().size(), 0u);
  EXPECT_EQ(streams[1].charged, 0u);
}

TEST_F(HostPostsTest, OfAClosedStreamOrChannelFail) {
  streams.close(1);
  EXPECT_EQ(send(0).error().code, Error::closed);
  streams[1].open = true;
  EXPECT_TRUE(send(0));
  (void)life.lose({Error::peer_lost, "gone"});
  EXPECT_EQ(send(0).error().code, Error::peer_lost);
  EXPECT_EQ(posts.post(lock, EntryKind::probe, payload, 0).error().code, Error::peer_lost);
}

TEST_F(HostPostsTest, WakeTheAgentUnlessTheyShallNot) {
  link.kind.mapped = true;
  set_asleep(true);
  ASSERT_TRUE(posts.post_without_wake(lock, EntryKind::probe, payload, 0));
  EXPECT_TRUE(link.take_calls().empty());
  ASSERT_TRUE(posts.post(lock, EntryKind::probe, payload, 0));
  EXPECT_EQ(link.take_calls(), std::vector<std::string>{"wake"});
  EXPECT_EQ(take_requests().size(), 2u);
}

TEST_F(HostPostsTest, ThatAreTooLargeForTheRingOfferTheirPlaceFirst) {
  payload.resize(8192);
  link.fails = true;
  EXPECT_EQ(posts.post(lock, EntryKind::probe, payload, 0).error().code, Error::no_memory);
  EXPECT_EQ(send(1).error().code, Error::no_memory);
  EXPECT_EQ(streams[1].charged, 0u);
  link.fails = false;
  EXPECT_TRUE(send(1));
  EXPECT_EQ(requests.position(), 1u);
}

}  // namespace
}  // namespace offpath::channel
