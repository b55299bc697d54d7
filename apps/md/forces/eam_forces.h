// The embedded atom method: e_i = F(sum_j rho(r_ij)) + 1/2 sum_j phi(r_ij). Two loops over the pairs; between them the
// slopes of F are sent to the ghosts.
#pragma once

#include "md/files/eam_file.h"
#include "md/forces/forces.h"

namespace md {

class EamForces : public Forces {
 public:
  explicit EamForces(EamTables tables) : tables_(std::move(tables)) {}
  PairSums compute(const NeighbourList& list, Halo& halo, bool with_sums, Atoms& atoms) override;
  [[nodiscard]] double mass() const override { return tables_.mass[0]; }
  [[nodiscard]] double cut() const override { return tables_.cut; }
  [[nodiscard]] std::size_t types() const override { return tables_.elements; }

 private:
  EamTables tables_;
  Array<double> density_, slope_;  // by atom; the derivative of F at that density, also for ghosts
};

// The two loops, over flat arrays. They write `density` and `f` of [first, last).
void eam_densities(const EamTables& tables, const PairList& list, const double* x, const std::uint8_t* type,
                   double* density);
PairSums eam_pairs(const EamTables& tables, const PairList& list, const double* x, const std::uint8_t* type,
                   const double* slope, double* f);

}  // namespace md
