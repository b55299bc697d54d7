// The radial distribution function of `compute rdf` for all types: the middle of each bin, g(r), and the number of
// atoms within the bin's outer radius.
//
// SPDX-License-Identifier: GPL-2.0-only
#pragma once

#include <cstdint>
#include <vector>

#include "analysis.h"
#include "analysis_task.h"

namespace offpath_lammps {

class Rdf final : public Analysis {
 public:
  using Analysis::Analysis;

  int parse(std::span<char*> rest) override;
  bool keyword(std::string_view name, const char* value) override;
  [[nodiscard]] std::string keywords() const override { return "cutoff, "; }
  void ready(LAMMPS_NS::Fix& fix) override;
  void init() override;
  void setup() override { require_ghosts(cutoff_); }
  [[nodiscard]] offpath::TaskRequest request() override;
  [[nodiscard]] std::string output_name() const override { return "counts"; }
  [[nodiscard]] std::size_t output_bytes() const override { return bins_ * 8; }
  void take(std::span<const std::byte> answer) override;
  [[nodiscard]] const char* without_agent() const override { return "this process counts itself"; }
  [[nodiscard]] double value(int row, int column) const override;

 private:
  struct Row {
    double distance, g, within;
  };
  std::uint64_t bins_ = 0;
  double cutoff_ = 0;
  RdfArguments arguments_{};
  std::int64_t atoms_ = 0;  // of the group, of all processes, when asked
  double volume_ = 0;       // likewise
  std::vector<Row> rows_;
};

}  // namespace offpath_lammps
