#include "channel/host/request_ring.h"

#include <gtest/gtest.h>

#include "testing/channel/host_parts.h"

namespace offpath::channel {
namespace {

using Calls = std::vector<std::string>;
constexpr std::size_t outside_bytes = 8192;  // more than half of the ring

class RequestRingTest : public testing::Test, protected HostParts {};

TEST_F(RequestRingTest, CountsTicketsFromOne) {
  EXPECT_EQ(requests.newest(), 0u);
  EXPECT_EQ(publish(), 1u);
  EXPECT_EQ(publish(100), 2u);
  EXPECT_EQ(requests.newest(), 2u);
  EXPECT_EQ(requests.position(), 4u) << "the second has three slots";
  const auto taken = take_requests();
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[1].ticket, 2u);
  EXPECT_EQ(taken[1].payload, std::vector<std::byte>(100, std::byte{7}));
}

TEST_F(RequestRingTest, HasRoomUntilOnlySpareSlotsAreLeft) {
  fill_ring();
  EXPECT_EQ(requests.position(), layout.request_slots - RequestRing::spare_slots);
  EXPECT_TRUE(requests.fits(8, 1));
  EXPECT_FALSE(requests.fits(8 * wire::slot_payload_bytes, 1));
  set_head(1);
  EXPECT_TRUE(requests.fits(8)) << "the agent's head is read again when the ring looks full";
  EXPECT_FALSE(requests.fits(wire::entry_bytes_max + 1, 0));
}

TEST_F(RequestRingTest, HasOneRequestOutsideUntilItIsCopied) {
  EXPECT_TRUE(requests.fits(outside_bytes));
  publish(outside_bytes);
  EXPECT_EQ(requests.position(), 1u);
  EXPECT_FALSE(requests.fits(outside_bytes));
  EXPECT_TRUE(requests.fits(8));
  set_head(1);
  EXPECT_TRUE(requests.fits(outside_bytes));
}

TEST_F(RequestRingTest, OffersItsPlaceOutsideForLargeRequestsAlone) {
  ASSERT_TRUE(requests.offer_outside(8, clock));
  EXPECT_EQ(link.take_calls(), Calls{});
  ASSERT_TRUE(requests.offer_outside(outside_bytes, clock));
  EXPECT_EQ(link.take_calls(), Calls{"offer"});
  publish(outside_bytes);
  requests.withdraw_outside(time + 1);
  EXPECT_EQ(link.take_calls(), Calls{}) << "the agent has still to copy the request";
  set_head(1);
  requests.withdraw_outside(time);
  EXPECT_EQ(link.take_calls(), Calls{}) << "it was offered at that time";
  requests.withdraw_outside(time + 1);
  requests.withdraw_outside(time + 1);
  EXPECT_EQ(link.take_calls(), Calls{"take_back"});
  link.fails = true;
  EXPECT_EQ(requests.offer_outside(outside_bytes, clock).error().code, Error::no_memory);
}

TEST_F(RequestRingTest, WakesAnAgentThatSleeps) {
  link.kind.mapped = true;
  publish();
  EXPECT_EQ(link.take_calls(), Calls{});
  set_asleep(true);
  publish();
  EXPECT_EQ(link.take_calls(), Calls{"wake"});
  EXPECT_EQ(requests.wakes(), 1u);
  EXPECT_EQ(requests.publish_without_wake(wire::EntryKind::probe, {}), 3u);
  EXPECT_EQ(link.take_calls(), Calls{});
  EXPECT_EQ(take_requests().size(), 3u);
}

// It would have to read the ring over the link.
TEST_F(RequestRingTest, SendsItsOldestRequestsWithAWakeOnce) {
  for (unsigned i = 0; i < 18; ++i) publish();
  set_head(2);
  words.set_reply_head(5);
  set_asleep(true);
  publish();
  EXPECT_EQ(link.take_calls(), Calls{"wake_with"});
  const auto head = load<wire::SentRequests>(link.sent.data());
  EXPECT_EQ(head.position, 2u);
  EXPECT_EQ(head.tail, 19u);
  EXPECT_EQ(head.reply_head, 5u);
  ASSERT_EQ(link.sent.size(), sizeof head + wire::sent_requests_max * wire::slot_bytes);
  EXPECT_EQ(
      std::memcmp(link.sent.data() + sizeof head, link.memory.data() + Layout::request_ring + 2 * wire::slot_bytes,
                  wire::sent_requests_max * wire::slot_bytes),
      0);
  publish();
  EXPECT_EQ(link.take_calls(), Calls{"wake"}) << "it has not taken those that were sent";
  set_head(19);
  publish();
  EXPECT_EQ(link.take_calls(), Calls{"wake_with"});
}

}  // namespace
}  // namespace offpath::channel
