// Somebody beside the host who does parts of a step meanwhile: the agent, or in tests, the same functions in this process.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "md/atoms.h"
#include "md/neighbour_list.h"

namespace md {

// It died, or cannot do what it was asked. The host does it itself and goes on without.
class CoworkerLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Coworker {
 public:
  virtual ~Coworker() = default;

  // Bins of which lists are asked for from now on.
  virtual void use_bins(const Bins& bins, std::size_t own) = 0;
  // Begins the lists of the positions as they are now; these must not change before `wait_pulled`.
  virtual void begin_list(const Atoms& atoms, double cut, bool half) = 0;
  // Are they there? `take_list` waits for them; they stay until the second call after this one.
  virtual bool list_done() = 0;
  virtual PairList take_list() = 0;

  // Lists with which forces are asked for from now on; they must not change before the next `wait_pulled`.
  virtual void use_list(const NeighbourBlock& list) = 0;
  virtual void begin_forces(const LennardJones& potential, const Atoms& atoms) = 0;
  // Forces of the atoms in their order at the beginning, four values each, and their sums.
  virtual const double* take_forces(PairSums& sums) = 0;

  virtual void wait_pulled() = 0;
};

}  // namespace md
