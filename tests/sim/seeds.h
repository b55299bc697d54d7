// Worlds are drawn from seeds: OFFPATH_SIM_SEEDS=N tries the first N, OFFPATH_SIM_SEED=K only that one. Under a
// sanitizer, where a world takes eight times as long, a quarter of them is usual: the release build has tried them all.
// OFFPATH_LONG (./dev test --long) tries them all there too.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>

#include "testing/sanitized.h"

namespace offpath::sim {

[[nodiscard]] inline std::uint64_t seed_setting(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Runs each seed's world until one fails, and says how to run that one again. Returns whether `usual` of them or more
// were run: only then is it to be expected that each kind of fault was met.
template <class Run>
bool each_seed(std::uint64_t usual, const Run& run) {
  const std::uint64_t only = seed_setting("OFFPATH_SIM_SEED", 0), first = only != 0 ? only : 1;
  const std::uint64_t count = only != 0 ? 1 : seed_setting("OFFPATH_SIM_SEEDS", fewer_if_sanitized(usual));
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    run(seed);
    if (!testing::Test::HasFailure()) continue;
    const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
    ADD_FAILURE() << "seed " << seed << "; again with: OFFPATH_SIM_SEED=" << seed
                  << " and --gtest_filter=" << test.test_suite_name() << '.' << test.name();
    return false;
  }
  return count >= usual;
}

}  // namespace offpath::sim
