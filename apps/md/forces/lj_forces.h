#pragma once

#include "md/forces/forces.h"

namespace md {

class LjForces : public Forces {
 public:
  LjForces(const LennardJones& potential, double mass, Precision precision, const Kernels& kernels)
      : potential_(potential), mass_(mass), precision_(precision), kernels_(kernels) {}
  PairSums compute(const NeighbourList& list, Halo& halo, bool with_sums, Atoms& atoms) override;
  [[nodiscard]] std::vector<double> masses() const override { return {mass_}; }
  [[nodiscard]] double cut() const override { return potential_.cut; }
  [[nodiscard]] std::size_t types() const override { return 1; }
  [[nodiscard]] std::vector<double> parameters() const override {
    return {potential_.epsilon, potential_.sigma, potential_.cut};
  }

 private:
  PairSums of_pairs(const PairList& pairs, bool with_sums, Atoms& atoms) const;
  PairSums of_clusters(const ClusterLists& lists, bool with_sums, Atoms& atoms) const;

  LennardJones potential_;
  double mass_;
  Precision precision_;
  const Kernels& kernels_;
  Array<float> single_;  // positions, if pairs are computed in single precision
};

}  // namespace md
