// One thread in virtual time; waits_test.cc has both ends, and waits_threads_test.cc threads.
#include "channel/host/host_waits.h"

#include <gtest/gtest.h>

#include "channel/interruption.h"
#include "testing/channel/host_parts.h"

namespace offpath::channel {
namespace {

using wire::WakeWord;

class HostWaitsTest : public testing::Test, protected HostParts {
 protected:
  [[nodiscard]] TimeNs in(TimeNs wait) const { return time + wait; }
  // The agent does this in the program's next sleep, which then ends; the sleeps after that last to their deadlines.
  template <class Act>
  void in_next_sleep(const Act& act) {
    link.on_wait = [this, act](TimeNs) {
      asked = take_wake_requests();
      act();
      link.on_wait = [this](TimeNs deadline) { time = std::max(time, deadline); };
    };
  }
  [[nodiscard]] bool has_asked(WakeWord word) const {
    return std::ranges::any_of(asked, [word](const wire::WakeAt& wake) { return wake.word == word; });
  }

  std::vector<wire::WakeAt> asked;  // before that sleep
};

TEST_F(HostWaitsTest, ForProgressSleepUntilTheWordIsReached) {
  in_next_sleep([this] { set_stored(1, 5); });
  EXPECT_TRUE(waits.for_progress(lock, 1, 5, Progress::stored, in(second_ns)));
  EXPECT_TRUE(has_asked(WakeWord::stored));
  EXPECT_EQ(waits.sleeps(), 1u);
  EXPECT_TRUE(lock.owns_lock());
  EXPECT_TRUE(waits.for_progress(lock, 1, 5, Progress::stored, 0));
  EXPECT_EQ(waits.for_progress(lock, 1, 6, Progress::stored, in(second_ns)).error().code, Error::timeout);
}

TEST_F(HostWaitsTest, ForProgressFetchCreditAndReturnFailures) {
  const std::uint64_t ticket = publish();
  set_pulled(1, ticket);
  set_credit(1, 100);
  reply_failed(ticket);
  EXPECT_EQ(waits.for_progress(lock, 1, ticket, Progress::pulled, 0).error().code, Error::no_memory);
  EXPECT_TRUE(streams[1].covers(100));
}

TEST_F(HostWaitsTest, ForRoomSleepUntilThereIs) {
  fill_ring();
  EXPECT_EQ(waits.for_room(lock, 8, 0).error().code, Error::would_block);
  EXPECT_EQ(waits.for_room(lock, 8, in(second_ns)).error().code, Error::timeout);
  in_next_sleep([] {});
  EXPECT_TRUE(waits.for_room(lock, 8, in(second_ns)));
  EXPECT_TRUE(has_asked(WakeWord::now));
  EXPECT_EQ(waits.for_room(lock, wire::entry_bytes_max + 1, 0).error().code, Error::too_large);
}

TEST_F(HostWaitsTest, ForRoomTakeInRepliesThatHoldUpTheAgent) {
  fill_ring();
  reply_done(1);
  EXPECT_FALSE(waits.for_room(lock, 8, in(second_ns)));
  EXPECT_FALSE(replies.have_arrived());
}

TEST_F(HostWaitsTest, ForRoomOrAReplyEndWithEither) {
  EXPECT_TRUE(waits.for_room_or_reply(lock, 8, in(second_ns)));
  EXPECT_EQ(waits.sleeps(), 0u);
  fill_ring();
  const TimeNs began = time;
  EXPECT_TRUE(waits.for_room_or_reply(lock, 8, in(second_ns)));
  EXPECT_EQ(time, began + second_ns);
  EXPECT_FALSE(requests.fits(8));
  link.on_wait = [this](TimeNs) { reply_done(1); };
  EXPECT_TRUE(waits.for_room_or_reply(lock, 8, in(second_ns)));
  EXPECT_EQ(time, began + second_ns);
  in_next_sleep([] {});
  EXPECT_TRUE(waits.for_room_or_reply(lock, 8, in(second_ns)));
  EXPECT_TRUE(has_asked(WakeWord::now));
  EXPECT_TRUE(has_asked(WakeWord::replies));
  EXPECT_TRUE(requests.fits(8));
}

TEST_F(HostWaitsTest, ForCreditAskForItAndSleep) {
  streams[1].note(50, 0);
  EXPECT_EQ(waits.for_credit(lock, 1, 100, 0).error().code, Error::would_block);
  EXPECT_EQ(streams[1].credit_asked, 150u) << "it may be there at the next attempt";
  in_next_sleep([this] {
    EXPECT_EQ(streams[1].credit_waiters, 1u);
    set_credit(1, 150);
  });
  EXPECT_TRUE(waits.for_credit(lock, 1, 100, in(second_ns)));
  EXPECT_TRUE(has_asked(WakeWord::credit));
  EXPECT_EQ(streams[1].credit_waiters, 0u);
  EXPECT_EQ(waits.for_credit(lock, 1, link.welcomed.memory_bytes_max + 1, never).error().code, Error::too_large);
}

TEST_F(HostWaitsTest, ForRepliesLookAfterEach) {
  const std::uint64_t ticket = publish();
  replies.await(ticket);
  in_next_sleep([&] { reply_done(ticket); });
  EXPECT_TRUE(waits.for_replies(lock, in(second_ns), [&] { return replies.find(ticket)->has_value(); }));
  EXPECT_TRUE(has_asked(WakeWord::replies));
  EXPECT_EQ(waits.for_replies(lock, in(second_ns), [] { return false; }).error().code, Error::timeout);
}

TEST_F(HostWaitsTest, ThatEndForAnotherThreadAskForAWakeOfTheOneOnTheLink) {
  const std::uint32_t turn = turns.number();
  waits.end_sleeps();
  EXPECT_NE(turns.number(), turn) << "those that follow look";
  EXPECT_TRUE(take_requests().empty()) << "none sleeps on the link";
  link.on_wait = [this](TimeNs) {
    (void)take_requests();
    waits.end_sleeps();
    asked = take_wake_requests();
    life.close();
  };
  EXPECT_FALSE(waits.for_progress(lock, 1, 5, Progress::stored, never));
  EXPECT_TRUE(has_asked(WakeWord::now));
}

TEST_F(HostWaitsTest, EndWithTheChannel) {
  link.on_wait = [this](TimeNs) { life.close(); };
  EXPECT_EQ(waits.for_progress(lock, 1, 5, Progress::stored, never).error().code, Error::closed);
}

TEST_F(HostWaitsTest, LoseTheChannelWhenTheLinkFails) {
  link.on_wait = [this](TimeNs) { link.fails = true; };
  EXPECT_EQ(waits.for_progress(lock, 1, 5, Progress::stored, never).error().code, Error::no_memory);
  EXPECT_TRUE(life.is_lost());
}

// It looked before the deadline.
TEST_F(HostWaitsTest, WithoutTimeLookAtTheLink) {
  link.fails = true;
  EXPECT_EQ(waits.for_progress(lock, 1, 5, Progress::stored, 0).error().code, Error::no_memory);
}

TEST_F(HostWaitsTest, LoseTheChannelWhenAReplyCannotBe) {
  reply_done(99);
  EXPECT_EQ(waits.take_in_replies().error().code, Error::protocol);
  EXPECT_TRUE(life.is_lost());
}

TEST_F(HostWaitsTest, AskForArmedWakesAfterEachLook) {
  wakes.arm(1, WakeWord::stored, 10);
  wakes.arm(1, WakeWord::stored, 20);
  (void)take_wake_requests();
  set_stored(1, 10);
  ASSERT_TRUE(waits.look_at_all());
  const auto next = take_wake_requests();
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].value, 20u);
}

// Interpreters run handlers of signals so. Asked without the lock: the handler may call the channel.
TEST_F(HostWaitsTest, EndBeforeASleepIfTheThreadIsInterrupted) {
  interruption() = {[](void* of) {
                      auto& test = *static_cast<HostParts*>(of);
                      EXPECT_FALSE(test.lock.owns_lock());
                      return 1;
                    },
                    static_cast<HostParts*>(this)};
  const Status waited = waits.for_progress(lock, 1, 5, Progress::stored, never);
  interruption() = {};
  EXPECT_TRUE(is_interrupted(waited));
  EXPECT_EQ(waits.sleeps(), 0u);
  EXPECT_TRUE(lock.owns_lock());
}

// Another thread looked while is_due ran: the wake that was asked for may be gone.
TEST_F(HostWaitsTest, LookAgainIfATurnEndedBeforeTheSleep) {
  interruption() = {[](void* of) {
                      auto& test = *static_cast<HostParts*>(of);
                      if (test.words.stored(1) == 0) {
                        test.turns.next();
                        test.set_stored(1, 5);
                      }
                      return 0;
                    },
                    static_cast<HostParts*>(this)};
  const Status waited = waits.for_progress(lock, 1, 5, Progress::stored, never);
  interruption() = {};
  EXPECT_TRUE(waited);
  EXPECT_EQ(waits.sleeps(), 0u);
}

}  // namespace
}  // namespace offpath::channel
