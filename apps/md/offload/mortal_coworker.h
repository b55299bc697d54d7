// A coworker for tests: does its tasks in this process, and dies after a given number of answers.
#pragma once

#include <sys/mman.h>

#include <array>
#include <cstring>
#include <memory>
#include <new>
#include <optional>

#include "md/offload/local_coworker.h"

namespace md {

enum class Dies { taking, asked_whether_done, waiting_for_pull, beginning_list, beginning_share, ordering };

// Belongs to the test, because a lost coworker is destroyed.
struct CoworkerLife {
  int answers_left = 0;
  double patience_s = 0;     // as last set by the simulation
  int lists_too_large = 0;   // so many lists do not fit into their room
  int looks_for_a_list = 0;  // so many times it is asked in vain whether a list is done
  int lists_begun = 0;
  Dies when = Dies::taking;  // the call that counts its answers
  bool has_left = false;
};

// A list in memory of its own. Its addresses are not used again, so reading it later ends the test.
class ListInPages {
 public:
  explicit ListInPages(const PairList& list) {
    constexpr std::size_t spare = 16;  // neighbours that a kernel reads beyond the end
    const std::size_t own = list.last - list.first, neighbours = list.begin[own] + spare;
    bytes_ = sizeof(std::uint64_t) * (own + 1) + sizeof(std::int32_t) * (own + neighbours);
    pages_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages_ == MAP_FAILED) throw std::bad_alloc();
    auto* const begin = static_cast<std::uint64_t*>(pages_);
    auto* const mutual = reinterpret_cast<std::int32_t*>(begin + own + 1);
    std::memcpy(begin, list.begin, sizeof(std::uint64_t) * (own + 1));
    std::memcpy(mutual, list.mutual, sizeof(std::int32_t) * own);
    std::memcpy(mutual + own, list.neighbours, sizeof(std::int32_t) * neighbours);
    view_ = {list.first, list.last, begin, mutual, mutual + own};
  }
  ListInPages(const ListInPages&) = delete;
  ListInPages& operator=(const ListInPages&) = delete;
  ~ListInPages() {
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    static_cast<void>(::mmap(pages_, bytes_, PROT_NONE, flags, -1, 0));
  }
  [[nodiscard]] const PairList& view() const { return view_; }

 private:
  std::size_t bytes_ = 0;
  void* pages_ = nullptr;
  PairList view_{};
};

class MortalCoworker : public Coworker {
 public:
  explicit MortalCoworker(CoworkerLife& life, RankMessages* messages = nullptr)
      : life_(life), living_(make_local_coworker({}, messages)) {}
  void use_bins(const Bins& bins, std::size_t own, std::size_t neighbours) override {
    living_->use_bins(bins, own, neighbours);
  }
  void begin_list(const Array<double>& x, std::size_t own, double cut, bool half) override {
    answer(Dies::beginning_list);
    living_->begin_list(x, own, cut, half);
    ++life_.lists_begun;
    looks_left_ = life_.looks_for_a_list;
  }
  bool list_done() override {
    answer(Dies::asked_whether_done);
    return looks_left_-- <= 0 && living_->list_done();
  }
  std::optional<PairList> take_list() override {
    answer(Dies::taking);
    const std::optional<PairList> made = living_->take_list();
    if (life_.lists_too_large > 0) {
      --life_.lists_too_large;
      return std::nullopt;
    }
    turn_ ^= 1;
    return taken_[turn_].emplace(*made).view();
  }
  void use_list(std::span<const NeighbourBlock> list, const HaloSwaps* halo) override { living_->use_list(list, halo); }
  void begin_forces(const LennardJones& potential, const Array<double>& x, std::size_t own) override {
    living_->begin_forces(potential, x, own);
  }
  void use_share(const Bins& bins, const ShareOfAtoms& share) override { living_->use_share(bins, share); }
  void begin_share(const LennardJones& potential, const Array<double>& x, bool with_sums) override {
    answer(Dies::beginning_share);
    living_->begin_share(potential, x, with_sums);
  }
  bool forces_done() override { return living_->forces_done(); }
  const double* take_forces(PairSums& sums) override {
    answer(Dies::taking);
    return living_->take_forces(sums);
  }
  std::string meet() override { return living_->meet(); }
  void begin_exchanged_forces(const LennardJones& potential, std::span<const double> tables, const Array<double>& x,
                              std::size_t all, const Domain& domain) override {
    living_->begin_exchanged_forces(potential, tables, x, all, domain);
  }
  void order_forces(std::span<const Place> places) override {
    answer(Dies::ordering);
    living_->order_forces(places);
  }
  void leave() override { life_.has_left = true; }

  void wait_pulled() override { answer(Dies::waiting_for_pull); }
  CoworkerTimes list_times() override { return {}; }  // less than any host's, so that each mode is predicted to be
                                                      // faster
  CoworkerTimes force_times() override { return {}; }
  void be_patient(double seconds) override { life_.patience_s = seconds; }

 private:
  void answer(Dies here) {
    if (here == life_.when && life_.answers_left-- <= 0) throw CoworkerLost("it has died");
  }
  CoworkerLife& life_;
  std::unique_ptr<Coworker> living_;
  std::array<std::optional<ListInPages>, 2> taken_;
  std::size_t turn_ = 0;
  int looks_left_ = 0;
};

}  // namespace md
