// Modes with a coworker, which here is this process itself: what they compute, changes between them, and what auto chooses.
#include <gtest/gtest.h>

#include <cstdio>
#include <optional>

#include "md/auto_offload.h"
#include "md/small_box.h"

namespace md {
namespace {

Thermo exact_after(int steps) { return after(steps, small_box(Offload::none)); }

TEST(Offload, ListsMadeElsewhereMissNothing) {
  OneRank ranks;
  Simulation simulation(small_box(Offload::list), ranks, make_local_coworker());
  simulation.start();
  for (int step = 0; step < 400; ++step) simulation.step();
  expect_near(simulation.thermo(), exact_after(400));
  EXPECT_GT(simulation.lists_by_coworker(), 40);
  EXPECT_LT(simulation.rebuilds(), 40);
}

TEST(Offload, ForcesOfAListOneStepOldMissNothingThatALargeSkinHas) {
  OneRank ranks;
  Simulation simulation(small_box(Offload::force), ranks, make_local_coworker());
  simulation.start();
  for (int step = 0; step < 400; ++step) simulation.step();
  expect_near(simulation.thermo(), exact_after(400));
  EXPECT_EQ(simulation.forces_by_coworker(), 400);
}

TEST(Offload, ModesChangeInTheMiddleOfARun) {
  OneRank ranks;
  Settings settings = small_box(Offload::automatic);
  settings.trigger = Trigger::displacement;
  Simulation simulation(settings, ranks, make_local_coworker());
  simulation.start();
  for (const Offload mode : {Offload::none, Offload::list, Offload::none, Offload::force, Offload::list}) {
    simulation.switch_to(mode);
    for (int step = 0; step < 60; ++step) simulation.step();
    EXPECT_EQ(simulation.mode(), mode);
  }
  expect_near(simulation.thermo(), exact_after(300));
}

TEST(Offload, ProbesLeaveNoTrace) {
  OneRank ranks;
  Simulation simulation(small_box(Offload::automatic), ranks, make_local_coworker());
  simulation.start();
  for (int step = 0; step < 100; ++step) {
    simulation.begin_probe(step % 2 == 0 ? Offload::force : Offload::list);
    simulation.step();
    CoworkerTimes times;
    EXPECT_TRUE(simulation.probe_over(times));
  }
  expect_near(simulation.thermo(), exact_after(100));
}

// Steps take what `seconds_in` says of each mode.
template <class Seconds>
Offload chosen(Simulation& simulation, AutoOffload& automatic, int steps, Seconds seconds_in) {
  for (int step = 0; step < steps; ++step) {
    const Offload mode = simulation.mode();
    simulation.step();
    automatic.step_done(seconds_in(mode));
  }
  return simulation.mode();
}

class AutoOffloadTest : public testing::Test {
 protected:
  AutoOffloadTest() : simulation_(small_box(Offload::automatic), ranks_, make_local_coworker()) {
    simulation_.start();
    automatic_.emplace(simulation_, ranks_);
  }
  OneRank ranks_;
  Simulation simulation_;
  std::optional<AutoOffload> automatic_;
};

TEST_F(AutoOffloadTest, KeepsWhatIsFasterAsTried) {
  EXPECT_NE(chosen(simulation_, *automatic_, 1500, [](Offload) { return 1e-9; }), Offload::none);
}

// In one of the two runs the first that is tried is the slower one, though faster than the host alone.
TEST(AutoOffload, KeepsTheFasterOfTwoThatAreFaster) {
  int compared = 0;
  for (const Offload faster : {Offload::force, Offload::list}) {
    OneRank ranks;
    Simulation simulation(small_box(Offload::automatic), ranks, make_local_coworker());
    simulation.start();
    AutoOffload automatic(simulation, ranks);
    const Offload kept = chosen(simulation, automatic, 1500, [&](Offload mode) {
      double alone_ms = 0;
      if (std::sscanf(automatic.verdict().c_str(), "%*s (ms a step: alone %lf", &alone_ms) != 1) return 1e-3;
      return 1e-3 * alone_ms * (mode == Offload::none ? 1 : mode == faster ? 0.90 : 0.95);
    });
    const std::string verdict = automatic.verdict();
    const std::size_t first = verdict.find(" tried");
    if (verdict.find(" tried", first + 1) == std::string::npos) continue;  // one of the two was not predicted to be worth it
    ++compared;
    EXPECT_EQ(kept, faster) << verdict;
  }
  EXPECT_GT(compared, 0);
}

TEST_F(AutoOffloadTest, DoesWithoutWhatIsSlowerAsTried) {
  EXPECT_EQ(chosen(simulation_, *automatic_, 300, [](Offload mode) { return mode == Offload::none ? 1e-3 : 10.0; }), Offload::none);
  EXPECT_NE(automatic_->verdict().find("tried"), std::string::npos) << automatic_->verdict();
}

TEST_F(AutoOffloadTest, GivesUpWhatGetsSlowerLater) {
  ASSERT_NE(chosen(simulation_, *automatic_, 1500, [](Offload) { return 1e-9; }), Offload::none);
  EXPECT_EQ(chosen(simulation_, *automatic_, 200, [](Offload) { return 10.0; }), Offload::none);
  EXPECT_NE(automatic_->verdict().find("later"), std::string::npos) << automatic_->verdict();
}

TEST(AutoOffload, IsNoneWithoutAnAgent) {
  OneRank ranks;
  Simulation simulation(small_box(Offload::automatic), ranks);
  simulation.start();
  AutoOffload automatic(simulation, ranks);
  EXPECT_EQ(chosen(simulation, automatic, 50, [](Offload) { return 1e-3; }), Offload::none);
  EXPECT_EQ(automatic.verdict(), "none (there is no agent)");
}

}  // namespace
}  // namespace md
