#include "channel/rhythm.h"

#include <gtest/gtest.h>

#include <random>

#include "channel/look_out.h"

namespace offpath::channel {
namespace {

constexpr unsigned percent = 5;

// Posts at intervals that `interval` gives, and counts how many of the posts had been expected when they came.
struct Posts {
  Rhythm rhythm;
  TimeNs now = 123 * second_ns;
  unsigned posts = 0, hits = 0, misses = 0;
  TimeNs looked_ns = 0, passed_ns = 0;

  void post(TimeNs interval) {
    const auto expected = rhythm.expected(percent);
    now += interval;
    passed_ns += interval;
    if (expected) {
      (expected->from <= now && now <= expected->until ? hits : misses)++;
      looked_ns += std::max<TimeNs>(std::min(expected->until, now) - expected->from, 0);
    }
    rhythm.posted(now);
    ++posts;
  }
};

TEST(Rhythm, AFewPostsAreEnoughForASteadyProgram) {
  for (const TimeNs interval : {2 * millisecond_ns, 5 * millisecond_ns, 75 * millisecond_ns, 3 * second_ns}) {
    Posts posts;
    for (int i = 0; i < 30; ++i) posts.post(interval);
    EXPECT_EQ(posts.misses, 0u);
    EXPECT_GE(posts.hits, 25u) << "expected from the sixth post on";
    EXPECT_LT(posts.looked_ns, posts.passed_ns / 20);
  }
}

TEST(Rhythm, AWindowIsAsWideAsThePostsAreSpread) {
  Posts steady, spread;
  std::mt19937_64 random(1);
  for (int i = 0; i < 40; ++i) {
    steady.post(50 * millisecond_ns);
    spread.post(50 * millisecond_ns + static_cast<TimeNs>(random() % 1'000'000) - 500'000);
  }
  const auto narrow = steady.rhythm.expected(percent), wide = spread.rhythm.expected(percent);
  ASSERT_TRUE(narrow && wide);
  EXPECT_LT(narrow->until - narrow->from, wide->until - wide->from);
  EXPECT_LE(wide->until - wide->from, 50 * millisecond_ns / 20);
  EXPECT_GE(spread.hits, 25u);
}

// A neighbour list that is rebuilt at every fourth output makes each fourth interval longer.
TEST(Rhythm, ALongerIntervalAtEveryFourthBeatIsLearnt) {
  Posts posts;
  for (int i = 0; i < 20; ++i) posts.post((i % 4 == 3 ? 89 : 65) * millisecond_ns);
  EXPECT_GE(posts.hits, 10u) << "three of four are expected before the fourth is learnt";
  posts.hits = posts.misses = 0;
  for (int i = 0; i < 20; ++i) posts.post((i % 4 == 3 ? 89 : 65) * millisecond_ns);
  EXPECT_EQ(posts.hits, 20u);
}

TEST(Rhythm, OneDisturbedIntervalIsForgiven) {
  Posts posts;
  for (int i = 0; i < 10; ++i) posts.post(20 * millisecond_ns);
  posts.post(31 * millisecond_ns);
  posts.hits = 0;
  for (int i = 0; i < 10; ++i) posts.post(20 * millisecond_ns);
  EXPECT_EQ(posts.hits, 10u);
}

TEST(Rhythm, NothingIsExpectedOfIrregularPosts) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Posts posts;
    std::mt19937_64 random(seed);
    std::exponential_distribution<double> interval(1.0 / (20 * millisecond_ns));
    for (int i = 0; i < 400; ++i) posts.post(static_cast<TimeNs>(interval(random)));
    EXPECT_LT(posts.misses, 20u) << "seed " << seed;
    EXPECT_LT(posts.looked_ns, posts.passed_ns / 100) << "seed " << seed;
  }
}

TEST(Rhythm, PostsOfOneBurstAreOneBeat) {
  Rhythm rhythm;
  TimeNs now = 1;
  for (int beat = 0; beat < 10; ++beat, now += 30 * millisecond_ns) {
    EXPECT_TRUE(rhythm.posted(now));
    for (int i = 1; i < 20; ++i) EXPECT_FALSE(rhythm.posted(now + i * 100 * microsecond_ns));
  }
  const auto expected = rhythm.expected(percent);
  ASSERT_TRUE(expected);
  EXPECT_LE(expected->from, now);
  EXPECT_GE(expected->until, now);
}

TEST(Rhythm, ALongPauseEndsIt) {
  Posts posts;
  for (int i = 0; i < 10; ++i) posts.post(20 * millisecond_ns);
  EXPECT_TRUE(posts.rhythm.expected(percent));
  posts.post(Rhythm::interval_max_ns + 1);
  EXPECT_FALSE(posts.rhythm.expected(percent));
}

TEST(LookBudget, IsAShareOfTheTimeThatPasses) {
  LookBudget budget(percent);
  TimeNs now = 100 * second_ns, taken = 0;
  const TimeNs began = now;
  for (int i = 0; i < 100'000; ++i, now += 10 * microsecond_ns)
    if (budget.take(200 * microsecond_ns, now)) taken += 200 * microsecond_ns;
  EXPECT_LE(taken, (now - began) / 20 + 2 * Rhythm::window_max_ns);
  EXPECT_GE(taken, (now - began) / 25);
}

TEST(LookOut, NothingIsLookedForWithoutABudget) {
  LookBudget none(0);
  for (LookBudget* budget : {static_cast<LookBudget*>(nullptr), &none}) {
    LookOut look_out(budget);
    for (int i = 0; i < 20; ++i) look_out.posted(1, second_ns + i * 20 * millisecond_ns);
    EXPECT_EQ(look_out.next(), never);
  }
}

TEST(LookOut, EachStreamHasItsOwnRhythm) {
  LookBudget budget(percent);
  LookOut look_out(&budget);
  TimeNs now = second_ns;
  for (int i = 0; i < 20; ++i, now += 60 * millisecond_ns) {
    look_out.posted(1, now);
    look_out.posted(2, now + (i % 3 + 1) * 7 * millisecond_ns);  // irregular
  }
  EXPECT_LE(look_out.next(), now);
  EXPECT_GE(look_out.next(), now - 3 * millisecond_ns);
  EXPECT_TRUE(look_out.begin(look_out.next()));
  EXPECT_TRUE(look_out.looks_at(now));
}

// A program that stops posting costs one window.
TEST(LookOut, AWindowIsUsedOnce) {
  LookBudget budget(percent);
  LookOut look_out(&budget);
  TimeNs now = second_ns;
  for (int i = 0; i < 20; ++i, now += 60 * millisecond_ns) look_out.posted(1, now);
  now = look_out.next();
  EXPECT_TRUE(look_out.begin(now));
  EXPECT_EQ(look_out.next(), never);
  EXPECT_FALSE(look_out.looks_at(now + Rhythm::window_max_ns));
  look_out.end(now + second_ns, false);
  EXPECT_LE(budget.counters.looking_ns, Rhythm::window_max_ns);
  EXPECT_EQ(budget.counters.look_outs, 1u);
  EXPECT_EQ(budget.counters.wakes_spared, 0u);
}

TEST(LookOut, AWindowThatWasMissedIsNotMadeUpFor) {
  LookBudget budget(percent);
  LookOut look_out(&budget);
  for (int i = 0; i < 20; ++i) look_out.posted(1, second_ns + i * 60 * millisecond_ns);
  EXPECT_FALSE(look_out.begin(look_out.next() + second_ns));
  EXPECT_EQ(look_out.next(), never);
}

}  // namespace
}  // namespace offpath::channel
