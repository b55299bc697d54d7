// A process's tasks on its agent. Read fix_offpath_analyse.h first.
//
// SPDX-License-Identifier: GPL-2.0-only
#pragma once

#include <offpath/offpath.hpp>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "announced_arrays.h"

namespace offpath_lammps {

class Analyst {
 public:
  // `plugin` is the path of analysis_plugin.cc's library; `output` and its bytes are those of all tasks. Throws
  // offpath::Error.
  Analyst(const std::string& agent, const std::string& plugin, std::string output, std::size_t output_bytes,
          std::chrono::nanoseconds wait);

  // Function, inputs and arguments. The inputs have to stay as they are until own_again().
  void ask(offpath::TaskRequest request);
  void own_again();
  // The requested output. Empty if the agent was lost after it had read the inputs, or while it keeps one of them.
  // Throws offpath::Error if the agent does not run the plug-in, or has no room for inputs that stay.
  [[nodiscard]] std::optional<std::vector<std::byte>> take();
  // If not empty: the reason why there is no agent any more. This process runs the functions itself if it has all
  // inputs.
  [[nodiscard]] const std::string& lost() const noexcept { return lost_; }

 private:
  void announce();
  void lose(const std::string& why);
  [[nodiscard]] bool runs_here() const;
  void run_here();

  std::string plugin_;
  std::chrono::nanoseconds wait_;
  std::optional<offpath::Channel> channel_;
  std::optional<AnnouncedArrays> announced_;
  std::optional<offpath::Segment> memory_;  // of the output
  std::optional<offpath::Tasks> tasks_;
  std::optional<offpath::Task> task_;
  offpath::TaskRequest request_;
  std::optional<std::vector<std::byte>> output_;  // of a function that ran here
  bool read_ = true;                              // the inputs are this program's again
  std::string lost_;
};

}  // namespace offpath_lammps
