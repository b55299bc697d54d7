#include "loop/mailbox.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

namespace offpath::loop {
namespace {

std::unique_ptr<Loop> make_loop(const LoopOptions& options = {}) {
  auto loop = Loop::make(options);
  EXPECT_TRUE(loop.has_value());
  return std::move(*loop);
}

TEST(MailboxTest, RefusesWhatDoesNotFitAndLosesNothing) {
  auto loop = make_loop();
  std::string taken;
  Mailbox<std::unique_ptr<char>> mailbox(*loop, 3, [&](std::unique_ptr<char> value, TimeNs) { taken += *value; });
  EXPECT_EQ(mailbox.capacity(), 4u);
  for (char letter : std::string("abcd")) EXPECT_TRUE(mailbox.post(std::make_unique<char>(letter)));
  auto fifth = std::make_unique<char>('e');
  EXPECT_FALSE(mailbox.post(std::move(fifth)));
  ASSERT_NE(fifth, nullptr);
  EXPECT_FALSE(mailbox.fall_asleep(0));
  EXPECT_TRUE(mailbox.poll(0));
  EXPECT_TRUE(mailbox.post(std::move(fifth)));
  EXPECT_TRUE(mailbox.poll(0));
  EXPECT_EQ(taken, "abcde");
  EXPECT_FALSE(mailbox.poll(0));
  EXPECT_TRUE(mailbox.fall_asleep(0));
}

TEST(MailboxTest, OnePollTakesABoundedNumber) {
  auto loop = make_loop();
  std::size_t taken = 0;
  Mailbox<int> mailbox(*loop, 1024, [&](int, TimeNs) { ++taken; });
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(mailbox.post(int(i)));
  mailbox.poll(0);
  EXPECT_EQ(taken, Mailbox<int>::taken_in_one_poll_max);
}

TEST(MailboxTest, ManyThreadsKeepTheirOwnOrder) {
  constexpr unsigned posters = 4, each = 20'000;
  auto loop = make_loop();
  std::array<unsigned, posters> next{};
  unsigned left = posters * each;
  Mailbox<std::pair<unsigned, unsigned>> mailbox(*loop, 64, [&](std::pair<unsigned, unsigned> value, TimeNs) {
    EXPECT_EQ(value.second, next[value.first]++);
    if (--left == 0) loop->stop();
  });
  loop->add(mailbox);
  std::vector<std::thread> threads;
  for (unsigned poster = 0; poster < posters; ++poster) {
    threads.emplace_back([&, poster] {
      for (unsigned i = 0; i < each; ++i) {
        while (!mailbox.post({poster, i})) std::this_thread::yield();
      }
    });
  }
  loop->run();
  for (std::thread& thread : threads) thread.join();
  for (unsigned seen : next) EXPECT_EQ(seen, each);
}

// The loop sleeps as soon as it can, without a deadline, and each post waits until the previous one is taken: one lost
// wake would stop everything.
TEST(MailboxTest, NoWakeIsLost) {
  constexpr unsigned rounds = 30'000;
  auto loop = make_loop({.spin_ns = 0});
  std::atomic<unsigned> taken{0};
  Mailbox<unsigned> mailbox(*loop, 2, [&](unsigned value, TimeNs) {
    taken.store(value, std::memory_order_release);
    if (value == rounds) loop->stop();
  });
  loop->add(mailbox);
  std::thread poster([&] {
    for (unsigned i = 1; i <= rounds; ++i) {
      ASSERT_TRUE(mailbox.post(unsigned(i)));
      // Different waits before each post let it meet every step of falling asleep.
      for (unsigned spin = 0; taken.load(std::memory_order_acquire) != i || spin < i % 64; ++spin) {
        if (spin > 10'000) std::this_thread::yield();
      }
    }
  });
  loop->run();
  poster.join();
  EXPECT_EQ(taken.load(), rounds);
  EXPECT_GT(loop->counters().sleeps, 0u);
}

}  // namespace
}  // namespace offpath::loop
