// The forces on a rank's own atoms: one interface for all potentials.
#pragma once

#include <memory>
#include <vector>

#include "md/atoms.h"
#include "md/forces/lj_types.h"
#include "md/neighbours/neighbour_list.h"
#include "md/ranks/halo.h"
#include "md/settings.h"

namespace md {

class Forces {
 public:
  virtual ~Forces() = default;
  // Writes f of all own atoms. Computes this rank's share of the sums only `with_sums`.
  virtual PairSums compute(const NeighbourList& list, Halo& halo, bool with_sums, Atoms& atoms) = 0;
  // One, or one for each type of atoms.
  [[nodiscard]] virtual std::vector<double> masses() const = 0;
  [[nodiscard]] virtual double cut() const = 0;
  [[nodiscard]] virtual std::size_t types() const = 0;  // of atoms that it supports
  // All numbers that forces depend on, besides positions and types: equal for equal forces.
  [[nodiscard]] virtual std::vector<double> parameters() const = 0;
  // Data that a coworker needs to compute these forces, besides LennardJones; may be empty.
  [[nodiscard]] virtual std::vector<double> tables() const { return {}; }
};

// `types`: of Lennard-Jones atoms, if there are several.
std::unique_ptr<Forces> make_forces(const Settings& settings, const Kernels& kernels, const LjTypes* types = nullptr);

}  // namespace md
