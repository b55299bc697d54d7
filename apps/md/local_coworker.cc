#include "md/local_coworker.h"

#include <array>

namespace md {
namespace {

class LocalCoworker : public Coworker {
 public:
  void use_bins(const Bins& bins, std::size_t own) override { bins.flatten(own, bins_); }
  void begin_list(const Array<double>& x, std::size_t own, double cut, bool half) override {
    const std::size_t ghosts = x.size() / values - own;
    Bins bins = Bins::from_flat(bins_.data(), bins_.size(), own, ghosts);
    bins.refresh_positions(x.data(), own, ghosts);
    turn_ ^= 1;
    build_list(bins, own, cut, half, 1, choose_kernels("auto"), lists_[turn_]);
  }
  bool list_done() override { return true; }
  PairList take_list() override { return lists_[turn_].blocks[0].view(); }

  void use_list(const NeighbourBlock& list) override { list_ = &list; }
  void begin_forces(const LennardJones& potential, const Array<double>& x, std::size_t own) override {
    forces_.resize(values * own);
    sums_ = choose_kernels("auto").lj_with_sums(potential, list_->view(), x.data(), forces_.data());
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
  Array<std::uint32_t> bins_;
  std::array<NeighbourList, 2> lists_;
  std::size_t turn_ = 0;
  const NeighbourBlock* list_ = nullptr;
  Array<double> forces_;
  PairSums sums_;
};

}  // namespace

std::unique_ptr<Coworker> make_local_coworker() { return std::make_unique<LocalCoworker>(); }

}  // namespace md
