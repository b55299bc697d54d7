#include "md/offload/local_coworker.h"

#include <algorithm>
#include <array>
#include <vector>

#include "md/offload/exchanged_forces.h"
#include "md/offload/shared_forces.h"

namespace md {
namespace {

class LocalCoworker : public Coworker {
 public:
  LocalCoworker(const OffloadShape& shape, RankMessages* messages) : shape_(shape), messages_(messages) {}
  void use_bins(const Bins& bins, std::size_t own, std::size_t /*neighbours*/) override { bins.flatten(own, bins_); }
  void begin_list(const Array<double>& x, std::size_t own, double cut, bool half) override {
    const std::size_t ghosts = x.size() / values - own;
    Bins bins = Bins::from_flat(bins_.data(), bins_.size(), own, ghosts);
    bins.refresh_positions(x.data(), own, ghosts);
    turn_ ^= 1;
    build_list(bins, own, cut, half, list_parts(shape_.blocks, shape_.threads), choose_kernels("auto"), made_,
               shape_.precision);
    Joined& to = lists_[turn_];
    to.begin.resize(own + 1);
    to.mutual.resize(own);
    to.neighbours.resize(joined_neighbours(made_));
    join_blocks(made_, to.begin.data(), to.mutual.data(), to.neighbours.data());
  }
  bool list_done() override { return true; }
  std::optional<PairList> take_list() override {
    const Joined& made = lists_[turn_];
    return PairList{0, made.mutual.size(), made.begin.data(), made.mutual.data(), made.neighbours.data()};
  }

  void use_list(std::span<const NeighbourBlock> list, const HaloSwaps* halo) override {
    list_.clear();
    for (const NeighbourBlock& block : list) list_.push_back(block.view());
    halo_.resize(0);
    if (halo != nullptr) halo->flatten(halo_);
  }
  void begin_forces(const LennardJones& potential, const Array<double>& x, std::size_t own) override {
    forces_.resize(values * own);
    const ForceArguments arguments = force_arguments(shape_, potential, own, x.size() / values, list_.size());
    sums_ = computing_.compute(arguments, list_, x.data(), forces_.data());
  }
  void use_share(const Bins& bins, const ShareOfAtoms& share) override {
    share_ = share_of(shape_, share, bins.first_around(share.first), ++shared_lists_);
    share_from_ = share.own - share_.own;
    bins.flatten(share.own, share_bins_, share_from_);
    listed_.resize(0);
  }
  void begin_share(const LennardJones& potential, const Array<double>& x, bool with_sums) override {
    share_.all = x.size() / values - share_from_;
    share_.potential = potential;
    share_.without_sums = with_sums ? 0 : 1;
    const double* const from = x.data() + values * share_from_;
    if (listed_.size() == 0) {
      listed_.resize(values * share_.all);
      std::copy_n(from, listed_.size(), listed_.data());
    }
    forces_.resize(values * (share_.own - share_.first));
    sums_ = shared_.compute(share_, {share_bins_.data(), share_bins_.size()}, listed_.data(), from, forces_.data());
  }
  std::string meet() override { return messages_ == nullptr ? "there are no messages" : ""; }
  void begin_exchanged_forces(const LennardJones& potential, std::span<const double> tables, const Array<double>& x,
                              std::size_t all, const Domain& domain) override {
    const ExchangeArguments arguments{force_arguments(shape_, potential, x.size() / values, all, list_.size()),
                                      domain.whole, ++exchanged_steps_, domain.safe_exchange ? 1U : 0U,
                                      tables.empty() ? 0U : 1U};
    HaloSwaps halo = HaloSwaps::from_flat(halo_.data(), halo_.size(), arguments.forces.own, all, *messages_);
    sums_ = exchanged_.compute(arguments, list_, halo, x.data(), tables, *messages_);
  }
  void order_forces(std::span<const Place> places) override {
    forces_.resize(values * places.size());
    exchanged_.put_in_order({exchanged_steps_}, places, forces_.data());
  }
  void leave() override {}
  bool forces_done() override { return true; }
  const double* take_forces(PairSums& sums) override {
    sums = sums_;
    return forces_.data();
  }

  void wait_pulled() override {}
  CoworkerTimes list_times() override { return {}; }
  CoworkerTimes force_times() override { return {}; }
  void be_patient(double /*seconds*/) override {}

 private:
  struct Joined {
    Array<std::uint64_t> begin;
    Array<std::int32_t> mutual, neighbours;
  };
  OffloadShape shape_;
  RankMessages* messages_;
  Array<std::uint32_t> bins_, halo_;
  NeighbourList made_;
  std::array<Joined, 2> lists_;
  std::size_t turn_ = 0;
  std::vector<PairList> list_;
  ForcesElsewhere computing_;
  ExchangedForces exchanged_;
  std::uint64_t exchanged_steps_ = 0, shared_lists_ = 0;
  ShareArguments share_;
  std::size_t share_from_ = 0;
  Array<std::uint32_t> share_bins_;
  Array<double> listed_;
  SharedForces shared_;
  Array<double> forces_;
  PairSums sums_;
};

}  // namespace

std::unique_ptr<Coworker> make_local_coworker(const OffloadShape& shape, RankMessages* messages) {
  return std::make_unique<LocalCoworker>(shape, messages);
}

}  // namespace md
