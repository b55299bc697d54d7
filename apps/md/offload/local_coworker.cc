#include "md/offload/local_coworker.h"

#include <array>
#include <vector>

namespace md {
namespace {

class LocalCoworker : public Coworker {
 public:
  explicit LocalCoworker(const OffloadShape& shape) : shape_(shape) {}
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

  void use_list(std::span<const NeighbourBlock> list) override {
    list_.clear();
    for (const NeighbourBlock& block : list) list_.push_back(block.view());
  }
  void begin_forces(const LennardJones& potential, const Array<double>& x, std::size_t own) override {
    forces_.resize(values * own);
    const ForceArguments arguments{own,
                                   x.size() / values,
                                   potential,
                                   static_cast<std::uint32_t>(list_.size()),
                                   static_cast<std::uint32_t>(shape_.threads),
                                   shape_.precision == Precision::mixed ? 1U : 0U};
    sums_ = computing_.compute(arguments, list_, x.data(), forces_.data());
  }
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
  Array<std::uint32_t> bins_;
  NeighbourList made_;
  std::array<Joined, 2> lists_;
  std::size_t turn_ = 0;
  std::vector<PairList> list_;
  ForcesElsewhere computing_;
  Array<double> forces_;
  PairSums sums_;
};

}  // namespace

std::unique_ptr<Coworker> make_local_coworker(const OffloadShape& shape) {
  return std::make_unique<LocalCoworker>(shape);
}

}  // namespace md
