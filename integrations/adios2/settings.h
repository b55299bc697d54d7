// The parameters of the engine, as ADIOS2 users write them: <parameter key="Pool" value="local:/run7"/>.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

namespace offpath::adios {

struct Settings {
  std::string address{};  // of the agent; empty: the default of all programs
  std::string pool{};
  bool snapshot = false;   // EndStep copies and returns, instead of waiting until the arrays are pulled
  bool consume = false;    // a reader drops each step at its end
  bool skip = false;       // without an agent a writer goes on and discards its steps
  std::uint64_t keep = 0;  // steps a writer leaves in the pool; 0: all
  std::uint32_t ranks = 1, rank = 0;
  std::chrono::nanoseconds timeout{-1};  // of each wait for the agent or the pool; -1: none
};

// `given` as IO::Parameters returns them; keys in any case. Throws std::invalid_argument for a key that is not known or
// a value that cannot be used.
[[nodiscard]] Settings read_settings(const std::map<std::string, std::string>& given, const std::string& io_name);

}  // namespace offpath::adios
