// Modes with a coworker on several ranks, which are threads here.
#include <gtest/gtest.h>

#include <atomic>
#include <limits>

#include "md/files/temporary_file.h"
#include "md/neighbours/small_box.h"
#include "md/offload/auto_offload.h"
#include "md/offload/mortal_coworker.h"
#include "md/ranks/thread_ranks.h"

namespace md {
namespace {

class OffloadRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Counts, OffloadRanks, testing::Values(2, 4, 8));

TEST_P(OffloadRanks, ForcesReachTheRankThatHasTheAtom) {
  const Thermo expected = after(300, small_box(Offload::force, 5));
  ThreadRanks::run(GetParam(), [&](Ranks& ranks) {
    Simulation simulation(small_box(Offload::force, 5), ranks, make_local_coworker());
    simulation.start();
    for (int step = 0; step < 300; ++step) simulation.step();
    expect_near(simulation.thermo(), expected);
    EXPECT_EQ(simulation.forces_by_coworker(), 60);
  });
}

// Ranks agree by maxima that no step waits for: blocking ones are left for the steps near the limit.
TEST_P(OffloadRanks, ListsMissNothingAndStepsDoNotWaitForAllRanks) {
  constexpr int steps = 300;
  const Thermo expected = after(steps, small_box(Offload::none));
  const ThreadRanks::Counts counts = ThreadRanks::run(GetParam(), [&](Ranks& ranks) {
    CoworkerLife life{.answers_left = std::numeric_limits<int>::max(), .lists_too_large = ranks.rank() == 1 ? 2 : 0};
    Simulation simulation(small_box(Offload::list), ranks, std::make_unique<MortalCoworker>(life));
    simulation.start();
    for (int step = 0; step < steps; ++step) simulation.step();
    expect_near(simulation.thermo(), expected);
    EXPECT_EQ(simulation.coworker_lost(), "");
    EXPECT_GT(simulation.lists_by_coworker(), 25);
    EXPECT_EQ(simulation.steps_too_late(), 0);
  });
  EXPECT_LT(counts.maxima, GetParam() * steps / 2);
  EXPECT_GT(counts.begun, GetParam() * steps / 2);
}

// An atom flies so deep into another that this one is beyond the skin a step later, without warning.
TEST(OffloadRanksGuard, AnAtomThatBecomesTooFastIsCounted) {
  const TemporaryFile data(
      "x\n\n4 atoms\n1 atom types\n0 12 xlo xhi\n0 12 ylo yhi\n0 12 zlo zhi\n\nAtoms\n\n1 1 2 2 2\n2 1 2 2 2.742\n"
      "3 1 9 9 9\n4 1 9 3 9\n\nVelocities\n\n1 0 0 0\n2 0 0 -36\n3 0 0 0\n4 0 0 0\n");
  Settings settings = small_box(Offload::list);
  settings.data_file = data.path();
  settings.skin = 1;
  std::atomic<std::int64_t> late{0};
  ThreadRanks::run(2, [&](Ranks& ranks) {
    Simulation simulation(settings, ranks, make_local_coworker());
    simulation.start();
    for (int step = 0; step < 2; ++step) simulation.step();
    late += simulation.steps_too_late();
  });
  EXPECT_GT(late, 0);
}

// With a skin that no atom leaves within an interval, it makes no difference who computes forces.
TEST_P(OffloadRanks, OneThatDiesIsDoneWithoutEverywhere) {
  for (const Offload mode : {Offload::force, Offload::list}) {
    const Settings settings = small_box(mode);
    const Thermo expected = after(200, small_box(Offload::none));
    ThreadRanks::run(GetParam(), [&](Ranks& ranks) {
      const int last = ranks.count() - 1;
      CoworkerLife life{.answers_left = 7};
      Simulation simulation(settings, ranks,
                            ranks.rank() == last ? std::make_unique<MortalCoworker>(life) : make_local_coworker());
      simulation.start();
      for (int step = 0; step < 200; ++step) simulation.step();
      expect_near(simulation.thermo(), expected);
      EXPECT_FALSE(simulation.has_coworker());
      EXPECT_EQ(simulation.mode(), Offload::none);
      EXPECT_EQ(simulation.coworker_lost(), ranks.rank() == last ? "it has died" : "another rank has lost its own");
      // Lists that other ranks had taken in that step were already used there.
      const std::int64_t done = simulation.forces_by_coworker() + simulation.lists_by_coworker();
      EXPECT_GE(done, 7);
      EXPECT_LE(done, mode == Offload::force || ranks.rank() == last ? 7 : 8);
    });
  }
}

// Lists of its own are in use when it dies, in some of these calls for that step still.
TEST(OffloadLost, ListsInUseOutliveTheirCoworker) {
  const Thermo expected = after(100, small_box(Offload::none));
  for (const Dies when : {Dies::taking, Dies::asked_whether_done, Dies::waiting_for_pull, Dies::beginning_list}) {
    for (const int count : {1, 2, 4}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(when)) + " on " + std::to_string(count));
      ThreadRanks::run(count, [&](Ranks& ranks) {
        CoworkerLife life{.answers_left = ranks.rank() == 0 ? 5 : std::numeric_limits<int>::max(), .when = when};
        Simulation simulation(small_box(Offload::list), ranks, std::make_unique<MortalCoworker>(life));
        simulation.start();
        for (int step = 0; step < 100; ++step) simulation.step();
        expect_near(simulation.thermo(), expected);
        EXPECT_FALSE(simulation.has_coworker());
        EXPECT_EQ(simulation.mode(), Offload::none);
        EXPECT_EQ(simulation.coworker_lost(), ranks.rank() == 0 ? "it has died" : "another rank has lost its own");
        EXPECT_GT(simulation.lists_by_coworker(), 0);
      });
    }
  }
}

TEST(AutoOffloadRanks, AllChooseAlike) {
  ThreadRanks::run(2, [](Ranks& ranks) {
    Simulation simulation(small_box(Offload::automatic, 5), ranks, make_local_coworker());
    simulation.start();
    AutoOffload automatic(simulation, ranks);
    for (int step = 0; step < 1500; ++step) {
      const double share = simulation.mode() == Offload::none ? 1 : simulation.mode() == Offload::force ? 0.3 : 0.5;
      simulation.step();
      // One rank finds little benefit in the agent.
      automatic.step_done(ranks.rank() == 0 ? 1e-6 * share : 1e-6);
    }
    EXPECT_NE(automatic.verdict().find("force"), std::string::npos) << automatic.verdict();
    double mode = static_cast<double>(simulation.mode());
    ranks.maximum({&mode, 1});
    EXPECT_EQ(static_cast<double>(simulation.mode()), mode);
  });
}

}  // namespace
}  // namespace md
