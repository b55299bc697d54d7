#include "md/offload/agent_coworker.h"

#include <algorithm>
#include <array>
#include <offpath/offpath.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "md/offload/exchanged_forces.h"
#include "md/offload/offloaded.h"
#include "md/offload/shared_forces.h"

namespace md {
namespace {

// All ranks come here at once, but their workers may still have to start. If an agent has not a worker for each of its
// ranks, functions wait for each other in vain.
constexpr offpath::Wait meeting_ns{10'000'000'000};

template <class T>
std::span<const std::byte> bytes_of(const T* data, std::size_t count) {
  return std::as_bytes(std::span(data, count));
}

// Runs `call`; an error of the agent means that the coworker is lost.
template <class Call>
auto guarded(const Call& call) {
  try {
    return call();
  } catch (const offpath::Error& error) {
    throw CoworkerLost(error.what());
  }
}

class AgentCoworker : public Coworker {
 public:
  AgentCoworker(const Ranks& ranks, const OffloadShape& shape, const std::string& team)
      : shape_(shape),
        tasks_(std::in_place, channel_,
               offpath::TasksOptions{.lane = static_cast<std::uint32_t>(ranks.rank()),
                                     .lanes = static_cast<std::uint32_t>(ranks.count()),
                                     .team = team}) {}

  void use_bins(const Bins& bins, std::size_t own, std::size_t neighbours) override {
    if (list_task_ && !guarded([&] { return list_task_->wait_pulled(patience_); })) throw too_slow();
    bins.flatten(own, bins_);
    ++bins_version_;
    own_ = own;
    // In more parts than the host's lists have, every pair may be on both sides.
    const bool parted = list_parts(shape_.blocks, shape_.threads) > shape_.blocks;
    room_ = std::max(room_, room_for((parted ? 2 : 1) * neighbours));
  }

  void begin_list(const Array<double>& x, std::size_t own, double cut, bool half) override {
    guarded([&] {
      turn_ ^= 1;
      Lists& to = lists_[turn_];
      make_room(to.begin, sizeof(std::uint64_t) * (own_ + 1));
      make_room(to.mutual, sizeof(std::int32_t) * own_);
      make_room(to.count, sizeof(std::uint64_t));
      make_room(to.neighbours, sizeof(std::int32_t) * room_);
      list_room_ = room_;
      const ListArguments arguments{own_,
                                    x.size() / values - own,
                                    room_,
                                    cut,
                                    half ? 1U : 0U,
                                    single(),
                                    static_cast<std::uint32_t>(list_parts(shape_.blocks, shape_.threads)),
                                    0};
      list_task_.emplace(tasks_->submit({.function = "md/list",
                                         .inputs = {{"x", bytes_of(x.data(), x.size())},
                                                    {"bins", bytes_of(bins_.data(), bins_.size()), bins_version_}},
                                         .outputs = {{"begin", to.begin->bytes()},
                                                     {"mutual", to.mutual->bytes()},
                                                     {"count", to.count->bytes()},
                                                     {"neighbours", to.neighbours->bytes()}},
                                         .arguments = bytes_of(&arguments, 1)}));
      pulling_ = &*list_task_;
    });
  }

  bool list_done() override {
    return guarded([&] { return list_task_->wait(offpath::Wait(0)); });
  }

  std::optional<PairList> take_list() override {
    wait_for(*list_task_);
    const Lists& made = lists_[turn_];
    const std::uint64_t count = made.count->as<std::uint64_t>()[0];
    if (count > list_room_) {
      room_ = std::max(room_, room_for(count));
      return std::nullopt;
    }
    return PairList{0, own_, made.begin->as<std::uint64_t>().data(), made.mutual->as<std::int32_t>().data(),
                    made.neighbours->as<std::int32_t>().data()};
  }

  void use_list(std::span<const NeighbourBlock> list, const HaloSwaps* halo) override {
    guarded([&] {
      ++list_version_;
      list_ = list;
      has_halo_ = halo != nullptr;
      if (has_halo_) halo->flatten(halos_[list_version_ % halos_.size()]);
      held_[list_version_ % held_.size()].emplace(tasks_->submit({.function = "md/hold", .inputs = list_inputs()}));
    });
  }

  void begin_forces(const LennardJones& potential, const Array<double>& x, std::size_t own) override {
    guarded([&] {
      order_task_.reset();
      make_room(forces_, values * own * sizeof(double));
      make_room(sums_, sizeof(PairSums));
      const ForceArguments arguments = force_arguments(shape_, potential, own, x.size() / values, list_.size());
      std::vector<offpath::TaskInput> inputs = list_inputs();
      inputs.push_back({"x", bytes_of(x.data(), x.size())});
      force_task_.emplace(tasks_->submit({.function = "md/forces",
                                          .inputs = inputs,
                                          .outputs = {{"f", forces_->bytes()}, {"sums", sums_->bytes()}},
                                          .arguments = bytes_of(&arguments, 1)}));
    });
  }

  void use_share(const Bins& bins, const ShareOfAtoms& share) override {
    const std::size_t from = bins.first_around(share.first);
    share_ = share_of(shape_, share, from, share_.lists + 1);
    share_from_ = from;
    bins.flatten(share.own, share_bins_, from);
    shared_before_ = false;
  }

  void begin_share(const LennardJones& potential, const Array<double>& x, bool with_sums) override {
    guarded([&] {
      order_task_.reset();
      make_room(forces_, values * (share_.own - share_.first) * sizeof(double));
      make_room(sums_, sizeof(PairSums));
      announce_positions(x);
      share_.all = x.size() / values - share_from_;
      share_.potential = potential;
      share_.without_sums = with_sums ? 0 : 1;
      const auto positions = bytes_of(x.data() + values * share_from_, values * share_.all);
      std::vector<offpath::TaskInput> inputs;
      if (!shared_before_) {
        inputs = {{"bins of share", bytes_of(share_bins_.data(), share_bins_.size()), share_.lists},
                  {"listed", positions, share_.lists}};
      } else {
        inputs = {{.name = "bins of share", .data = {}, .version = share_.lists, .bytes = 4 * share_bins_.size()},
                  {.name = "listed", .data = {}, .version = share_.lists, .bytes = positions.size()},
                  {"x", positions}};
      }
      force_task_.emplace(
          tasks_->submit({.function = "md/share",
                          .inputs = inputs,
                          .outputs = {{"f", forces_->bytes().first(values * (share_.own - share_.first) * 8)},
                                      {"sums", sums_->bytes()}},
                          .arguments = bytes_of(&share_, 1)}));
      shared_before_ = true;
    });
  }

  bool forces_done() override {
    return guarded([&] { return force_task_->wait(offpath::Wait(0)); });
  }

  const double* take_forces(PairSums& sums) override {
    wait_for(*force_task_);
    if (order_task_) wait_for(*order_task_);
    sums = sums_->as<PairSums>()[0];
    return forces_->as<double>().data();
  }

  std::string meet() override {
    try {
      offpath::Task meeting = tasks_->submit({.function = "md/meet", .wait = meeting_ns});
      if (meeting.wait(meeting_ns + offpath::Wait(1'000'000'000))) return "";
      return "the agent has not answered";
    } catch (const offpath::Error& error) {
      return error.what();
    }
  }

  void begin_exchanged_forces(const LennardJones& potential, std::span<const double> tables, const Array<double>& x,
                              std::size_t all, const Domain& domain) override {
    guarded([&] {
      order_task_.reset();
      make_room(sums_, sizeof(PairSums));
      const ExchangeArguments arguments{force_arguments(shape_, potential, x.size() / values, all, list_.size()),
                                        domain.whole, ++exchanged_steps_, domain.safe_exchange ? 1U : 0U,
                                        tables.empty() ? 0U : 1U};
      std::vector<offpath::TaskInput> inputs = list_inputs();
      if (!tables.empty()) inputs.push_back({"tables", std::as_bytes(tables), 1});
      inputs.push_back({"x", bytes_of(x.data(), x.size())});
      force_task_.emplace(tasks_->submit({.function = "md/exchanged_forces",
                                          .inputs = inputs,
                                          .outputs = {{"sums", sums_->bytes()}},
                                          .arguments = bytes_of(&arguments, 1)}));
    });
  }

  void order_forces(std::span<const Place> places) override {
    guarded([&] {
      make_room(forces_, values * places.size() * sizeof(double));
      const OrderArguments arguments{exchanged_steps_};
      order_task_.emplace(tasks_->submit({.function = "md/ordered_forces",
                                          .inputs = {{"places", std::as_bytes(places)}},
                                          .outputs = {{"f", forces_->bytes()}},
                                          .arguments = bytes_of(&arguments, 1)}));
    });
  }

  void leave() override {
    pulling_ = nullptr;
    for (std::optional<offpath::Task>* task : {&list_task_, &held_[0], &held_[1], &force_task_, &order_task_})
      task->reset();
    tasks_.reset();
  }

  void wait_pulled() override {
    if (pulling_ == nullptr) return;
    if (!guarded([&] { return pulling_->wait_pulled(patience_); })) throw too_slow();
    pulling_ = nullptr;
  }

  CoworkerTimes list_times() override { return times_of(*list_task_); }
  CoworkerTimes force_times() override {
    CoworkerTimes times = times_of(*force_task_);
    if (!order_task_) return times;
    const CoworkerTimes order = times_of(*order_task_);
    times.moved_s += order.moved_s;
    times.computed_s += order.computed_s;
    return times;
  }
  void be_patient(double seconds) override { patience_ = offpath::Wait(static_cast<std::int64_t>(1e9 * seconds)); }

 private:
  struct Lists {
    std::optional<offpath::Segment> begin, mutual, count, neighbours;
  };

  // A rank may have no atoms; a segment has a byte at least.
  void make_room(std::optional<offpath::Segment>& segment, std::size_t bytes) {
    if (segment && segment->bytes().size() >= bytes) return;
    segment.emplace(channel_, std::max<std::size_t>(bytes + bytes / 16, 64));
  }

  // All of the array at once: parts of it are named in every step, and it grows.
  void announce_positions(const Array<double>& x) {
    if (positions_ && announced_ == x.data() && announced_size_ >= x.size()) return;
    positions_.emplace(channel_, std::span(x.data(), x.capacity()));
    announced_ = x.data();
    announced_size_ = x.capacity();
  }

  // Entries for lists that have, or had a moment ago, so many neighbours.
  static std::size_t room_for(std::size_t neighbours) { return neighbours + neighbours / 4 + 4096; }

  [[nodiscard]] std::vector<offpath::TaskInput> list_inputs() const {
    std::vector<offpath::TaskInput> inputs;
    if (has_halo_) {
      const Array<std::uint32_t>& halo = halos_[list_version_ % halos_.size()];
      inputs.push_back({"halo", bytes_of(halo.data(), halo.size()), list_version_});
    }
    for (std::size_t b = 0; b < list_.size(); ++b) {
      const NeighbourBlock& block = list_[b];
      const std::string number = std::to_string(b);
      inputs.push_back({"begin" + number, bytes_of(block.begin.data(), block.begin.size()), list_version_});
      inputs.push_back({"mutual" + number, bytes_of(block.mutual.data(), block.mutual.size()), list_version_});
      inputs.push_back(
          {"neighbours" + number, bytes_of(block.neighbours.data(), block.neighbours.size()), list_version_});
    }
    return inputs;
  }
  [[nodiscard]] std::uint32_t single() const { return shape_.precision == Precision::mixed ? 1 : 0; }

  void wait_for(offpath::Task& task) {
    if (!guarded([&] { return task.wait(patience_); })) throw too_slow();
  }
  [[nodiscard]] CoworkerLost too_slow() const {
    return CoworkerLost("it did not answer within " + std::to_string(1e-9 * static_cast<double>(patience_.count())) +
                        " s");
  }
  static CoworkerTimes times_of(const offpath::Task& task) {
    return guarded([&] {
      const ofp_task_info info = task.info();
      return CoworkerTimes{1e-9 * static_cast<double>(info.pulled_ns + info.pushed_ns),
                           1e-9 * static_cast<double>(info.ran_ns)};
    });
  }

  OffloadShape shape_;
  offpath::Channel channel_;
  std::optional<offpath::Tasks> tasks_;
  Array<std::uint32_t> bins_;
  std::uint64_t bins_version_ = 0, list_version_ = 0;
  std::size_t own_ = 0, room_ = 0, list_room_ = 0;  // entries for neighbours: of the next list, of the last one
  std::array<Lists, 2> lists_;
  std::size_t turn_ = 0;
  std::span<const NeighbourBlock> list_;
  std::array<Array<std::uint32_t>, 2> halos_;  // by turns, like the lists
  bool has_halo_ = false;
  std::uint64_t exchanged_steps_ = 0;
  ShareArguments share_;
  std::size_t share_from_ = 0;
  Array<std::uint32_t> share_bins_;
  bool shared_before_ = false;  // with these lists
  std::optional<offpath::Range> positions_;
  const double* announced_ = nullptr;
  std::size_t announced_size_ = 0;
  std::optional<offpath::Segment> forces_, sums_;
  std::optional<offpath::Task> list_task_, force_task_, order_task_;
  // By turns, because a task that is destroyed before its end is cancelled, and a worker that is then late is killed.
  // Forces are taken between the second last one and the next, so that one is over.
  std::array<std::optional<offpath::Task>, 2> held_;
  offpath::Task* pulling_ = nullptr;
  offpath::Wait patience_ = offpath::forever;
};

}  // namespace

std::unique_ptr<Coworker> make_agent_coworker(const Ranks& ranks, const OffloadShape& shape, const std::string& team) {
  return std::make_unique<AgentCoworker>(ranks, shape, team);
}

}  // namespace md
