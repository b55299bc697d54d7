// fix offpath/analyse: an agent analyses atoms while the simulation goes on. Read fix_offpath.h first.
//
//     fix ID group offpath/analyse N rdf BINS cutoff R …      array: rdf.h
//     fix ID group offpath/analyse N cna CUTOFF …             vector of 5: cna.h
//     fix ID group offpath/analyse N msd [com yes|no] …       vector of 4: since_reference.h
//     fix ID group offpath/analyse N vacf …                   likewise
//     all: [lag yes|no] [agent ADDRESS] [wait SECONDS]
//
// Every N steps each process asks its agent to analyse the atoms as they are. A read of f_ID waits for the newest
// hand-over; with `lag yes` it is the one before, so nothing waits. Once the agent is lost, this process runs the
// analysis itself, or the values are nan if it cannot; a warning says so.
//
// SPDX-License-Identifier: GPL-2.0-only
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "fix.h"

namespace offpath_lammps {

class Analysis;
class Analyst;

class FixOffpathAnalyse final : public LAMMPS_NS::Fix {
 public:
  FixOffpathAnalyse(LAMMPS_NS::LAMMPS* lammps, int argc, char** argv);
  ~FixOffpathAnalyse() override;

  int setmask() override;
  void init() override;
  void setup(int) override;
  void set_arrays(int) override;
  void initial_integrate(int) override;
  void initial_integrate_respa(int, int, int) override;
  void end_of_step() override;
  void post_run() override;
  double compute_vector(int) override;
  double compute_array(int, int) override;

 private:
  void parse(int argc, char** argv);
  void hand_over();
  void take();
  double value(int row, int column);
  void warn_of_loss(bool was_lost);

  std::string agent_;
  bool lag_ = false;
  std::chrono::nanoseconds wait_;
  std::unique_ptr<Analysis> analysis_;
  std::unique_ptr<Analyst> analyst_;
  bool asked_ = false;  // and not taken yet
  std::optional<LAMMPS_NS::bigint> last_step_;
};

}  // namespace offpath_lammps
