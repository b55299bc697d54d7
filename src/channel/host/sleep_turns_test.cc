#include "channel/host/sleep_turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "testing/channel/fake_host_link.h"
#include "testing/link/emulated.h"

namespace offpath::channel {
namespace {

class SleepTurnsTest : public testing::Test {
 protected:
  SleepTurnsTest() {
    link.on_wait = [this](TimeNs) {
      ++on_link;
      while (!woken) std::this_thread::yield();
      --on_link;
    };
  }
  // A thread that sleeps once. It counts itself among those that looked, or that followed in time.
  std::thread sleeper() {
    return std::thread([this] {
      const TimeNs deadline = link::soon();
      SleepTurns::Lock lock(mutex);
      const bool looks = turns.sleep(lock, link, deadline);
      EXPECT_TRUE(lock.owns_lock());
      EXPECT_LT(monotonic_ns(), deadline) << "it was not notified";
      ++(looks ? looked : followed);
    });
  }
  void until(const std::function<bool()>& there) {
    const TimeNs deadline = link::soon();
    while (!there()) {
      ASSERT_LT(monotonic_ns(), deadline);
      std::this_thread::yield();
    }
  }

  link::FakeHostLink link{wire::ChannelLayout{.request_slots = 64, .reply_slots = 64, .streams_max = 1}};
  std::atomic<bool> woken = false;
  std::atomic<int> on_link = 0;
  std::atomic<int> looked = 0, followed = 0;
  std::mutex mutex;
  SleepTurns turns;
};

TEST_F(SleepTurnsTest, LetOneThreadSleepOnTheLinkAndNotifyTheOthers) {
  std::thread first = sleeper();
  until([&] { return on_link == 1; });
  {
    const SleepTurns::Lock lock(mutex);  // released by the one that sleeps
    EXPECT_TRUE(turns.is_taken());
  }
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) others.push_back(sleeper());
  // The link is no one else's, however long it takes.
  int most = 0;
  for (int i = 0; i < 1000; ++i) {
    std::this_thread::yield();
    most = std::max(most, on_link.load());
  }
  EXPECT_EQ(most, 1);
  woken = true;
  first.join();
  // One that had not begun to sleep sleeps on the link by itself.
  for (std::thread& each : others) each.join();
  EXPECT_EQ(looked + followed, 4);
  EXPECT_GE(looked, 1);
  EXPECT_FALSE(turns.is_taken());
}

// As after a look of a thread that does not sleep.
TEST_F(SleepTurnsTest, EndWithTheNextOne) {
  std::thread first = sleeper();
  until([&] { return on_link == 1; });
  std::thread second = sleeper();
  const std::uint32_t number = turns.number();
  until([&] {
    const SleepTurns::Lock lock(mutex);
    turns.next();  // again, in case it did not sleep so far
    return followed == 1;
  });
  EXPECT_NE(turns.number(), number);
  EXPECT_EQ(on_link, 1) << "it sleeps on";
  woken = true;
  first.join();
  second.join();
  EXPECT_EQ(looked, 1);
}

TEST_F(SleepTurnsTest, EndAtTheDeadline) {
  std::thread first = sleeper();
  until([&] { return on_link == 1; });
  {
    SleepTurns::Lock lock(mutex);
    EXPECT_FALSE(turns.sleep(lock, link, monotonic_ns() + millisecond_ns));
  }
  woken = true;
  first.join();
}

}  // namespace
}  // namespace offpath::channel
