#include "sift/publish/piece_pulls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/memory_file.h"

namespace offpath::sift {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t piece_bytes = 4096;

class PiecePullsTest : public ::testing::Test {
 protected:
  // A piece in the memory of the member on channel 3, or one whose descriptor has this number.
  void add(std::uint64_t number, std::uint64_t descriptor = 0, TimeNs until = never) {
    PiecePulls::Object object;
    object.channel = 3;
    object.offer = descriptor;
    object.from = {1, 1, 0, piece_bytes};
    object.bytes = piece_bytes;
    object.offer_until = until;
    pulls_.add(number, std::move(object));
  }
  std::optional<PiecePulls::Ended> begin(std::uint64_t number) { return pulls_.begin(number, now_, effects_); }
  std::optional<PiecePulls::Ended> begin_waiting() { return pulls_.begin_waiting(now_, effects_); }

  TimeNs now_ = 0;
  bool room_ = true;
  std::map<std::uint64_t, Fd> descriptors_;  // that have arrived
  service::Effects effects_;
  PiecePulls pulls_{service::BufferCache::make({.huge_pages = false}), 1 << 20, [this](std::uint64_t) { return room_; },
                    [this](service::ChannelNumber, std::uint64_t number) {
                      const auto node = descriptors_.extract(number);
                      return node ? std::move(node.mapped()) : Fd();
                    }};
};

TEST_F(PiecePullsTest, PullsAPieceFromTheMembersMemory) {
  add(7);
  EXPECT_FALSE(begin(7));
  ASSERT_EQ(effects_.size(), 1u);
  EXPECT_EQ(std::get<service::PullEffect>(effects_[0]).token, service::token_of(service::ServiceId::sift, 7));
  ASSERT_TRUE(pulls_.is_under_way(7));
  const auto ended = pulls_.end(7, {});
  ASSERT_TRUE(ended);
  EXPECT_EQ((*ended->frame)->bytes, piece_bytes);
  EXPECT_FALSE(pulls_.is_under_way(7));
  EXPECT_FALSE(begin(7)) << "it is unknown now";
}

TEST_F(PiecePullsTest, WaitsForRoomInOrder) {
  room_ = false;
  for (const std::uint64_t number : {7, 8}) {
    add(number);
    EXPECT_FALSE(begin(number));
  }
  EXPECT_EQ(pulls_.waiting(), 2u);
  EXPECT_EQ(pulls_.next_deadline(), never);
  EXPECT_FALSE(begin_waiting());
  EXPECT_TRUE(effects_.empty()) << "7 waits on, behind 8";
  room_ = true;
  EXPECT_FALSE(begin_waiting());
  EXPECT_TRUE(pulls_.is_under_way(8));
  EXPECT_EQ(pulls_.waiting(), 1u);
}

TEST_F(PiecePullsTest, ADescriptorThatHasNotArrivedIsWaitedForUntilItsTime) {
  add(7, 4, 900);
  add(8, 5, 900);
  EXPECT_FALSE(begin(7));
  EXPECT_FALSE(begin(8));
  EXPECT_EQ(pulls_.next_deadline(), 900);
  Fd file = memory_file("piece").value();
  ASSERT_EQ(ftruncate(file.get(), piece_bytes), 0);
  descriptors_.emplace(4, std::move(file));
  const auto read = begin_waiting();
  ASSERT_TRUE(read) << "a short one is read at once";
  EXPECT_TRUE(read->frame);
  now_ = 900;
  const auto failed = begin_waiting();
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->number, 8u);
  EXPECT_THAT(failed->frame.error().message, HasSubstr("no descriptor was offered"));
  EXPECT_EQ(pulls_.next_deadline(), never);
}

TEST_F(PiecePullsTest, WhatIsTooLargeFailsAtOnce) {
  PiecePulls::Object object;
  object.bytes = 2 << 20;
  pulls_.add(7, std::move(object));
  const auto failed = begin(7);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->frame.error().code, Error::too_large);
}

TEST_F(PiecePullsTest, AnAbandonedPullEndsWithoutAnOutcome) {
  add(7);
  EXPECT_FALSE(begin(7));
  pulls_.abandon(7);
  ASSERT_TRUE(pulls_.is_under_way(7)) << "its buffer is still written";
  EXPECT_FALSE(pulls_.end(7, {}));
  room_ = false;
  add(8);
  EXPECT_FALSE(begin(8));
  pulls_.abandon(8);
  EXPECT_EQ(pulls_.waiting(), 0u);
}

TEST_F(PiecePullsTest, APieceWhoseChannelIsGoneIsUnknown) {
  add(7);
  EXPECT_FALSE(begin(7));
  room_ = false;
  add(8, 4, 900);
  EXPECT_FALSE(begin(8));
  for (const std::uint64_t number : {7, 8, 9}) pulls_.forget(number);
  EXPECT_FALSE(pulls_.is_under_way(7));
  EXPECT_EQ(pulls_.waiting(), 0u);
  EXPECT_EQ(pulls_.next_deadline(), never);
}

}  // namespace
}  // namespace offpath::sift
