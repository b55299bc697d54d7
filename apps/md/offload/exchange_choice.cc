#include "md/offload/exchange_choice.h"

#include <algorithm>
#include <cstdio>

#include "md/offload/phase_meter.h"

namespace md {
namespace {

constexpr std::size_t turns = 6;  // of each way; the first touches memory for the first time

}  // namespace

ExchangeChoice::ExchangeChoice(Simulation& simulation, Ranks& ranks) : simulation_(simulation), ranks_(ranks) {}

void ExchangeChoice::step_done(double seconds) {
  settled_ = settled_ || !simulation_.coworkers_meet();
  if (settled_) return;
  const auto used = static_cast<std::size_t>(std::ranges::find(ways, simulation_.exchange()) - ways.begin());
  seconds_[used].push_back(seconds);
  const std::size_t taken = seconds_[0].size() + seconds_[1].size();
  if (taken < ways.size() * turns) {
    // host, agent, agent, host, host, ...: drift in time affects both alike.
    simulation_.exchange_by(ways[(taken + 1) / 2 % 2]);
    return;
  }
  std::array<double, ways.size()> each{};
  for (std::size_t way = 0; way < ways.size(); ++way)
    each[way] = median_of({seconds_[way].begin() + 1, seconds_[way].end()});
  ranks_.maximum(each);
  simulation_.exchange_by(each[1] < each[0] ? Exchange::agent : Exchange::host);
  settled_ = true;
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(), "ms of a step with lists: host %.4g, agent %.4g", 1e3 * each[0],
                1e3 * each[1]);
  found_ = text.data();
}

std::string ExchangeChoice::verdict() const {
  std::string reason = found_;
  if (!simulation_.coworkers_apart().empty())
    reason = simulation_.coworkers_apart();
  else if (reason.empty())
    reason = "too few steps with forces elsewhere to tell";
  return std::string(name_of(simulation_.exchange())) + " (" + reason + ")";
}

}  // namespace md
