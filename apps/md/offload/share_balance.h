// The share of a rank's atoms that its coworker computes, so that both need the same time. Changes when atoms are
// sorted, for the lists of then. Times are arguments.
//
// A step takes max((1 - share) H, a + share c): H is the host's time for all atoms, c the coworker's, and a does not
// depend on the share (the way of a request and of the positions). These differ from step to step, above all for a
// coworker that has a part of a core, so the share is the one with which the latest steps, taken together, would have
// been the fastest.
#pragma once

#include <cstddef>
#include <vector>

#include "md/offload/coworker.h"

namespace md {

class ShareBalance {
 public:
  static constexpr std::size_t units = 256;  // of shares: equal shares are the same atoms

  // `fixed`: a fraction of the atoms; 0: it follows the times.
  explicit ShareBalance(double fixed);

  struct Step {
    double own_s = 0;     // of the host, from the request to the end of its part
    double there_s = 0;   // from the request until the coworker's part was there, if the host waited for it
    bool waited = false;  // otherwise it was there before the host asked
    CoworkerTimes coworker;
  };
  void note(const Step& step);

  // The share for the next lists, in units; 0 if the host is better alone. Then it is tried again, ever more rarely.
  std::size_t next();

 private:
  struct Seen {
    double host_s, coworker_s, fixed_s;  // H, c and a
    [[nodiscard]] double even_share() const { return (host_s - fixed_s) / (host_s + coworker_s); }
  };
  // The sum of the steps' times.
  [[nodiscard]] double seconds_with(double share) const;
  // 0 if none gains anything.
  [[nodiscard]] double best_share() const;

  std::size_t share_;
  bool follows_;
  std::vector<Seen> seen_;  // the latest steps, in no order
  std::size_t oldest_ = 0;
  double lag_s_ = 0;  // of a coworker's part, beyond the times that it tells
  int to_ignore_, to_rest_ = 0, rest_;
};

}  // namespace md
