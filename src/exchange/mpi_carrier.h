// Parcels between the ranks of a communicator: member i is rank i. For exchanges that MPI starts, as in the paper on
// which exchanges are based; agents use channels. The only user of mpi.h here, built if there is an MPI.
//
//   receiving   persistent requests (MPI_Recv_init) from any rank, because leaders change; each is restarted when its
//               parcel was taken
//   sending     one persistent request (MPI_Send_init) for each neighbour, made again when the parcel's size changes,
//               which is rare in a steady exchange; while one is under way the newest later parcel waits, and the
//               others are dropped
//   poll        MPI_Testsome over all of them: nothing waits for a rank
//
// Slow and stopped ranks lose their own parcels. A rank that died ends the carrier with an error that names it, because
// MPI cannot continue without it. Ranks of this machine are watched by their process, others by the errors of MPI.
//
// MpiCollectives is the paper's method over the same tree: records are gathered level by level, then all-gathered
// between the top leaders. It waits for all ranks, and is the baseline for the carrier's measurements.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "exchange/carrier.h"
#include "exchange/topology.h"

namespace offpath::exchange {

// MPI itself: one object for the process. Finalizes MPI if it initialized it.
class MpiWorld {
 public:
  [[nodiscard]] static Result<MpiWorld> begin(int* argc, char*** argv);
  MpiWorld(MpiWorld&& other) noexcept : began_(other.began_) { other.began_ = false; }
  MpiWorld& operator=(MpiWorld&&) = delete;
  ~MpiWorld();
  // Ends without waiting: after a rank was lost.
  void abandon() noexcept { began_ = false; }

  [[nodiscard]] MemberIndex rank() const;
  [[nodiscard]] std::size_t size() const;
  // All ranks' names ("rank3") and hosts; ranks that share memory (MPI_Comm_split_type) have one host.
  [[nodiscard]] std::vector<Place> places() const;
  // Waits for all ranks, and calls `meanwhile` until all have arrived.
  void barrier(const std::function<void()>& meanwhile = [] {}) const;
  // The largest of all ranks' numbers; waits for all.
  [[nodiscard]] double largest(double mine) const;

 private:
  MpiWorld() = default;
  bool began_ = true;
};

class MpiCarrier final : public Carrier {
 public:
  // Collective. `parcel_bytes` bounds the parcels.
  [[nodiscard]] static Result<std::unique_ptr<MpiCarrier>> make(const MpiWorld& world, std::uint64_t parcel_bytes);
  ~MpiCarrier() override;

  void send(MemberIndex to, SharedBytes parcel, TimeNs deadline, TimeNs now) override;
  [[nodiscard]] Status poll(TimeNs now, const Take& take) override;
  [[nodiscard]] std::uint64_t left_out() const noexcept;

 private:
  struct State;
  explicit MpiCarrier(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// One exchange of `record_bytes` of every rank, by collectives along the tree's levels (MPI_Comm_split, MPI_Gather[v],
// MPI_Allgather[v]).
class MpiCollectives {
 public:
  // Collective. `variable`: uses the v forms, with sizes exchanged first.
  [[nodiscard]] static Result<MpiCollectives> make(const MpiWorld& world, const Topology& topology,
                                                   std::uint64_t record_bytes, bool variable);
  MpiCollectives(MpiCollectives&&) noexcept;
  MpiCollectives& operator=(MpiCollectives&&) = delete;
  ~MpiCollectives();

  // Collective: waits for all. Returns this rank's records in the tree's order: all of them, if it is one of the top
  // leaders.
  [[nodiscard]] Result<Bytes> exchange(Bytes record);

 private:
  struct State;
  explicit MpiCollectives(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace offpath::exchange
