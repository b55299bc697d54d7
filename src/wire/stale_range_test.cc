#include "wire/stale_range.h"

#include <gtest/gtest.h>

namespace offpath::wire {
namespace {

TEST(StaleRange, SaysWhichGenerationWasNamedAndWhichThereIs) {
  EXPECT_EQ(stale_generation(5, 7, true, 8).value().message,
            "range 5: generation 7 was named, it is announced as generation 8");
  EXPECT_EQ(stale_generation(segment_flag | 2, 0, false, 1).value().message,
            "segment 2: generation 0 was named, it was withdrawn at generation 1");
  EXPECT_EQ(not_announced(5, 7).value().message,
            "range 5: generation 7 was named, it was withdrawn or announced again");
  EXPECT_EQ(two_generations(5, 7, 8).value().message, "range 5 is named with the generations 7 and 8");
}

TEST(StaleRange, IsAStaleError) {
  for (const auto& failed : {stale_generation(5, 7, true, 8), not_announced(5, 7), two_generations(5, 7, 8)})
    EXPECT_EQ(failed.value().code, Error::stale);
}

}  // namespace
}  // namespace offpath::wire
