#include "connections/sleep_word.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace offpath::channel {
namespace {

TEST(SleepWord, EndsASleepThatBeginsAfterTheWake) {
  alignas(4) std::array<std::byte, 4> memory{};
  const SleepWord word(memory.data());
  EXPECT_FALSE(word.take()) << "nobody sleeps";
  const auto before = word.begin();
  const auto taken = word.take();
  ASSERT_TRUE(taken);
  EXPECT_EQ(word.sleep(before, nullptr), EAGAIN);
  EXPECT_FALSE(word.wake(*taken));
  EXPECT_FALSE(word.take());
}

// If a process dies in a wake, the next one finishes it, also for those that have begun to sleep meanwhile.
TEST(SleepWord, AWakeThatWasBegunIsEndedByTheNextOne) {
  alignas(4) std::array<std::byte, 4> memory{};
  const SleepWord word(memory.data());
  const timespec until{monotonic_ns() / second_ns + 60, 0};
  for (const bool one_sleeps_since : {false, true}) {
    std::vector<std::thread> threads;
    std::atomic<int> begun = 0, woken = 0;
    const auto sleeps = [&] {
      threads.emplace_back([&] {
        const auto before = word.begin();
        ++begun;
        if (const int ended = word.sleep(before, &until); ended == 0 || ended == EAGAIN) ++woken;
      });
      while (begun < static_cast<int>(threads.size())) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    };
    sleeps();
    ASSERT_TRUE(word.take());
    EXPECT_TRUE(word.is_waking());
    if (one_sleeps_since) sleeps();
    const auto taken = word.take();
    EXPECT_TRUE(taken && !word.wake(*taken));
    for (std::thread& each : threads) each.join();
    EXPECT_EQ(woken.load(), static_cast<int>(threads.size()));
    EXPECT_FALSE(word.is_waking());
    EXPECT_FALSE(word.take());
  }
}

// A program may have thousands of threads, and some that are woken sleep again at once: whoever wakes so many at a time
// comes to an end.
TEST(SleepWord, WakesOnlyThoseThatSleptBefore) {
  alignas(4) std::array<std::byte, 4> memory{};
  const SleepWord word(memory.data());
  for (const bool one_has_died : {false, true}) {
    if (one_has_died) {  // it had begun a wake
      static_cast<void>(word.begin());
      ASSERT_TRUE(word.take());
    }
    constexpr int threads = 150;
    std::atomic<int> asleep = 0, woken = 0;
    std::atomic<bool> over = false;
    std::vector<std::thread> all;
    for (int i = 0; i < threads; ++i)
      all.emplace_back([&] {
        for (; !over; ++woken) {
          const auto before = word.begin();
          ++asleep;
          if (!over) static_cast<void>(word.sleep(before, nullptr));
          --asleep;
        }
      });
    while (asleep < threads) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const auto taken = word.take();
    ASSERT_TRUE(taken);
    int rounds = 1;
    while (word.wake(*taken, 16) && rounds < 10 * threads) ++rounds;
    EXPECT_LE(rounds, threads / 16 + 1);
    over = true;
    fence_before_look();
    while (asleep > 0) {
      if (const auto last = word.take()) word.wake(*last);
      std::this_thread::yield();
    }
    for (std::thread& each : all) each.join();
    EXPECT_GE(woken.load(), threads);
  }
}

TEST(SleepWord, EndsByItsLimit) {
  alignas(4) std::array<std::byte, 4> memory{};
  const SleepWord word(memory.data());
  const timespec past{1, 0};
  EXPECT_EQ(word.sleep(word.begin(), &past), ETIMEDOUT);
}

// Several threads sleep until a number has grown, and several make it grow: a wake that is lost would be the end of it.
TEST(SleepWord, LosesNoWake) {
  alignas(4) std::array<std::byte, 4> memory{};
  const SleepWord word(memory.data());
  constexpr int publishers = 2, sleepers = 2, turns = 20'000;
  std::atomic<int> published = 0;
  std::atomic<int> awaited = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < sleepers; ++i)
    threads.emplace_back([&] {
      while (published.load(std::memory_order_relaxed) < publishers * turns) {
        const int seen = published.load(std::memory_order_relaxed);
        awaited.fetch_add(1, std::memory_order_relaxed);
        for (;;) {
          const auto before = word.begin();
          if (published.load(std::memory_order_relaxed) != seen) break;
          static_cast<void>(word.sleep(before, nullptr));
        }
      }
    });
  for (int i = 0; i < publishers; ++i)
    threads.emplace_back([&, i] {
      for (int turn = 0; turn < turns; ++turn) {
        published.fetch_add(1, std::memory_order_relaxed);
        fence_before_look();
        if (const auto taken = word.take()) word.wake(*taken);
        if ((turn + i) % 64 == 0) std::this_thread::yield();
      }
    });
  for (std::thread& each : threads) each.join();
  EXPECT_GT(awaited.load(), 0);
}

}  // namespace
}  // namespace offpath::channel
