// Programs for threads beside one agent in this process. They know include/offpath alone, whose names the agent's
// headers have, too: a source of their own.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace offpath::threads {

struct Surroundings {
  std::string address;
  std::string file;                    // to be written
  std::vector<std::byte> count_query;  // whose answer is one row
};

// Runs all of them to their end; errors fail the test. False: the agent answers no queries, as it has no libarrow. All
// but the pools' names is gone afterwards.
[[nodiscard]] bool run_programs(const Surroundings& surroundings);

}  // namespace offpath::threads
