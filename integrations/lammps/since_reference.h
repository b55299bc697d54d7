// The values of `compute msd` and `compute vacf`: x, y, z and their sum, of displacements or velocities since a
// reference, which is the first hand-over.
//
// Atoms migrate between processes, so each process's agent has the reference of all processes: an input that stays on
// the agent, where it is charged to the session of tasks (task.resident_max). LAMMPS does not keep it.
//
// SPDX-License-Identifier: GPL-2.0-only
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "analysis.h"
#include "analysis_task.h"
#include "lmptype.h"

namespace offpath_lammps {

class SinceReference final : public Analysis {
 public:
  enum class Kind : std::uint8_t { msd, vacf };
  SinceReference(LAMMPS_NS::LAMMPS* lammps, const LAMMPS_NS::Fix& fix, Kind kind)
      : Analysis(lammps, fix), kind_(kind) {}

  int parse(std::span<char*>) override { return 0; }
  bool keyword(std::string_view name, const char* value) override;
  [[nodiscard]] std::string keywords() const override { return kind_ == Kind::msd ? "com, " : ""; }
  void ready(LAMMPS_NS::Fix& fix) override;
  void init() override;
  void atom_created(int index) override;
  [[nodiscard]] offpath::TaskRequest request() override;
  [[nodiscard]] std::string output_name() const override { return "sums"; }
  [[nodiscard]] std::size_t output_bytes() const override { return sizeof(ReferenceSums); }
  void take(std::span<const std::byte> answer) override;
  void miss() override;
  [[nodiscard]] bool ended() const override { return ended_; }
  [[nodiscard]] const char* without_agent() const override;
  [[nodiscard]] double value(int row, int) const override { return values_[static_cast<std::size_t>(row)]; }

 private:
  [[nodiscard]] std::vector<ReferenceAtom> gather() const;
  [[nodiscard]] std::array<double, 6> box() const;

  Kind kind_;
  bool relative_to_mass_ = false;                               // com yes
  std::vector<ReferenceAtom> reference_;                        // until the agent has it
  LAMMPS_NS::bigint reference_atoms_ = 0, reference_step_ = 0;  // 0 atoms: no reference yet
  LAMMPS_NS::bigint created_ = 0;                               // atoms of this process's group, since the reference
  ReferenceArguments arguments_{};
  std::array<double, 4> values_{};
  bool ended_ = false;
};

}  // namespace offpath_lammps
