#include "channel/host/replies.h"

#include <gtest/gtest.h>

#include "testing/channel/host_parts.h"

namespace offpath::channel {
namespace {

constexpr std::uint64_t newest = 10'000;

class RepliesTest : public testing::Test, protected HostParts {
 protected:
  Error refusal() {
    const Status taken = replies.take_in(newest);
    return taken ? Error{} : taken.error().code;
  }
};

TEST_F(RepliesTest, AreKeptForThoseThatAwaitThem) {
  replies.await(5);
  replies.await(6);
  EXPECT_FALSE(replies.have_arrived());
  reply_done(6);
  EXPECT_TRUE(replies.have_arrived());
  ASSERT_TRUE(replies.take_in(newest));
  EXPECT_FALSE(replies.have_arrived());
  EXPECT_EQ(words.reply_head(), 1u) << "the agent may use the slot again";
  EXPECT_EQ(replies.position(), 1u);
  EXPECT_FALSE(replies.take(5));
  ASSERT_NE(replies.find(5), nullptr);
  EXPECT_FALSE(*replies.find(5)) << "still awaited";
  ASSERT_TRUE(*replies.find(6));
  const auto reply = replies.take(6);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->ticket, 6u);
  wire::Done done{};
  ASSERT_TRUE(wire::decode(reply->payload, done));
  EXPECT_EQ(done.value, 6u);
  EXPECT_EQ(replies.find(6), nullptr);
  EXPECT_FALSE(replies.take(6));
}

TEST_F(RepliesTest, ThatWereForgottenAreDropped) {
  replies.await(5);
  replies.forget(5);
  reply_done(5);
  ASSERT_TRUE(replies.take_in(newest));
  EXPECT_FALSE(replies.take(5));
}

TEST_F(RepliesTest, ThatFailAreKnownUntilManyMoreHaveFailed) {
  EXPECT_TRUE(replies.failure_of(1));
  for (std::uint64_t ticket = 1; ticket <= Replies::failures_max; ++ticket) {
    reply_failed(ticket);
    ASSERT_TRUE(replies.take_in(newest));
  }
  for (unsigned asked = 0; asked < 2; ++asked) EXPECT_EQ(replies.failure_of(1).error().message, "refused");
  EXPECT_TRUE(replies.failure_of(Replies::failures_max + 1));
  reply_failed(Replies::failures_max + 1);
  ASSERT_TRUE(replies.take_in(newest));
  EXPECT_TRUE(replies.failure_of(1));
  EXPECT_FALSE(replies.failure_of(2));
  EXPECT_EQ(replies.failed(), Replies::failures_max + 1);
}

// The caller turns it into its own failure.
TEST_F(RepliesTest, ThatFailAreNoFailuresOfTheirOwnWhereTheyAreAwaited) {
  replies.await(5);
  reply_failed(5);
  ASSERT_TRUE(replies.take_in(newest));
  EXPECT_EQ(replies.failed(), 0u);
  EXPECT_TRUE(replies.failure_of(5));
  EXPECT_EQ(replies.take(5).value().kind, wire::ReplyKind::failed);
}

TEST_F(RepliesTest, BeyondTheRingAreTheAgentsError) {
  set_word(Layout::reply_tail_line, layout.reply_slots + 1);
  EXPECT_EQ(refusal(), Error::protocol);
}

TEST_F(RepliesTest, ThatAreNotWholeAreTheAgentsError) {
  reply_done(5);
  link.memory[layout.reply_ring() + 20] ^= std::byte{1};
  EXPECT_EQ(refusal(), Error::protocol);
  EXPECT_EQ(words.reply_head(), 0u);
}

TEST_F(RepliesTest, ToTicketsThatDoNotExistAreTheAgentsError) {
  reply_done(newest);
  EXPECT_EQ(refusal(), Error{});
  reply_done(newest + 1);
  EXPECT_EQ(refusal(), Error::protocol);
}

TEST_F(RepliesTest, OutsideOfTheirRingAreTheAgentsError) {
  agent_ring.write_outside(static_cast<std::uint8_t>(wire::ReplyKind::done), 5, {100, 0});
  set_word(Layout::reply_tail_line, agent_ring.position());
  EXPECT_EQ(refusal(), Error::protocol);
}

}  // namespace
}  // namespace offpath::channel
