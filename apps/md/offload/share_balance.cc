#include "md/offload/share_balance.h"

#include <algorithm>
#include <cmath>

namespace md {
namespace {

// A coworker whose part of a core is given to it in slices does little work as fast as a whole core does. So the first
// share is small, and it grows step by step.
constexpr std::size_t first_share = ShareBalance::units / 16, growth_max = 2;
constexpr std::size_t least_share = ShareBalance::units / 64;  // a smaller share gains nothing
constexpr std::size_t most_share = ShareBalance::units - ShareBalance::units / 16;
constexpr std::size_t steps_seen = 48, steps_needed = 4;
constexpr double worth_it = 0.995;                  // of the host's time alone
constexpr int steps_ignored = 2;                    // memory is touched for the first time
constexpr int first_rest = 50, longest_rest = 800;  // lists without the coworker
constexpr double lag_kept = 0.9;                    // of the lag, by a step without a wait: so a long one is forgotten

}  // namespace

ShareBalance::ShareBalance(double fixed)
    : share_(first_share), follows_(fixed == 0), to_ignore_(steps_ignored), rest_(first_rest) {
  if (!follows_) share_ = static_cast<std::size_t>(std::lround(fixed * static_cast<double>(units)));
}

void ShareBalance::note(const Step& step) {
  if (share_ == 0 || to_ignore_-- > 0) return;
  to_ignore_ = 0;
  const double share = static_cast<double>(share_) / static_cast<double>(units);
  double fixed_s = 0;
  if (step.waited) {
    fixed_s = step.there_s - step.coworker.computed_s;
    lag_s_ = std::max(0.0, step.there_s - step.coworker.all_s());
  } else {
    fixed_s = std::min(step.coworker.moved_s + lag_s_, step.own_s - step.coworker.computed_s);
    lag_s_ *= lag_kept;
  }
  const Seen seen{step.own_s / (1 - share), step.coworker.computed_s / share, std::max(0.0, fixed_s)};
  if (seen_.size() < steps_seen) {
    seen_.push_back(seen);
  } else {
    seen_[oldest_] = seen;
    oldest_ = (oldest_ + 1) % steps_seen;
  }
}

double ShareBalance::seconds_with(double share) const {
  double sum = 0;
  for (const Seen& seen : seen_)
    sum += std::max((1 - share) * seen.host_s, share > 0 ? seen.fixed_s + share * seen.coworker_s : 0);
  return sum;
}

// The sum is convex, and bends where a step is even.
double ShareBalance::best_share() const {
  double best = 0, best_s = worth_it * seconds_with(0);
  for (const Seen& seen : seen_) {
    const double share = seen.even_share(), seconds = share > 0 ? seconds_with(share) : best_s;
    if (seconds >= best_s) continue;
    best = share;
    best_s = seconds;
  }
  return best;
}

std::size_t ShareBalance::next() {
  if (!follows_) return share_;
  if (share_ == 0) {
    if (--to_rest_ > 0) return 0;
    to_ignore_ = steps_ignored;
    seen_.clear();
    oldest_ = 0;
    share_ = first_share;
    return share_;
  }
  if (seen_.size() < steps_needed) return share_;
  const auto wanted = static_cast<std::size_t>(best_share() * static_cast<double>(units));
  if (wanted < least_share) {
    share_ = 0;
    to_rest_ = rest_;
    rest_ = std::min(2 * rest_, longest_rest);
    return 0;
  }
  share_ = std::min({most_share, wanted, growth_max * share_});
  if (share_ > first_share) rest_ = first_rest;
  return share_;
}

}  // namespace md
