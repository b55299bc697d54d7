// How many atoms have which crystal's structure: those of `compute cna/atom` with the values 1 to 5, fcc, hcp, bcc,
// icosahedral and other, as a vector.
//
// SPDX-License-Identifier: GPL-2.0-only
#pragma once

#include <array>
#include <cstdint>

#include "analysis.h"
#include "analysis_task.h"
#include "crystal_structures.h"

namespace offpath_lammps {

class Cna final : public Analysis {
 public:
  using Analysis::Analysis;

  int parse(std::span<char*> rest) override;
  bool keyword(std::string_view, const char*) override { return false; }
  [[nodiscard]] std::string keywords() const override { return ""; }
  void ready(LAMMPS_NS::Fix& fix) override;
  void setup() override { require_ghosts(arguments_.cutoff); }
  [[nodiscard]] offpath::TaskRequest request() override;
  [[nodiscard]] std::string output_name() const override { return "structures"; }
  [[nodiscard]] std::size_t output_bytes() const override { return sizeof counts_; }
  void take(std::span<const std::byte> answer) override;
  [[nodiscard]] const char* without_agent() const override { return "this process analyses itself"; }
  [[nodiscard]] double value(int row, int) const override {
    return static_cast<double>(counts_[static_cast<std::size_t>(row)]);
  }

 private:
  CnaArguments arguments_{};
  std::array<std::uint64_t, structures> counts_{};
};

}  // namespace offpath_lammps
