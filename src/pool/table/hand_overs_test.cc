// Leases and pushes, without pools.
#include "pool/table/hand_overs.h"

#include <gtest/gtest.h>

#include "wire/limits.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/pool_messages.h"
#include "wire/messages/stream_messages.h"

namespace offpath::pool {
namespace {

class HandOversTest : public ::testing::Test {
 protected:
  HandOversTest() { hand_overs_.on_channel_open(1); }
  static FramePtr frame(std::uint64_t bytes) {
    auto made = std::make_shared<service::Frame>();
    made->bytes = bytes;
    return made;
  }
  template <class Message>
  channel::Entry entry(wire::EntryKind kind, const Message& message) {
    payload_.clear();
    wire::encode(message, payload_);
    return {9, static_cast<std::uint8_t>(kind), payload_};
  }
  std::uint64_t lease(const FramePtr& frame) {
    effects_.clear();
    hand_overs_.hand_over(1, 2, frame, effects_);
    return std::get<service::HandOverEffect>(effects_.at(0)).got.lease;
  }

  HandOvers hand_overs_{2};
  Effects effects_;
  std::vector<std::byte> payload_;
};

constexpr std::uint64_t large = wire::enclosed_bytes_max + 1;

TEST_F(HandOversTest, ALeaseKeepsItsFrameUntilItsChannelCloses) {
  FramePtr held = frame(large);
  const std::weak_ptr<service::Frame> watched = held;
  EXPECT_NE(lease(held), 0u);
  effects_.clear();
  held.reset();
  EXPECT_FALSE(watched.expired());
  EXPECT_EQ(hand_overs_.leases(), 1u);
  hand_overs_.on_channel_closed(1);
  EXPECT_TRUE(watched.expired());
  EXPECT_EQ(hand_overs_.leases(), 0u);
  EXPECT_FALSE(hand_overs_.is_open(1));
  hand_overs_.hand_over(1, 3, frame(large), effects_);
  EXPECT_TRUE(effects_.empty()) << "a closed channel is told nothing";
}

TEST_F(HandOversTest, AChannelHasALimitOfLeasesWhichReleasedAndSmallOnesDoNotCount) {
  const std::uint64_t first = lease(frame(large));
  lease(frame(large));
  effects_.clear();
  hand_overs_.hand_over(1, 4, frame(large), effects_);
  EXPECT_EQ(std::get<service::FailEffect>(effects_.at(0)).failure.code, Error::too_large);
  EXPECT_EQ(lease(frame(8)), 0u) << "it comes in the answer";
  hand_overs_.on_release(1, entry(wire::EntryKind::release, wire::Release{first}));
  EXPECT_EQ(hand_overs_.leases(), 1u);
  EXPECT_NE(lease(frame(large)), 0u);
}

TEST_F(HandOversTest, ALeaseIsPushedOnceAndAnsweredWhenItsBytesAreThere) {
  const std::uint64_t number = lease(frame(large));
  effects_.clear();
  const auto request = entry(wire::EntryKind::push_lease, wire::PushLease{number, wire::segment_flag | 3});
  hand_overs_.on_push_lease(1, request, effects_);
  const auto* const push = std::get_if<service::PushEffect>(&effects_.at(0));
  ASSERT_NE(push, nullptr);
  const std::uint64_t token = push->token;
  EXPECT_EQ(hand_overs_.leases(), 0u);
  effects_.clear();
  hand_overs_.on_push_lease(1, request, effects_);
  EXPECT_NE(std::get_if<service::FailEffect>(&effects_.at(0)), nullptr) << "the lease is over";
  effects_.clear();
  hand_overs_.on_transfer(token, {}, effects_);
  const auto* const reply = std::get_if<service::ReplyEffect>(&effects_.at(0));
  ASSERT_NE(reply, nullptr);
  EXPECT_EQ(std::get<wire::Got>(reply->message).length, large);
  effects_.clear();
  hand_overs_.on_transfer(token, {}, effects_);
  EXPECT_TRUE(effects_.empty()) << "a token ends once";
}

}  // namespace
}  // namespace offpath::pool
