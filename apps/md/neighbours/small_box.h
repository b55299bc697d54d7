// A crystal of 2,048 atoms that tests melt, and its results.
#pragma once

#include <gtest/gtest.h>

#include "md/offload/local_coworker.h"
#include "md/simulation.h"

namespace md {

inline Settings small_box(Offload offload, std::int64_t interval = 1) {
  Settings settings;
  settings.cells = {8, 8, 8};
  settings.interval = interval;
  settings.offload = offload;
  settings.steps = 1'000'000;  // more than tests do: a run that ends soon tries nothing
  return settings;
}

// On one rank; offloaded work is done in this process.
inline Thermo after(int steps, const Settings& settings) {
  OneRank ranks;
  Simulation simulation(
      settings, ranks,
      settings.offload == Offload::none ? nullptr : make_local_coworker(Simulation::shape_of(settings)));
  simulation.start();
  for (int step = 0; step < steps; ++step) simulation.step();
  return simulation.thermo();
}

inline void expect_near(const Thermo& found, const Thermo& expected) {
  EXPECT_NEAR(found.temperature, expected.temperature, 1e-8);
  EXPECT_NEAR(found.energy, expected.energy, 1e-8);
  EXPECT_NEAR(found.pressure, expected.pressure, 1e-7);
}

}  // namespace md
