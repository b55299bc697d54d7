// The embedded atom method: e_i = F(sum_j rho(r_ij)) + 1/2 sum_j phi(r_ij). Two loops over the pairs; between them the
// slopes of F are sent to the ghosts. The kernels compute one element; several are computed a pair at a time here.
#pragma once

#include <functional>
#include <span>

#include "md/files/eam_file.h"
#include "md/forces/forces.h"
#include "md/kernels/kernels.h"

namespace md {

// Arrays as in atoms.h; `type` is not read if there is one element. Forces are written.
struct EamAtoms {
  std::size_t own = 0, all = 0;
  const double* x = nullptr;
  const std::uint8_t* type = nullptr;
  double* f = nullptr;
};

class EamForces : public Forces {
 public:
  EamForces(EamTables tables, const Kernels& kernels);
  // From `tables` of another process.
  EamForces(std::span<const double> tables, const Kernels& kernels);
  PairSums compute(const NeighbourList& list, Halo& halo, bool with_sums, Atoms& atoms) override;
  // The same over flat arrays. `to_ghosts` sends one value for each atom from the owners to their ghosts.
  PairSums compute(std::span<const PairList> blocks, int threads, const EamAtoms& atoms,
                   const std::function<void(double* number)>& to_ghosts);
  [[nodiscard]] std::vector<double> masses() const override { return tables_.mass; }
  [[nodiscard]] double cut() const override { return tables_.cut; }
  [[nodiscard]] std::size_t types() const override { return tables_.elements; }
  [[nodiscard]] std::vector<double> parameters() const override;
  [[nodiscard]] std::vector<double> tables() const override;

 private:
  EamTables tables_;
  const Kernels& kernels_;
  EamPairs one_;  // of the only element, for the kernels
  struct Near {
    Array<std::uint64_t> begin;
    Array<std::int32_t> mutual, neighbours;
    NearPairs room_for(const PairList& list);
    [[nodiscard]] PairList view(const PairList& list) const {
      return {list.first, list.last, begin.data(), mutual.data(), neighbours.data()};
    }
  };
  std::vector<Near> near_;         // by block: the pairs within the cut-off
  Array<double> density_, slope_;  // by atom; the derivative of F at that density, also for ghosts
};

// The two loops, over flat arrays. They write `density` and `f` of [first, last).
void eam_densities(const EamTables& tables, const PairList& list, const double* x, const std::uint8_t* type,
                   double* density);
PairSums eam_pairs(const EamTables& tables, const PairList& list, const double* x, const std::uint8_t* type,
                   const double* slope, double* f);

}  // namespace md
