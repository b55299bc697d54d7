// Somebody beside the host who does parts of a step meanwhile: the agent, or in tests, the same functions in this
// process.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>

#include "md/atoms.h"
#include "md/neighbours/neighbour_list.h"

namespace md {

// It died, or cannot do what it was asked. The host does it itself and goes on without.
class CoworkerLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct CoworkerTimes {
  double moved_s = 0, computed_s = 0;
  [[nodiscard]] double all_s() const { return moved_s + computed_s; }
};

class Coworker {
 public:
  virtual ~Coworker() = default;

  // Bins of which lists are asked for from now on.
  virtual void use_bins(const Bins& bins, std::size_t own) = 0;
  // Begins the lists of positions, four values an atom, that must not change before `wait_pulled`.
  virtual void begin_list(const Array<double>& x, std::size_t own, double cut, bool half) = 0;
  // Are they there? `take_list` waits for them; they stay until the second call after this one.
  virtual bool list_done() = 0;
  // Of all own atoms, and of blocks of them as coworkers are told at first (OffloadShape).
  virtual PairList take_list() = 0;

  // Lists with which forces are asked for from now on; they stay as they are until forces with later ones have been
  // taken.
  virtual void use_list(std::span<const NeighbourBlock> list) = 0;
  // Of positions, four values an atom, that stay as they are until the forces are taken.
  virtual void begin_forces(const LennardJones& potential, const Array<double>& x, std::size_t own) = 0;
  virtual bool forces_done() = 0;
  // Forces of the atoms in their order at the beginning, four values each, and their sums.
  virtual const double* take_forces(PairSums& sums) = 0;

  // Until the positions that lists were asked for may change.
  virtual void wait_pulled() = 0;

  // What the lists or forces taken last took over there, from the request to the result's being here, without the wait
  // for other requests.
  [[nodiscard]] virtual CoworkerTimes list_times() = 0;
  [[nodiscard]] virtual CoworkerTimes force_times() = 0;
  // Whoever waits longer than this has lost it.
  virtual void be_patient(double seconds) = 0;
};

}  // namespace md
