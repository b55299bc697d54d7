// Lennard-Jones forces of several types of atoms, a pair at a time: the kernels compute one type.
#pragma once

#include "md/forces/forces.h"

namespace md {

class LjTypesForces : public Forces {
 public:
  LjTypesForces(const LjTypes& types, double cut);
  PairSums compute(const NeighbourList& list, Halo& halo, bool with_sums, Atoms& atoms) override;
  [[nodiscard]] std::vector<double> masses() const override { return mass_; }
  [[nodiscard]] double cut() const override { return cut_; }
  [[nodiscard]] std::size_t types() const override { return types_; }
  [[nodiscard]] std::vector<double> parameters() const override;

 private:
  struct Pair {
    double twelve, six;  // 48 epsilon sigma^12, 24 epsilon sigma^6
  };
  PairSums compute(const PairList& list, const double* x, const std::uint8_t* type, double* f) const;

  std::size_t types_;
  double cut_;
  std::vector<double> mass_;
  std::vector<Pair> pairs_;
};

}  // namespace md
