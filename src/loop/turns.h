// How a loop that finds nothing to do shares its core. It decides between spins, yields and naps by the time that its
// yields and rounds took. Time is an argument.
//
// A yield to a thread that computes takes that thread's whole time slice, milliseconds, even if work arrives meanwhile.
// A short sleep, a nap, ends on time. So after such a yield the loop naps instead of yielding:
//   - `nap_share` times as long as the yield took, so that slow yields take at most a ninth of the time;
//   - twice as long as the time before if the yield at its end is slow as well, because the thread still computes.
// A fast yield shows that the thread has ended: the next slow one begins anew.
//
// A quota of processor time (cgroups) stops the process for the rest of a period when it is used up, and spinning uses
// it up. A round or a yield without work that takes as long as such a stop shows it. For a second the loop then spins
// for a moment only, without a yield, and sleeps: a wake costs less than a stop.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace offpath::loop {

class Turns {
 public:
  static constexpr TimeNs taken_ns = millisecond_ns / 2;  // a time without work that is longer went to others
  static constexpr TimeNs nap_share = 8;
  static constexpr TimeNs nap_time_max_ns = second_ns;
  static constexpr TimeNs brief_ns = second_ns;
  static constexpr TimeNs brief_spin_ns = 20 * microsecond_ns;

  // `limited`: this process has a quota of processor time.
  explicit Turns(bool limited) noexcept : limited_(limited) {}

  [[nodiscard]] bool naps(TimeNs now) const noexcept { return now < naps_until_; }
  [[nodiscard]] bool is_brief(TimeNs now) const noexcept { return now < brief_until_; }
  // How long to spin after the last work where the options say `spin_ns`.
  [[nodiscard]] TimeNs spin(TimeNs now, TimeNs spin_ns) const noexcept {
    return is_brief(now) ? std::min(spin_ns, brief_spin_ns) : spin_ns;
  }

  void yielded(TimeNs from, TimeNs to) noexcept {
    if (to - from < taken_ns) {
      nap_time_ns_ = 0;
      return;
    }
    nap_time_ns_ = std::min(std::max(2 * nap_time_ns_, nap_share * (to - from)), nap_time_max_ns);
    naps_until_ = to + nap_time_ns_;
    found_nothing(from, to);
  }
  // Rounds without work.
  void found_nothing(TimeNs from, TimeNs to) noexcept {
    if (limited_ && to - from >= taken_ns) brief_until_ = to + brief_ns;
  }

 private:
  bool limited_;
  TimeNs nap_time_ns_ = 0;  // 0: the last yield was fast
  TimeNs naps_until_ = 0, brief_until_ = 0;
};

}  // namespace offpath::loop
