// The published figures of miniMD's Lennard-Jones problem, to the digits given.
#include <gtest/gtest.h>

#include <cmath>

#include "md/simulation.h"

namespace md {
namespace {

Settings small_box() {
  Settings settings;
  settings.cells = {10, 10, 10};
  return settings;
}

std::string row_after(Simulation& simulation, std::int64_t step) {
  while (simulation.steps_done() < step) {
    if (simulation.steps_done() + 1 == step) simulation.expect_thermo();
    simulation.step();
  }
  return row_of(step, simulation.thermo(), 0);
}

std::vector<std::string> rows_of(const Settings& settings) {
  OneRank ranks;
  Simulation simulation(settings, ranks);
  simulation.start();
  return {row_after(simulation, 0), row_after(simulation, 100), row_after(simulation, 1000)};
}

const std::vector<std::string> published{"0 1.440000e+00 -6.773368e+00 -5.019973e+00 0.000",
                                         "100 7.208599e-01 -5.701261e+00 5.236926e-01 0.000",
                                         "1000 6.980069e-01 -5.668184e+00 7.374521e-01 0.000"};

TEST(Anchor, HalfLists) { EXPECT_EQ(rows_of(small_box()), published); }

TEST(Anchor, FullLists) {
  Settings settings = small_box();
  settings.half = false;
  EXPECT_EQ(rows_of(settings), published);
}

TEST(Anchor, EveryInstructionSet) {
  std::size_t count = 0;
  const Kernels* const* available = available_kernels(count);
  ASSERT_GE(count, 1U);
  for (std::size_t k = 0; k < count; ++k) {
    Settings settings = small_box();
    settings.kernels = available[k]->name;
    EXPECT_EQ(rows_of(settings), published) << settings.kernels;
  }
}

TEST(Anchor, SeveralThreads) {
  Settings settings = small_box();
  settings.threads = 3;
  EXPECT_EQ(rows_of(settings), published);
}

TEST(Anchor, ListsOfClusters) {
  std::size_t count = 0;
  const Kernels* const* available = available_kernels(count);
  for (std::size_t k = 0; k < count; ++k) {
    for (const int threads : {1, 3}) {
      Settings settings = small_box();
      settings.lists = Lists::clusters;
      settings.kernels = available[k]->name;
      settings.threads = threads;
      EXPECT_EQ(rows_of(settings), published) << settings.kernels << " " << threads;
    }
  }
}

// Results with lists built at every step, which miss nothing. The interval of 20 misses pairs at the edge of the
// cut-off, which shows from the fifth digit on.
const Thermo exact_at_1000{6.983291e-01, -5.667165e+00, 7.655325e-01, 0};

void expect_exact(Simulation& simulation) {
  while (simulation.steps_done() < 1000) simulation.step();
  const Thermo found = simulation.thermo();
  EXPECT_NEAR(found.temperature, exact_at_1000.temperature, 2e-7);
  EXPECT_NEAR(found.energy, exact_at_1000.energy, 2e-6);
  EXPECT_NEAR(found.pressure, exact_at_1000.pressure, 2e-7);
}

TEST(Anchor, NewListsAtEveryStep) {
  Settings settings = small_box();
  settings.interval = 1;
  OneRank ranks;
  Simulation simulation(settings, ranks);
  simulation.start();
  expect_exact(simulation);
}

TEST(Anchor, NewListsByDisplacement) {
  Settings settings = small_box();
  settings.interval = 1;
  settings.trigger = Trigger::displacement;
  OneRank ranks;
  Simulation simulation(settings, ranks);
  simulation.start();
  expect_exact(simulation);
  EXPECT_LT(simulation.rebuilds(), 200);
  EXPECT_GT(simulation.rebuilds(), 40);
}

TEST(Anchor, LargerBoxesBeginWithTheSameTemperatureAndEnergy) {
  for (const int cells : {4, 5, 17}) {  // in the smallest an atom is next to copies of itself
    Settings settings;
    settings.cells = {cells, cells, cells};
    OneRank ranks;
    Simulation simulation(settings, ranks);
    simulation.start();
    const std::string row = row_of(0, simulation.thermo(), 0);
    EXPECT_EQ(row.substr(0, 30), "0 1.440000e+00 -6.773368e+00 -") << cells;
  }
}

TEST(Anchor, ASingleCellIsItsOwnNeighbourManyTimes) {
  Settings settings;
  settings.cells = {1, 1, 1};
  OneRank ranks;
  Simulation simulation(settings, ranks);
  simulation.start();
  EXPECT_NEAR(simulation.thermo().energy, -6.773368, 1e-6);  // the same lattice for all sizes
}

double drift_of(Precision precision, Lists lists) {
  Settings settings = small_box();
  settings.precision = precision;
  settings.lists = lists;
  OneRank ranks;
  Simulation simulation(settings, ranks);
  simulation.start();
  const Thermo begin = simulation.thermo();
  EXPECT_NEAR(begin.energy, -6.773368, 1e-5);
  for (int step = 0; step < 500; ++step) simulation.step();
  const Thermo end = simulation.thermo();
  return end.energy + end.kinetic - begin.energy - begin.kinetic;
}

// The potential's step at its cut-off makes the energy drift at any precision.
TEST(Anchor, MixedPrecisionDriftsNoFurtherThanTwiceAsFar) {
  const double whole = std::abs(drift_of(Precision::whole, Lists::pairs));
  for (const Lists lists : {Lists::pairs, Lists::clusters})
    EXPECT_LT(std::abs(drift_of(Precision::mixed, lists)), 2 * whole);
}

}  // namespace
}  // namespace md
