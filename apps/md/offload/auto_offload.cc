#include "md/offload/auto_offload.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace md {
namespace {

constexpr int probes_of_each = 2;                            // the first one touches memory
constexpr double worth_trying = 0.98, worth_keeping = 0.99;  // relative to the host's time alone
constexpr double clearly_faster = 0.7;
constexpr double model_error = 1.15;  // a mode may be faster than predicted by this factor
constexpr double measured_s_min = 0.02;
constexpr double too_close = 0.08;  // difference that a short trial cannot resolve
constexpr double too_slow = 1.1;
// A trial that has lost as much time as so many steps of the host alone has failed. A step that takes longer than
// `hiccup` of these counts as that many: the machine may be the reason.
constexpr double steps_lost_max = 8, hiccup = 4;
constexpr std::int64_t steps_tried = 16, steps_tried_close = 48, steps_tried_max = 400, steps_watched = 40;
// The agent counts as lost after the host has waited for this many of its own steps, and longer than a short hiccup.
constexpr double patience_steps = 20, patience_s_min = 0.2;

}  // namespace

AutoOffload::AutoOffload(Simulation& simulation, Ranks& ranks)
    : simulation_(simulation), ranks_(ranks), meter_(simulation), rebuilds_first_(simulation.rebuilds()) {
  if (on_any_rank(!simulation.has_coworker())) stage_ = Stage::settled;
}

bool AutoOffload::on_any_rank(bool here) const {
  double any = here ? 1 : 0;
  ranks_.maximum({&any, 1});
  return any > 0;
}

void AutoOffload::step_done(double seconds) {
  ++steps_;
  if (stage_ == Stage::probing) {
    meter_.note_step();
    probe();
  } else if (stage_ == Stage::measuring) {
    measure(seconds);
  } else if (stage_ == Stage::trying) {
    judge_trial(seconds);
  } else if (stage_ == Stage::doubting) {
    doubt(seconds);
  } else if (simulation_.mode() != Offload::none) {
    watch_over(seconds);
  }
}

void AutoOffload::probe() {
  if (on_any_rank(!simulation_.has_coworker())) {
    stage_ = Stage::settled;
    return;
  }
  const int probes_wanted = probes_of_each * (may_offload_forces() ? 2 : 1);
  if (probes_done_ < probes_wanted) {
    const Offload what = next_probe();
    CoworkerTimes times;
    if (probe_there_ && simulation_.probe_over(times)) {
      (what == Offload::force ? agent_.force : agent_.list) = times.all_s();
      ++probes_done_;
      probe_there_ = false;
    }
    if (!probe_there_ && probes_done_ < probes_wanted && simulation_.has_coworker()) {
      simulation_.begin_probe(next_probe());
      probe_there_ = true;
    }
  }
  if (on_any_rank(probes_done_ < probes_wanted || !host_seen(1, 2, 0))) return;
  predict();
  // A clear case needs no better measurements. Otherwise the host is measured again, while the agent is idle.
  const bool clear = !candidates_.empty() && candidates_.back().predicted < clearly_faster * alone_;
  if (clear) return choose();
  stage_ = Stage::measuring;
  meter_ = PhaseMeter(simulation_);
  steps_ = 0;
  rebuilds_first_ = simulation_.rebuilds();
}

Offload AutoOffload::next_probe() const {
  return probes_done_ % 2 == 0 && may_offload_forces() ? Offload::force : Offload::list;
}

std::string AutoOffload::why_no_forces() const {
  const Settings& s = simulation_.settings();
  if (s.potential == Potential::eam)
    return "EAM needs an exchange, which probes do not make; for one element --offload force --exchange agent does";
  if (s.trigger == Trigger::displacement)
    return "a list would serve a step longer, and --trigger displacement misses no pair";
  if (s.lj_types > 1) return "the agent computes one type of atoms";
  return Simulation::why_not(Offload::force, s);
}

void AutoOffload::measure(double seconds) {
  seconds_ += seconds;
  meter_.note_step();
  if (on_any_rank(!host_seen(4, 8, steps_ < steps_tried_max ? measured_s_min : 0))) return;
  predict();
  choose();
}

bool AutoOffload::host_seen(std::size_t rebuilds, std::size_t plain, double seconds) const {
  const bool every_step = simulation_.settings().interval == 1 && simulation_.settings().trigger == Trigger::interval;
  return meter_.rebuilds() >= (every_step ? plain : rebuilds) && (every_step || meter_.plain_steps() >= plain) &&
         seconds_ >= seconds;
}

double AutoOffload::interval_seen() const {
  const Settings& s = simulation_.settings();
  if (may_offload_forces()) return static_cast<double>(s.interval);
  return static_cast<double>(steps_) /
         static_cast<double>(std::max<std::int64_t>(1, simulation_.rebuilds() - rebuilds_first_));
}

void AutoOffload::predict() {
  const Settings& s = simulation_.settings();
  HostPhases host = meter_.phases();
  std::array<double, 7> worst{host.force,   host.integrate, host.communicate,     host.rebuild,
                              agent_.force, agent_.list,    simulation_.fastest()};
  ranks_.maximum(worst);
  host.force = worst[0];
  host.integrate = worst[1];
  host.communicate = worst[2];
  host.rebuild = worst[3];
  const AgentPhases agent{worst[4], worst[5] * wide_search(s)};
  host.communicate_wide = host.communicate * wide_search(s);
  host.rebuild_wide = host.rebuild * wide_search(s);
  host.list_steps = s.skin / 2 / (worst[6] * s.time_step);
  host.bins_steps = 3 * host.list_steps;
  alone_ = seconds_without(host, interval_seen());
  switched_ = host.rebuild + host.rebuild_wide;
  sorts_ = (host.rebuild_wide - host.communicate_wide) / std::max(host.bins_steps, 1.0);
  candidates_.clear();
  if (may_offload_forces()) {
    candidates_.push_back({Offload::force, seconds_with_forces_elsewhere(host, agent, interval_seen())});
  }
  candidates_.push_back({Offload::list, seconds_with_lists_elsewhere(host, agent)});
  std::sort(candidates_.begin(), candidates_.end(),
            [](const Candidate& a, const Candidate& b) { return a.predicted > b.predicted; });
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(), "ms per step: alone %.4g", 1e3 * alone_);
  found_ = text.data();
  for (const Candidate& one : candidates_) {
    std::snprintf(text.data(), text.size(), ", %s %.4g predicted", name_of(one.mode), 1e3 * one.predicted);
    found_ += text.data();
  }
}

// A mode is tried if it is predicted to win, in the steps that are left, at least what a trial that fails loses.
void AutoOffload::choose() {
  const auto left = static_cast<double>(simulation_.settings().steps - simulation_.steps_done());
  const double lost = switched_ + steps_lost_max * alone_;
  std::erase_if(candidates_, [&](const Candidate& one) {
    return one.predicted > worth_trying * alone_ || left * (alone_ - one.predicted) < lost;
  });
  simulation_.be_patient(std::max(patience_s_min, patience_steps * alone_));
  try_next();
}

void AutoOffload::try_next() {
  seconds_ = 0;
  steps_ = 0;
  counted_ = 0;
  lost_ = 0;
  if (candidates_.empty()) return settle();
  stage_ = Stage::trying;
  const Offload mode = candidates_.back().mode;
  candidates_.pop_back();
  simulation_.switch_to(mode);
  // Whole intervals; the first one touches memory for the first time.
  trial_unit_ = mode == Offload::force ? simulation_.settings().interval : 1;
  steps_warm_ = mode == Offload::force ? std::max<std::int64_t>(2, trial_unit_) : steps_tried / 2;
}

void AutoOffload::judge_trial(double seconds) {
  const bool lists = simulation_.mode() == Offload::list;
  const bool sorted = simulation_.rebuilds() > rebuilds_before_;
  rebuilds_before_ = simulation_.rebuilds();
  lost_ += std::min(seconds, hiccup * alone_) - alone_;
  const bool failed = on_any_rank(lost_ > steps_lost_max * alone_);
  if (!failed && (steps_ <= steps_warm_ || (lists && sorted))) return;
  seconds_ += seconds;
  ++counted_;
  if (!failed && (counted_ < steps_tried || counted_ % trial_unit_ != 0)) return;
  if (!failed && counted_ < steps_tried_max && on_any_rank(seconds_ < measured_s_min)) return;
  double each = seconds_ / static_cast<double>(counted_) + (lists ? sorts_ : 0);
  ranks_.maximum({&each, 1});
  const double rival = best_ == Offload::none ? alone_ : std::min(alone_, best_s_);
  if (!failed && counted_ < steps_tried_close && std::abs(each / rival - 1) < too_close) return;
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), ", %s %.4g tried", name_of(simulation_.mode()), 1e3 * each);
  found_ += text.data();
  if (on_any_rank(!simulation_.has_coworker())) {
    best_ = Offload::none;
    return settle();
  }
  if (!failed && each <= worth_keeping * alone_ && (best_ == Offload::none || each < best_s_)) {
    best_ = simulation_.mode();
    best_s_ = each;
  }
  if (!candidates_.empty() && best_ != Offload::none && candidates_.back().predicted > model_error * best_s_)
    return settle();
  try_next();
}

void AutoOffload::settle() {
  stage_ = Stage::settled;
  seconds_ = 0;
  steps_ = 0;
  if (simulation_.mode() != best_) simulation_.switch_to(best_);
}

void AutoOffload::watch_over(double seconds) {
  seconds_ += seconds;
  if (steps_ % steps_watched != 0) return;
  double each = seconds_ / static_cast<double>(steps_watched);
  ranks_.maximum({&each, 1});
  seconds_ = 0;
  slow_windows_ = each > too_slow * alone_ ? slow_windows_ + 1 : 0;
  if (slow_windows_ < 2) return;
  stage_ = Stage::doubting;
  slow_s_ = each;
  slow_windows_ = 0;
  steps_ = 0;
  simulation_.switch_to(Offload::none);
}

// The host alone, for a window after the step that changes modes.
void AutoOffload::doubt(double seconds) {
  if (steps_ > 1) seconds_ += seconds;
  if (steps_ <= steps_watched) return;
  double each = seconds_ / static_cast<double>(steps_watched);
  ranks_.maximum({&each, 1});
  stage_ = Stage::settled;
  seconds_ = 0;
  steps_ = 0;
  std::array<char, 96> text{};
  std::snprintf(text.data(), text.size(), ", later %s %.4g, alone %.4g", name_of(best_), 1e3 * slow_s_, 1e3 * each);
  found_ += text.data();
  // Both got slower: other load on the machine is not a reason to give up.
  if (on_any_rank(!simulation_.has_coworker()) || slow_s_ > worth_keeping * each) return;
  alone_ = each;
  simulation_.switch_to(best_);
}

std::string AutoOffload::verdict() const {
  const std::string mode = name_of(simulation_.mode());
  if (!found_.empty()) {
    const std::string why = why_no_forces();
    return mode + " (" + found_ + (why.empty() ? "" : "; force is not a candidate: " + why) + ")";
  }
  return mode + (simulation_.has_coworker() ? " (the agent has not answered)" : " (there is no agent)");
}

}  // namespace md
