#include "base/sleep_flag.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <thread>
#include <vector>

#include "base/fd.h"

namespace offpath {
namespace {

using AtomicWord = std::atomic_ref<std::uint64_t>;

TEST(SleepFlag, SleepsOnlyIfTheLookFindsNothing) {
  std::uint64_t word = 0;
  const SleepFlag flag(word);
  std::uint64_t seen_in_look = 0;
  EXPECT_TRUE(flag.fall_asleep([&] { return seen_in_look = flag.value(), false; }, 2));
  EXPECT_EQ(seen_in_look, 2u);
  EXPECT_EQ(word, 2u);
  EXPECT_FALSE(flag.fall_asleep([] { return true; }));
  EXPECT_EQ(word, 0u);
}

TEST(SleepFlag, IsTakenOnce) {
  std::uint64_t word = 0;
  const SleepFlag flag(word);
  EXPECT_FALSE(flag.take());
  flag.set();
  EXPECT_TRUE(flag.take());
  EXPECT_FALSE(flag.take());
  EXPECT_EQ(word, 0u);
}

TEST(SleepFlag, LiesInMemoryThatOthersMap) {
  alignas(8) std::array<std::byte, 16> memory{};
  SleepFlag(memory.data() + 8).set(2);
  EXPECT_EQ(SleepFlag(memory.data() + 8).value(), 2u);
  EXPECT_EQ(SleepFlag(memory.data()).value(), 0u);
  SleepFlag(memory.data() + 8).clear();
  EXPECT_EQ(SleepFlag(memory.data() + 8).value(), 0u);
}

// The store-buffering test: in each round one thread goes to sleep while the other publishes, at the same moment.
TEST(SleepFlag, OneOfTwoThreadsSeesTheOther) {
  struct Round {
    alignas(64) std::uint64_t flag = 0;
    alignas(64) std::uint64_t published = 0;
    bool sleeper_saw = false;
    alignas(64) bool publisher_saw = false;
  };
  std::vector<Round> rounds(50'000);
  std::array<std::uint64_t, 2> reached{};  // by thread: the round it begins, for both to begin it together
  const auto meet = [&](std::size_t own, std::uint64_t round) {
    AtomicWord(reached[own]).store(round, std::memory_order_release);
    for (unsigned spins = 1; AtomicWord(reached[1 - own]).load(std::memory_order_acquire) < round; ++spins)
      if (spins % 256 == 0) std::this_thread::yield();
  };
  std::thread publisher([&] {
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      meet(0, i + 1);
      AtomicWord(rounds[i].published).store(1, std::memory_order_release);
      fence_before_look();
      rounds[i].publisher_saw = SleepFlag(rounds[i].flag).value() != 0;
    }
  });
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    meet(1, i + 1);
    rounds[i].sleeper_saw = !SleepFlag(rounds[i].flag).fall_asleep([&] {
      return AtomicWord(rounds[i].published).load(std::memory_order_acquire) != 0;
    });
  }
  publisher.join();
  for (std::size_t i = 0; i < rounds.size(); ++i)
    ASSERT_TRUE(rounds[i].sleeper_saw || rounds[i].publisher_saw) << "round " << i << ": the wake was lost";
}

// Plain memory is handed over, too: the thread sanitizer sees a race if a wake comes without the published data. A lost
// wake leaves the sleeper asleep forever.
TEST(SleepFlag, EverythingPublishedIsTaken) {
  constexpr std::uint64_t last = 50'000;
  std::vector<std::uint64_t> values(last);
  std::uint64_t word = 0, published = 0;
  const SleepFlag flag(word);
  const Fd wakes(eventfd(0, EFD_CLOEXEC));
  ASSERT_TRUE(wakes);
  std::thread publisher([&] {
    for (std::uint64_t i = 0; i < last; ++i) {
      values[i] = i * i;
      AtomicWord(published).store(i + 1, std::memory_order_release);
      fence_before_look();
      if (flag.take()) {
        const std::uint64_t one = 1;
        ASSERT_EQ(write(wakes.get(), &one, sizeof one), 8);
      }
      if (i % 64 == 0) std::this_thread::yield();
    }
  });
  for (std::uint64_t taken = 0; taken < last;) {
    const auto there = [&] { return AtomicWord(published).load(std::memory_order_acquire); };
    if (there() == taken && flag.fall_asleep([&] { return there() != taken; })) {
      std::uint64_t count = 0;
      ASSERT_EQ(read(wakes.get(), &count, sizeof count), 8);
      flag.clear();
    }
    for (const std::uint64_t end = there(); taken < end; ++taken) ASSERT_EQ(values[taken], taken * taken);
  }
  publisher.join();
}

}  // namespace
}  // namespace offpath
