// The forces on a rank's own atoms: one interface for all potentials.
#pragma once

#include <memory>

#include "md/atoms.h"
#include "md/neighbours/neighbour_list.h"
#include "md/ranks/halo.h"
#include "md/settings.h"

namespace md {

class Forces {
 public:
  virtual ~Forces() = default;
  // Writes f of all own atoms. Computes this rank's share of the sums only `with_sums`.
  virtual PairSums compute(const NeighbourList& list, Halo& halo, bool with_sums, Atoms& atoms) = 0;
  [[nodiscard]] virtual double mass() const = 0;
  [[nodiscard]] virtual double cut() const = 0;
  [[nodiscard]] virtual std::size_t types() const = 0;  // of atoms that it supports
};

std::unique_ptr<Forces> make_forces(const Settings& settings, const Kernels& kernels);

}  // namespace md
