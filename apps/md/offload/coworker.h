// A coworker does parts of a step beside the host: the agent, or in tests the same functions in this process. Read this
// first in offload, then simulation_offloaded.cc (its part in a step) and auto_offload.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>

#include "md/atoms.h"
#include "md/neighbours/neighbour_list.h"
#include "md/ranks/force_exchange.h"
#include "md/ranks/halo_swaps.h"

namespace md {

// The coworker died, or cannot do its task. The host does it itself and continues without.
class CoworkerLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The own atoms [first, own) of a rank, and what their lists have.
struct ShareOfAtoms {
  std::size_t first = 0, own = 0;
  double cut = 0;
  bool half = true;
};

struct CoworkerTimes {
  double moved_s = 0, computed_s = 0;
  [[nodiscard]] double all_s() const { return moved_s + computed_s; }
};

class Coworker {
 public:
  virtual ~Coworker() = default;

  // Sets the bins for later lists. `neighbours`: as many as the host's own lists have in these bins.
  virtual void use_bins(const Bins& bins, std::size_t own, std::size_t neighbours) = 0;
  // Begins lists of these positions, four values for each atom, which must not change before `wait_pulled`.
  virtual void begin_list(const Array<double>& x, std::size_t own, double cut, bool half) = 0;
  // Whether the lists are finished. `take_list` waits for them; they stay until the second call after this one.
  virtual bool list_done() = 0;
  // The lists of all own atoms, in the blocks of OffloadShape. None if they had more neighbours than there was room
  // for; there is for the next ones.
  virtual std::optional<PairList> take_list() = 0;

  // Sets the lists for later forces; they must stay unchanged until forces with newer lists have been taken. `halo`:
  // for forces that coworkers exchange, otherwise nullptr; it may change.
  virtual void use_list(std::span<const NeighbourBlock> list, const HaloSwaps* halo) = 0;
  // Begins forces for these positions, four values for each atom, which stay unchanged until the forces are taken.
  virtual void begin_forces(const LennardJones& potential, const Array<double>& x, std::size_t own) = 0;
  // Sets the atoms [first, own) for later shared forces: their lists are made from `bins` and from the positions of the
  // first forces.
  virtual void use_share(const Bins& bins, const ShareOfAtoms& share) = 0;
  // Begins forces of these atoms, as `begin_forces` does; without the sums unless `with_sums`.
  virtual void begin_share(const LennardJones& potential, const Array<double>& x, bool with_sums) = 0;
  virtual bool forces_done() = 0;
  // Forces of the atoms in their order at the start, four values each, and their sums.
  virtual const double* take_forces(PairSums& sums) = 0;

  // The coworkers of all ranks exchange messages; all ranks call it. Returns the reason if they do not reach each
  // other, or empty.
  virtual std::string meet() = 0;
  // The same forces by coworkers that exchange (exchanged_forces.h). `x`: of own atoms only; `all`: with ghosts;
  // `tables`: Forces::tables, the same ones always. They are taken after `order_forces`, in the order of its places,
  // which stay unchanged until then.
  virtual void begin_exchanged_forces(const LennardJones& potential, std::span<const double> tables,
                                      const Array<double>& x, std::size_t all, const Domain& domain) = 0;
  virtual void order_forces(std::span<const Place> places) = 0;
  // Ends all that it does, so that no other rank's coworker waits for it. Lists that were taken stay.
  virtual void leave() = 0;

  // Waits until the positions given for lists may change.
  virtual void wait_pulled() = 0;

  // The coworker's time for the lists or forces taken last, from the request to the arrival of the result, without the
  // wait for other requests.
  [[nodiscard]] virtual CoworkerTimes list_times() = 0;
  [[nodiscard]] virtual CoworkerTimes force_times() = 0;
  // Sets the wait after which the coworker counts as lost.
  virtual void be_patient(double seconds) = 0;
};

}  // namespace md
