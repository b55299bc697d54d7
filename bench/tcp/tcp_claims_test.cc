// Which claims a simulation decides.
#include "tcp_claims.h"

#include <gtest/gtest.h>

namespace offpath::bench {
namespace {

TEST(Simulations, DecideWhatIsFurtherFromTheTargetThanTheyAreFromAMeasurement) {
  const std::vector<SimulationMiss> close{{1.05, "over the agent"}, {1.02, "in the kernel"}};
  EXPECT_EQ(why_undecided(1.2, 0.9, close), "");
  EXPECT_EQ(why_undecided(0.7, 0.9, close), "") << "a miss is decided, too";
  for (const double ratio : {0.87, 0.9, 0.94})
    EXPECT_EQ(why_undecided(ratio, 0.9, close),
              "the ratio is closer to its target than the 5 % by which the simulation of two cores, over the agent, "
              "misses what was measured");
}

TEST(Simulations, DecideNothingWhenTheyMissTheMeasurement) {
  for (const double ratio : {0.1, 0.9, 9.0})
    EXPECT_EQ(why_undecided(ratio, 0.9, {{1.05, "over the agent"}, {1.34, "in the kernel"}}),
              "the simulation of two cores, in the kernel, misses what was measured by 34 %, more than 20 %");
  EXPECT_EQ(why_undecided(9, 0.9, {{simulation_miss_most, "in the kernel"}}), "");
}

}  // namespace
}  // namespace offpath::bench
