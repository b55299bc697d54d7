// fix offpath: hands atoms over to an Offpath agent while the simulation goes on. Read this first, then columns.h.
//
//     fix ID group offpath N [pool NAME] [columns NAME …] [agent ADDRESS] [snapshot yes|no] [keep FRAMES]
//                            [wait SECONDS] [key PREFIX]
//
// Every N steps each process posts its atoms as one frame: row PREFIX and step ("step100"), column "rank" and rank. A
// step is complete when all processes have posted theirs. The arrays meanwhile:
//
//   end of a step that is handed over    posted; nothing is copied, the agent reads them where they lie
//   forces, output, diagnostics          may read them
//   beginning of the next integration    waits until the agent has read them, which it has by then as a rule
//
// With `snapshot yes` they are copied at once, and nothing waits. A group other than `all` is copied as well. When the
// agent is lost, or does not answer for `wait` seconds, a warning says so and the run goes on without it.
//
// f_ID[1] … f_ID[5]: steps that the agents have read, bytes of all processes, and of the slowest process: seconds spent
// posting and waiting, and steps that were not handed over.
//
// SPDX-License-Identifier: GPL-2.0-only
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "columns.h"
#include "fix.h"

namespace offpath_lammps {

class Connection;

class FixOffpath final : public LAMMPS_NS::Fix {
 public:
  FixOffpath(LAMMPS_NS::LAMMPS* lmp, int argc, char** argv);
  ~FixOffpath() override;

  int setmask() override;
  void setup(int) override;
  void initial_integrate(int) override;
  void initial_integrate_respa(int, int, int) override;
  void end_of_step() override;
  void post_run() override;
  double compute_vector(int) override;
  double memory_usage() override;

 private:
  void parse(int argc, char** argv);
  void connect();
  void hand_over();
  void own_again();
  void copy_group();
  void lose(const std::string& why);

  std::string agent_, pool_, key_ = "step";
  std::vector<AtomColumn> columns_;
  bool snapshot_ = false;
  std::uint64_t keep_ = 0;
  std::chrono::nanoseconds wait_;
  std::unique_ptr<Connection> connection_;  // null: not connected, or lost
  struct Posted {
    std::uint64_t ticket, bytes;
  };
  std::optional<Posted> posted_;                // arrays that the agent may still read
  std::optional<LAMMPS_NS::bigint> last_step_;  // handed over, or tried
  std::vector<std::vector<std::byte>> copies_;  // of a group's atoms, a vector for each column
  std::uint64_t steps_ = 0, bytes_ = 0, skipped_ = 0;
  std::chrono::nanoseconds posting_{}, waiting_{};
};

}  // namespace offpath_lammps
