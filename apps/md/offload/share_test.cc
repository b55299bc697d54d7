// Forces that host and coworker compute together, and the share of each.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "md/files/temporary_file.h"
#include "md/neighbours/small_box.h"
#include "md/offload/mortal_coworker.h"
#include "md/offload/share_balance.h"
#include "md/ranks/thread_ranks.h"
#include "md/test_metal.h"

namespace md {
namespace {

Settings shared_box(double share, std::int64_t interval = 5) {
  Settings settings = small_box(Offload::share, interval);
  settings.share = share;
  return settings;
}

// With lists of the same blocks, made by the host alone.
Settings with_threads(Settings settings, int threads) {
  settings.offload = Offload::none;
  settings.threads = threads;
  return settings;
}

bool same_bits(const Array<double>& one, const Array<double>& other, std::size_t count) {
  return one.size() >= count && other.size() >= count &&
         std::memcmp(one.data(), other.data(), count * sizeof(double)) == 0;
}

// Positions, velocities and forces, and the sums of pairs.
void expect_same_bits(Simulation& found, Simulation& expected) {
  const Thermo one = found.thermo(), other = expected.thermo();
  EXPECT_DOUBLE_EQ(one.energy, other.energy);  // the coworker adds up the sums of its blocks first
  EXPECT_DOUBLE_EQ(one.pressure, other.pressure);
  ASSERT_EQ(found.atoms().own, expected.atoms().own);
  const std::size_t count = values * expected.atoms().own;
  EXPECT_TRUE(same_bits(found.atoms().x, expected.atoms().x, count));
  EXPECT_TRUE(same_bits(found.atoms().v, expected.atoms().v, count));
  EXPECT_TRUE(same_bits(found.atoms().f, expected.atoms().f, count));
}

struct Form {
  int threads, agent_threads, together;
  bool half;
  Precision precision;
};

class SharedForms : public testing::TestWithParam<Form> {};
INSTANTIATE_TEST_SUITE_P(Forms, SharedForms,
                         testing::Values(Form{1, 1, 2, true, Precision::whole}, Form{1, 1, 2, false, Precision::whole},
                                         Form{2, 2, 4, true, Precision::whole}, Form{1, 1, 2, true, Precision::mixed}));

TEST_P(SharedForms, HaveTheBitsOfAHostWithTheSameBlocks) {
  Settings settings = shared_box(0.5);
  settings.threads = GetParam().threads;
  settings.agent_threads = GetParam().agent_threads;
  settings.half = GetParam().half;
  settings.lists = Lists::pairs;
  settings.precision = GetParam().precision;
  OneRank ranks;
  Simulation found(settings, ranks, make_local_coworker(Simulation::shape_of(settings)));
  Simulation expected(with_threads(settings, GetParam().together), ranks);
  found.start();
  expected.start();
  for (int step = 0; step < 60; ++step) {
    if (step % 7 == 0) found.expect_thermo();
    found.step();
    expected.step();
  }
  EXPECT_EQ(found.share(), 0.5);
  EXPECT_GE(found.forces_by_coworker(), 60);
  expect_same_bits(found, expected);
}

TEST(SharedForces, MissNothingWithAnyShare) {
  for (const double share : {0.004, 0.1, 0.33, 0.9, 0.0}) {
    for (const Trigger trigger : {Trigger::interval, Trigger::displacement}) {
      Settings settings = shared_box(share, 1);
      settings.trigger = trigger;
      expect_near(after(200, settings), after(200, small_box(Offload::none)));
    }
  }
}

// The host makes the lists of the coworker's atoms from the positions of the latest sort, and computes their forces.
TEST(SharedForces, OfACoworkerThatDiesAreThoseItWouldHaveComputed) {
  for (const Dies when : {Dies::taking, Dies::beginning_share}) {
    for (const int last : {0, 1, 8, 13}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(when)) + " after " + std::to_string(last));
      OneRank ranks;
      const Settings settings = shared_box(0.5);
      CoworkerLife life{.answers_left = last, .when = when};
      Simulation found(settings, ranks, std::make_unique<MortalCoworker>(life));
      Simulation expected(with_threads(settings, 2), ranks);
      found.start();
      expected.start();
      // Until new lists are made; of those that the host makes alone, all atoms are one block.
      while (found.coworker_lost().empty()) {
        ASSERT_LT(found.steps_done(), 20);
        found.step();
        expected.step();
      }
      if (found.list().blocks.size() == 2) expect_same_bits(found, expected);
      EXPECT_EQ(found.coworker_lost(), "it has died");
      while (found.steps_done() < 200) found.step();
      EXPECT_EQ(found.mode(), Offload::none);
      EXPECT_FALSE(found.has_coworker());
      expect_near(found.thermo(), after(200, small_box(Offload::none)));
    }
  }
}

TEST(SharedForces, AreRefusedForWhatTheCoworkerCannotCompute) {
  OneRank ranks;
  const TemporaryFile table(funcfl());
  Settings metal = shared_box(0.5);
  metal.potential = Potential::eam;
  metal.units = metal_units;
  metal.potential_file = table.path();
  EXPECT_NE(refusal_of([&] { Simulation(metal, ranks, make_local_coworker()); }).find("use --offload list"),
            std::string::npos);
  Settings clusters = shared_box(0.5);
  clusters.lists = Lists::clusters;
  EXPECT_NE(refusal_of([&] { Simulation(clusters, ranks, make_local_coworker()); }).find("--offload needs --lists"),
            std::string::npos);
}

class SharedRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Counts, SharedRanks, testing::Values(2, 4));

TEST_P(SharedRanks, HaveTheBitsOfHostsWithTheSameBlocks) {
  ThreadRanks::run(GetParam(), [](Ranks& ranks) {
    const Settings settings = shared_box(0.5);
    Simulation found(settings, ranks, make_local_coworker());
    Simulation expected(with_threads(settings, 2), ranks);
    found.start();
    expected.start();
    for (int step = 0; step < 100; ++step) {
      found.step();
      expected.step();
    }
    EXPECT_GE(found.forces_by_coworker(), 100);
    expect_same_bits(found, expected);
  });
}

TEST_P(SharedRanks, ContinueWithoutWhereOneCoworkerDies) {
  const Thermo expected = after(200, small_box(Offload::none));
  ThreadRanks::run(GetParam(), [&](Ranks& ranks) {
    const bool dies = ranks.rank() == ranks.count() - 1;
    CoworkerLife life{.answers_left = 33};
    Simulation simulation(shared_box(0.3, 1), ranks,
                          dies ? std::make_unique<MortalCoworker>(life) : make_local_coworker());
    simulation.start();
    for (int step = 0; step < 200; ++step) simulation.step();
    expect_near(simulation.thermo(), expected);
    EXPECT_EQ(simulation.mode(), Offload::none);
    EXPECT_EQ(simulation.coworker_lost(), dies ? "it has died" : "another rank has lost its own");
  });
}

// A host and a coworker that need so many seconds for all atoms, and what does not depend on the share.
struct Speeds {
  double host_s, coworker_s, fixed_s;
};

class ShareBalanceTest : public testing::Test {
 protected:
  // Steps with `share` until the next lists, which are 8 steps away. Returns their mean time.
  template <class Slowness>
  double steps_with(std::size_t share, const Speeds& speeds, const Slowness& slowness) {
    double sum = 0;
    const double part = static_cast<double>(share) / static_cast<double>(ShareBalance::units);
    for (int step = 0; step < 8; ++step) {
      ShareBalance::Step one;
      const double computed_s = part * speeds.coworker_s * slowness();
      one.own_s = (1 - part) * speeds.host_s;
      one.coworker = {0.6 * speeds.fixed_s, computed_s};
      one.waited = computed_s + speeds.fixed_s > one.own_s;
      one.there_s = std::max(one.own_s, computed_s + speeds.fixed_s);
      balance_.note(one);
      sum += share == 0 ? speeds.host_s : one.there_s;
    }
    return sum / 8;
  }
  ShareBalance balance_{0};
};

TEST_F(ShareBalanceTest, BothNeedTheSameTime) {
  for (const Speeds& speeds : {Speeds{10, 10, 0}, Speeds{10, 10, 2}, Speeds{10, 50, 1}, Speeds{10, 3, 0.5}}) {
    balance_ = ShareBalance(0);
    std::size_t share = 0;
    for (int lists = 0; lists < 30; ++lists) {
      share = balance_.next();
      steps_with(share, speeds, [] { return 1.0; });
    }
    const double right = (speeds.host_s - speeds.fixed_s) / (speeds.host_s + speeds.coworker_s);
    EXPECT_NEAR(static_cast<double>(share) / ShareBalance::units, right, 0.012) << speeds.coworker_s;
  }
}

TEST_F(ShareBalanceTest, FollowsACoworkerThatGetsSlowerAndFaster) {
  std::size_t share = 0;
  for (const double coworker_s : {10.0, 40.0, 10.0}) {
    const Speeds speeds{10, coworker_s, 1};
    for (int lists = 0; lists < 30; ++lists) {
      share = balance_.next();
      steps_with(share, speeds, [] { return 1.0; });
    }
    EXPECT_NEAR(static_cast<double>(share) / ShareBalance::units, 9 / (10 + coworker_s), 0.012);
  }
}

// One that has slices of a core: what fits into a slice takes no longer than on a whole one.
TEST_F(ShareBalanceTest, GrowsStepByStepToTheShareOfACoworkerInSlices) {
  double sum = 0;
  for (int lists = 0; lists < 8; ++lists) {
    const std::size_t share = balance_.next();
    const double part = static_cast<double>(share) / static_cast<double>(ShareBalance::units);
    EXPECT_LE(part, 0.25) << lists;
    sum += steps_with(share, {10, 10, 0}, [&] { return part * 10 < 1 ? 1.0 : 5.0; });
  }
  EXPECT_LT(sum / 8, 10);
}

// One that is stopped in one step of five: the host does not give it so much that it waits in most steps.
TEST_F(ShareBalanceTest, AnUnsteadyCoworkerCostsNothing) {
  std::mt19937 random(7);
  const Speeds speeds{10, 50, 1};
  const auto slowness = [&] { return random() % 5 == 0 ? 4.0 : 1.0; };
  double sum = 0;
  for (int lists = 0; lists < 200; ++lists) sum += steps_with(balance_.next(), speeds, slowness);
  EXPECT_LT(sum / 200, 10);
}

TEST_F(ShareBalanceTest, ATooSlowCoworkerIsLeftAloneAndTriedAgain) {
  const Speeds slow{10, 5000, 1};
  int alone = 0;
  for (int lists = 0; lists < 400; ++lists) {
    const std::size_t share = balance_.next();
    alone += share == 0;
    steps_with(share, slow, [] { return 1.0; });
  }
  EXPECT_GT(alone, 390);
  EXPECT_LT(alone, 400);
  // It has become faster.
  std::size_t share = 0;
  for (int lists = 0; lists < 1000; ++lists) {
    share = balance_.next();
    steps_with(share, {10, 10, 1}, [] { return 1.0; });
  }
  EXPECT_GT(share, ShareBalance::units / 3);
}

TEST_F(ShareBalanceTest, AFixedShareStays) {
  balance_ = ShareBalance(0.25);
  for (int lists = 0; lists < 5; ++lists) {
    EXPECT_EQ(balance_.next(), ShareBalance::units / 4);
    steps_with(balance_.next(), {10, 5000, 1}, [] { return 1.0; });
  }
}

}  // namespace
}  // namespace md
