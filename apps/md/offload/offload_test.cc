// Modes with a coworker, which is this process: their results, changes between them, and the choice of auto.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>

#include "md/files/temporary_file.h"
#include "md/neighbours/small_box.h"
#include "md/offload/auto_offload.h"
#include "md/offload/mortal_coworker.h"
#include "md/test_metal.h"

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

TEST(Offload, AListThatDoesNotFitIsMadeByTheHostAndTheNextOneFits) {
  CoworkerLife life{.answers_left = std::numeric_limits<int>::max(), .lists_too_large = 3};
  OneRank ranks;
  Simulation simulation(small_box(Offload::list), ranks, std::make_unique<MortalCoworker>(life));
  simulation.start();
  for (int step = 0; step < 400; ++step) simulation.step();
  expect_near(simulation.thermo(), exact_after(400));
  EXPECT_EQ(life.lists_too_large, 0);
  EXPECT_EQ(simulation.coworker_lost(), "");
  EXPECT_GT(simulation.lists_by_coworker(), 40);
}

// A list that takes most of the time for which one serves: when atoms are sorted, none is waited for in vain.
TEST(Offload, EveryListThatIsRequestedIsUsed) {
  CoworkerLife life{.answers_left = std::numeric_limits<int>::max(), .looks_for_a_list = 3};
  OneRank ranks;
  Simulation simulation(small_box(Offload::list), ranks, std::make_unique<MortalCoworker>(life));
  simulation.start();
  for (int step = 0; step < 400; ++step) simulation.step();
  expect_near(simulation.thermo(), exact_after(400));
  EXPECT_GT(simulation.rebuilds(), 5);
  EXPECT_GT(life.lists_begun, 40);
  EXPECT_LE(life.lists_begun - simulation.lists_by_coworker(), 1) << "but for one that is under way";
}

TEST(Offload, ForcesOfAListOneStepOldMissNothingThatALargeSkinHas) {
  OneRank ranks;
  Simulation simulation(small_box(Offload::force), ranks, make_local_coworker());
  simulation.start();
  for (int step = 0; step < 400; ++step) simulation.step();
  expect_near(simulation.thermo(), exact_after(400));
  EXPECT_EQ(simulation.forces_by_coworker(), 400);
}

// Several threads of host and coworker, and both precisions: the coworker's results equal the host's.
struct Shape {
  int threads, agent_threads;
  Precision precision;
};

class OffloadShapes : public testing::TestWithParam<Shape> {
 protected:
  static Settings settings(Offload mode) {
    Settings settings = small_box(mode);
    settings.threads = GetParam().threads;
    settings.agent_threads = GetParam().agent_threads;
    settings.precision = GetParam().precision;
    return settings;
  }
  // Pairs in single precision, added up in another order, give different digits.
  static double apart() { return GetParam().precision == Precision::mixed ? 3e-4 : 1e-8; }
};

INSTANTIATE_TEST_SUITE_P(Threads, OffloadShapes,
                         testing::Values(Shape{1, 3, Precision::whole}, Shape{3, 2, Precision::whole},
                                         Shape{1, 1, Precision::mixed}, Shape{2, 4, Precision::mixed}));

TEST_P(OffloadShapes, ListsAreThoseOfTheHost) {
  const Settings with = settings(Offload::list);
  OneRank ranks;
  Simulation simulation(with, ranks, make_local_coworker(Simulation::shape_of(with)));
  simulation.start();
  for (int step = 0; step < 60; ++step) simulation.step();
  EXPECT_GT(simulation.lists_by_coworker(), 6);
  EXPECT_EQ(simulation.list().blocks.size(), static_cast<std::size_t>(with.threads));
  const Thermo found = simulation.thermo(), expected = after(60, settings(Offload::none));
  EXPECT_NEAR(found.temperature, expected.temperature, apart());
  EXPECT_NEAR(found.energy, expected.energy, apart());
}

TEST_P(OffloadShapes, ForcesAreThoseOfTheHost) {
  const Settings with = settings(Offload::force);
  OneRank ranks;
  Simulation simulation(with, ranks, make_local_coworker(Simulation::shape_of(with)));
  simulation.start();
  for (int step = 0; step < 60; ++step) simulation.step();
  EXPECT_EQ(simulation.forces_by_coworker(), 60);
  const Thermo found = simulation.thermo(), expected = after(60, settings(Offload::none));
  EXPECT_NEAR(found.temperature, expected.temperature, apart());
  EXPECT_NEAR(found.energy, expected.energy, apart());
}

// With the same list, forces elsewhere have the same bits as the host's; those of several threads differ by the order
// of sums.
TEST(Offload, ForcesElsewhereAreThoseOfTheKernels) {
  OneRank ranks;
  Simulation simulation(small_box(Offload::none, 5), ranks);
  simulation.start();
  for (int step = 0; step < 50; ++step) simulation.step();
  const Atoms& atoms = simulation.atoms();
  const PairList list = simulation.list().blocks[0].view();
  const Kernels& kernels = choose_kernels("auto");
  Array<float> single;
  single.resize(values * atoms.all());
  for (std::size_t n = 0; n < single.size(); ++n) single[n] = static_cast<float>(atoms.x[n]);
  Array<double> expected, found;
  expected.resize(values * atoms.own);
  found.resize(values * atoms.own);
  for (const std::uint32_t mixed : {0U, 1U}) {
    if (mixed == 0)
      kernels.lj_with_sums({}, list, atoms.x.data(), expected.data());
    else
      kernels.lj_mixed_with_sums({}, list, single.data(), expected.data());
    for (const std::uint32_t threads : {1U, 3U}) {
      ForcesElsewhere().compute({atoms.own, atoms.all(), {}, 1, threads, mixed, 0}, {&list, 1}, atoms.x.data(),
                                found.data());
      const double apart = threads == 1 ? 0 : 1e-10;
      for (std::size_t n = 0; n < found.size(); ++n) ASSERT_NEAR(found[n], expected[n], apart) << mixed << threads << n;
    }
  }
}

TEST(Offload, SeveralTypesAreRefusedForForcesAndListsWork) {
  const TemporaryFile data(
      "x\n\n3 atoms\n2 atom types\n0 9 xlo xhi\n0 9 ylo yhi\n0 9 zlo zhi\n\n"
      "Masses\n\n1 1\n2 1\n\nPair Coeffs\n\n1 1 1\n2 0.5 1.1\n\nAtoms\n\n1 1 1 1 1\n2 2 2.1 1 1\n3 1 1 2.1 1\n");
  Settings settings = small_box(Offload::force);
  settings.data_file = data.path();
  OneRank ranks;
  EXPECT_NE(refusal_of([&] { Simulation(settings, ranks, make_local_coworker()); }).find("use --offload list"),
            std::string::npos);
  settings.offload = Offload::none;
  settings.precision = Precision::mixed;
  EXPECT_NE(refusal_of([&] { Simulation(settings, ranks); }).find("--precision double"), std::string::npos);
  settings.precision = Precision::whole;
  const Thermo expected = after(100, settings);
  settings.offload = Offload::list;
  expect_near(after(100, settings), expected);
}

class OffloadedMetal : public testing::Test {
 protected:
  [[nodiscard]] Settings settings(Offload mode) const {
    Settings settings = small_box(mode);
    settings.cells = {5, 5, 5};
    settings.potential = Potential::eam;
    settings.units = metal_units;
    settings.potential_file = table_.path();
    settings.density = 4 / (3.6 * 3.6 * 3.6);
    settings.temperature = 900;
    settings.skin = 0.5;
    return settings;
  }
  TemporaryFile table_{funcfl()};
};

TEST_F(OffloadedMetal, ListsDoNotDependOnThePotential) {
  OneRank ranks;
  Simulation simulation(settings(Offload::list), ranks, make_local_coworker());
  simulation.start();
  for (int step = 0; step < 200; ++step) simulation.step();
  EXPECT_GT(simulation.lists_by_coworker(), 5);
  const Thermo found = simulation.thermo(), expected = after(200, settings(Offload::none));
  EXPECT_NEAR(found.temperature / expected.temperature, 1, 1e-8);
  EXPECT_NEAR(found.energy, expected.energy, 1e-8);
}

TEST_F(OffloadedMetal, ForcesElsewhereAreRefusedWithTheWayOut) {
  OneRank ranks;
  const std::string refusal = refusal_of([&] { Simulation(settings(Offload::force), ranks, make_local_coworker()); });
  EXPECT_NE(refusal.find("use --offload list"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("only with --exchange agent"), std::string::npos) << refusal;
  // Two elements of the same tables.
  std::string two = "1\n2\n3\n2 A B\n 5 0.2 301 0.01 3.0\n";
  const auto values = [&](int count, double each) {
    for (int k = 0; k < count; ++k) two += std::to_string(each) + "\n";
  };
  for (int element = 0; element < 2; ++element) {
    two += "1 60.0 2.5 FCC\n";
    values(5, -1);
    values(301, 0.1);
  }
  values(3 * 301, 0);
  table_.write(two);
  Settings several = settings(Offload::force);
  several.exchange = Exchange::agent;
  EXPECT_EQ(refusal_of([&] { Simulation(several, ranks, make_local_coworker({}, &ranks)); }),
            "--offload force computes EAM of one element; for several use --offload list, or auto");
}

TEST_F(OffloadedMetal, AutoTriesListsAlone) {
  OneRank ranks;
  Simulation simulation(settings(Offload::automatic), ranks, make_local_coworker());
  simulation.start();
  AutoOffload automatic(simulation, ranks);
  for (int step = 0; step < 200; ++step) {
    simulation.step();
    automatic.step_done(1e-9);
  }
  EXPECT_NE(automatic.verdict().find("list"), std::string::npos) << automatic.verdict();
  EXPECT_EQ(automatic.verdict().find("force "), automatic.verdict().find("force is not a candidate: EAM"));
  EXPECT_NE(automatic.verdict().find("force is not a candidate: EAM"), std::string::npos) << automatic.verdict();
}

TEST(AutoOffload, SaysWhyForcesAreNoCandidate) {
  for (const Trigger trigger : {Trigger::displacement, Trigger::interval}) {
    OneRank ranks;
    Settings settings = small_box(Offload::automatic);
    settings.trigger = trigger;
    Simulation simulation(settings, ranks, make_local_coworker());
    simulation.start();
    AutoOffload automatic(simulation, ranks);
    for (int step = 0; step < 100; ++step) {
      simulation.step();
      automatic.step_done(1e-9);
    }
    const std::string said = automatic.verdict();
    const bool none = said.find("; force is not a candidate: a list would serve a step longer") != std::string::npos;
    EXPECT_EQ(none, trigger == Trigger::displacement) << said;
  }
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

// Steps take the time that `seconds_in` gives for each mode.
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

// In one of the two runs the mode tried first is the slower one, though faster than the host alone.
TEST(AutoOffload, KeepsTheFasterOfTwoThatAreFaster) {
  int compared = 0;
  for (const Offload faster : {Offload::force, Offload::list}) {
    OneRank ranks;
    Simulation simulation(small_box(Offload::automatic), ranks, make_local_coworker());
    simulation.start();
    AutoOffload automatic(simulation, ranks);
    const Offload kept = chosen(simulation, automatic, 1500, [&](Offload mode) {
      double alone_ms = 0;
      if (std::sscanf(automatic.verdict().c_str(), "%*s (ms per step: alone %lf", &alone_ms) != 1) return 1e-3;
      return 1e-3 * alone_ms * (mode == Offload::none ? 1 : mode == faster ? 0.90 : 0.95);
    });
    const std::string verdict = automatic.verdict();
    const std::size_t first = verdict.find(" tried");
    if (verdict.find(" tried", first + 1) == std::string::npos)
      continue;  // one of the two was predicted not to be worth it
    ++compared;
    EXPECT_EQ(kept, faster) << verdict;
  }
  EXPECT_GT(compared, 0);
}

TEST_F(AutoOffloadTest, DoesWithoutWhatIsSlowerAsTried) {
  EXPECT_EQ(chosen(simulation_, *automatic_, 300, [](Offload mode) { return mode == Offload::none ? 1e-3 : 10.0; }),
            Offload::none);
  EXPECT_NE(automatic_->verdict().find("tried"), std::string::npos) << automatic_->verdict();
}

// The warm-up is included, also for forces elsewhere, whose lists are twenty steps apart.
TEST(AutoOffload, EndsATrialAsSoonAsItHasLostAFewSteps) {
  for (const std::int64_t interval : {1, 20}) {
    OneRank ranks;
    Simulation simulation(small_box(Offload::automatic, interval), ranks, make_local_coworker());
    simulation.start();
    AutoOffload automatic(simulation, ranks);
    int tried = 0;
    for (int step = 0; step < 2000; ++step) {
      const Offload mode = simulation.mode();
      double alone_ms = 1;
      static_cast<void>(std::sscanf(automatic.verdict().c_str(), "%*s (ms per step: alone %lf", &alone_ms));
      simulation.step();
      tried += mode != Offload::none;
      automatic.step_done(1e-3 * alone_ms * (mode == Offload::none ? 1 : 1.6));
    }
    EXPECT_EQ(simulation.mode(), Offload::none);
    EXPECT_LE(tried, 2 * 15) << automatic.verdict();  // of two modes at most
    if (interval == 1) {
      EXPECT_GT(tried, 0) << automatic.verdict();
    }
  }
}

TEST_F(AutoOffloadTest, AHiccupOfTheMachineEndsNoTrial) {
  int tried = 0;
  for (int step = 0; step < 1500 && automatic_->verdict().find("tried") == std::string::npos; ++step) {
    tried += simulation_.mode() != Offload::none;
    simulation_.step();
    automatic_->step_done(tried == 12 ? 1.0 : 1e-9);
  }
  EXPECT_GE(tried, 18) << automatic_->verdict();
}

// The gain over the remaining steps does not pay for a trial, however fast the mode is.
TEST(AutoOffload, TriesNothingShortlyBeforeTheEnd) {
  int not_worth_it = 0;
  for (std::int64_t steps = 4; steps <= 44; steps += 2) {
    Settings settings = small_box(Offload::automatic);
    settings.steps = steps;
    OneRank ranks;
    Simulation simulation(settings, ranks, make_local_coworker());
    simulation.start();
    AutoOffload automatic(simulation, ranks);
    std::int64_t chosen_after = 0;
    bool tried = false;
    for (int step = 0; step < 60 && chosen_after == 0; ++step) {
      simulation.step();
      tried = simulation.mode() != Offload::none;
      if (tried) chosen_after = simulation.steps_done() - 1;
      automatic.step_done(1e-3);
      if (!tried && automatic.settled()) chosen_after = simulation.steps_done();
    }
    const std::int64_t left = steps - chosen_after;
    if (tried) {
      EXPECT_GT(left, 8) << automatic.verdict();
    }
    not_worth_it += !tried && left > 0;
  }
  EXPECT_GT(not_worth_it, 0);
}

TEST_F(AutoOffloadTest, GivesUpWhatGetsSlowerLater) {
  ASSERT_NE(chosen(simulation_, *automatic_, 1500, [](Offload) { return 1e-9; }), Offload::none);
  const auto seconds_in = [](Offload mode) { return mode == Offload::none ? 1.0 : 10.0; };
  EXPECT_EQ(chosen(simulation_, *automatic_, 200, seconds_in), Offload::none);
  EXPECT_NE(automatic_->verdict().find("later"), std::string::npos) << automatic_->verdict();
}

TEST_F(AutoOffloadTest, KeepsWhatGetsSlowerWhereTheHostAloneDoesAsWell) {
  const Offload kept = chosen(simulation_, *automatic_, 1500, [](Offload) { return 1e-9; });
  ASSERT_NE(kept, Offload::none);
  const auto seconds_in = [](Offload mode) { return mode == Offload::none ? 15.0 : 10.0; };
  EXPECT_EQ(chosen(simulation_, *automatic_, 400, seconds_in), kept);
  EXPECT_NE(automatic_->verdict().find("later"), std::string::npos) << automatic_->verdict();
}

// Steps with lists elsewhere are fast, except for the rare ones that sort: these count as well.
TEST_F(AutoOffloadTest, DoesNotTakeATrialWithoutASortForTheWhole) {
  chosen(simulation_, *automatic_, 1500, [](Offload mode) { return mode == Offload::list ? 1e-9 : 1.0; });
  double tried_ms = 0;
  const std::string verdict = automatic_->verdict();
  const std::size_t at = verdict.rfind(", list ");
  if (at == std::string::npos || verdict.find("tried", at) == std::string::npos)
    GTEST_SKIP() << "was not predicted to be worth it: " << verdict;
  ASSERT_EQ(std::sscanf(verdict.c_str() + at, ", list %lf", &tried_ms), 1) << verdict;
  EXPECT_GT(tried_ms, 1e-5) << verdict;
}

// A host waits for its mode's coworker, but not longer than the limit.
TEST(AutoOffload, GoesOnAloneWhenTheCoworkerOfItsModeIsLost) {
  CoworkerLife life{.answers_left = std::numeric_limits<int>::max()};
  OneRank ranks;
  Simulation simulation(small_box(Offload::automatic), ranks, std::make_unique<MortalCoworker>(life));
  simulation.start();
  AutoOffload automatic(simulation, ranks);
  const auto seconds_in = [](Offload mode) { return mode == Offload::none ? 1e-3 : 1e-9; };
  for (int step = 0; step < 400 && simulation.mode() == Offload::none; ++step)
    chosen(simulation, automatic, 1, seconds_in);
  ASSERT_NE(simulation.mode(), Offload::none) << automatic.verdict();
  double alone_ms = 0;
  ASSERT_EQ(std::sscanf(automatic.verdict().c_str(), "%*s (ms per step: alone %lf", &alone_ms), 1)
      << automatic.verdict();
  // Twenty steps of the host alone, but at least the time of a hiccup.
  const double patience_s = std::max(0.2, 20e-3 * alone_ms);
  EXPECT_NEAR(life.patience_s, patience_s, 1e-3 * patience_s);
  EXPECT_EQ(simulation.coworker_lost(), "");
  life.answers_left = 0;
  EXPECT_EQ(chosen(simulation, automatic, 60, seconds_in), Offload::none);
  EXPECT_FALSE(simulation.has_coworker());
  EXPECT_EQ(simulation.coworker_lost(), "it has died");
  EXPECT_EQ(automatic.verdict().substr(0, 6), "none (") << automatic.verdict();
  expect_near(simulation.thermo(), exact_after(static_cast<int>(simulation.steps_done())));
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
