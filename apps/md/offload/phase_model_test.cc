#include "md/offload/phase_model.h"

#include <gtest/gtest.h>

#include "md/offload/tdr.h"

namespace md {
namespace {

HostPhases host() {
  HostPhases phases;
  phases.force = 10;
  phases.integrate = 1;
  phases.communicate = phases.communicate_wide = 1;
  phases.rebuild = 30;
  phases.rebuild_wide = 40;
  phases.list_steps = 10;
  phases.bins_steps = 30;
  return phases;
}

TEST(PhaseModel, AStepOfTheHostAlone) {
  EXPECT_DOUBLE_EQ(seconds_without(host(), 1), 10 + 1 + 30);
  EXPECT_DOUBLE_EQ(seconds_without(host(), 10), 12 + 2.9);
}

TEST(PhaseModel, FormulaThreeHidesTheShorterOfTheTwo) {
  EXPECT_DOUBLE_EQ(seconds_with_forces_elsewhere(host(), {20, 0}, 1), 41 - 10) << "forces behind the rebuild";
  EXPECT_DOUBLE_EQ(seconds_with_forces_elsewhere(host(), {35, 0}, 1), 41 - 5) << "the agent is waited for";
  EXPECT_DOUBLE_EQ(seconds_with_forces_elsewhere(host(), {100, 0}, 1), 41 + 60)
      << "a slow agent makes it worse than none";
  EXPECT_DOUBLE_EQ(seconds_with_forces_elsewhere(host(), {20, 0}, 10), seconds_without(host(), 10) - 1);
}

TEST(PhaseModel, ListsCostNothingWhileTheAgentMakesThemInTime) {
  EXPECT_DOUBLE_EQ(seconds_with_lists_elsewhere(host(), {0, 24}), 12 + 39.0 / 30);
  EXPECT_DOUBLE_EQ(seconds_with_lists_elsewhere(host(), {0, 60}), 12 + 39.0 / 30)
      << "asked for after 5 steps, there after 10";
}

TEST(PhaseModel, AListThatTakesLongerThanOneHoldsIsWaitedFor) {
  // Requested after 10 steps, ready after 20, but valid for 10: every 10 steps the host waits for 10 more.
  EXPECT_DOUBLE_EQ(seconds_with_lists_elsewhere(host(), {0, 120}), 24 + 39.0 / 30);
  EXPECT_GT(seconds_with_lists_elsewhere(host(), {0, 600}), seconds_without(host(), 1));
}

TEST(TemperatureDivergence, IsTheSlopeOfTheRegression) {
  EXPECT_DOUBLE_EQ(slope_of({1, 3, 5, 7}), 2);
  EXPECT_DOUBLE_EQ(slope_of({0, 1, 0, 1}), 0.2);
  EXPECT_DOUBLE_EQ(slope_of({4, 4, 4}), 0);
}

}  // namespace
}  // namespace md
