#include "md/agent_coworker.h"

#include <algorithm>
#include <array>
#include <offpath/offpath.hpp>
#include <optional>
#include <span>
#include <vector>

#include "md/offloaded.h"

namespace md {
namespace {

template <class T>
std::span<const std::byte> bytes_of(const T* data, std::size_t count) {
  return std::as_bytes(std::span(data, count));
}

// Runs `call`; what the agent fails with is a coworker lost.
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
  AgentCoworker(int rank, int ranks)
      : tasks_(channel_, {.lane = static_cast<std::uint32_t>(rank), .lanes = static_cast<std::uint32_t>(ranks)}) {}

  void use_bins(const Bins& bins, std::size_t own) override {
    if (list_task_) guarded([&] { return list_task_->wait_pulled(); });
    bins.flatten(own, bins_);
    ++bins_version_;
    own_ = own;
  }

  void begin_list(const Atoms& atoms, double cut, bool half) override {
    guarded([&] {
      turn_ ^= 1;
      Lists& to = lists_[turn_];
      to.make_room(channel_, own_, neighbours_room(atoms, cut, half));
      const ListArguments arguments{own_, atoms.ghosts, cut, half ? 1U : 0U};
      list_task_.emplace(tasks_.submit({.function = "md/list",
                                        .inputs = {{"x", bytes_of(atoms.x.data(), values * atoms.all())},
                                                   {"bins", bytes_of(bins_.data(), bins_.size()), bins_version_}},
                                        .outputs = {{"begin", to.begin->bytes()},
                                                    {"mutual", to.mutual->bytes()},
                                                    {"neighbours", to.neighbours->bytes()}},
                                        .arguments = bytes_of(&arguments, 1)}));
      pulling_ = &*list_task_;
    });
  }

  bool list_done() override {
    return guarded([&] { return list_task_->wait(offpath::Wait(0)); });
  }

  PairList take_list() override {
    guarded([&] { return list_task_->wait(); });
    const Lists& made = lists_[turn_];
    return {0, own_, made.begin->as<std::uint64_t>().data(), made.mutual->as<std::int32_t>().data(),
            made.neighbours->as<std::int32_t>().data()};
  }

  void use_list(const NeighbourBlock& list) override {
    guarded([&] {
      ++list_version_;
      list_ = &list;
      held_.emplace(tasks_.submit({.function = "md/hold", .inputs = list_inputs()}));
    });
  }

  void begin_forces(const LennardJones& potential, const Atoms& atoms) override {
    guarded([&] {
      const std::size_t bytes = values * atoms.own * sizeof(double);
      if (!forces_ || forces_->bytes().size() < bytes) forces_.emplace(channel_, bytes + bytes / 16);
      if (!sums_) sums_.emplace(channel_, sizeof(PairSums));
      const ForceArguments arguments{atoms.own, atoms.all(), list_->neighbours.size(), potential};
      std::vector<offpath::TaskInput> inputs = list_inputs();
      inputs.push_back({"x", bytes_of(atoms.x.data(), values * atoms.all())});
      force_task_.emplace(tasks_.submit({.function = "md/forces",
                                         .inputs = inputs,
                                         .outputs = {{"f", forces_->bytes()}, {"sums", sums_->bytes()}},
                                         .arguments = bytes_of(&arguments, 1)}));
      pulling_ = &*force_task_;
    });
  }

  const double* take_forces(PairSums& sums) override {
    guarded([&] { return force_task_->wait(); });
    sums = sums_->as<PairSums>()[0];
    return forces_->as<double>().data();
  }

  void wait_pulled() override {
    if (pulling_ == nullptr) return;
    guarded([&] { return pulling_->wait_pulled(); });
    pulling_ = nullptr;
  }

 private:
  struct Lists {
    std::optional<offpath::Segment> begin, mutual, neighbours;
    void make_room(const offpath::Channel& channel, std::size_t own, std::size_t count) {
      const auto room = [&](std::optional<offpath::Segment>& segment, std::size_t bytes) {
        if (!segment || segment->bytes().size() < bytes) segment.emplace(channel, bytes + bytes / 16);
      };
      room(begin, 8 * (own + 1));
      room(mutual, 4 * own);
      room(neighbours, 4 * count);
    }
  };

  // A third more than a uniform density would have; a list that does not fit fails, and the host makes it.
  static std::size_t neighbours_room(const Atoms& atoms, double cut, bool half) {
    std::array<double, 3> low{}, high{};
    for (std::size_t d = 0; d < 3; ++d) {
      low[d] = high[d] = atoms.x[d];
      for (std::size_t i = 0; i < atoms.all(); ++i) {
        low[d] = std::min(low[d], atoms.x[values * i + d]);
        high[d] = std::max(high[d], atoms.x[values * i + d]);
      }
    }
    const double volume = (high[0] - low[0]) * (high[1] - low[1]) * (high[2] - low[2]);
    const double each = 4.19 * cut * cut * cut * static_cast<double>(atoms.all()) / volume;
    return static_cast<std::size_t>((half ? 0.75 : 1.33) * each * static_cast<double>(atoms.own)) + 4096;
  }

  std::vector<offpath::TaskInput> list_inputs() const {
    return {{"begin", bytes_of(list_->begin.data(), list_->begin.size()), list_version_},
            {"mutual", bytes_of(list_->mutual.data(), list_->mutual.size()), list_version_},
            {"neighbours", bytes_of(list_->neighbours.data(), list_->neighbours.size()), list_version_}};
  }

  offpath::Channel channel_;
  offpath::Tasks tasks_;
  Array<std::uint32_t> bins_;
  std::uint64_t bins_version_ = 0, list_version_ = 0;
  std::size_t own_ = 0;
  std::array<Lists, 2> lists_;
  std::size_t turn_ = 0;
  const NeighbourBlock* list_ = nullptr;
  std::optional<offpath::Segment> forces_, sums_;
  std::optional<offpath::Task> list_task_, held_, force_task_;
  offpath::Task* pulling_ = nullptr;
};

}  // namespace

std::unique_ptr<Coworker> make_agent_coworker(int rank, int ranks) { return std::make_unique<AgentCoworker>(rank, ranks); }

}  // namespace md
