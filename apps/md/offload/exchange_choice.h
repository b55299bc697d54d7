// `--exchange auto`: finds out during the run who exchanges faster in steps with forces elsewhere, the hosts or their
// agents (exchanged_forces.h). Both ways take such steps by turns, as both give the same bits; then the faster is kept.
// Time is an argument. All ranks decide alike.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "md/simulation.h"

namespace md {

class ExchangeChoice {
 public:
  ExchangeChoice(Simulation& simulation, Ranks& ranks);

  // Called after every step with forces elsewhere, with its duration in seconds.
  void step_done(double seconds);
  [[nodiscard]] bool settled() const { return settled_; }

  // A text with the results, for the end of the run.
  [[nodiscard]] std::string verdict() const;

 private:
  static constexpr std::array ways{Exchange::host, Exchange::agent};

  Simulation& simulation_;
  Ranks& ranks_;
  std::array<std::vector<double>, ways.size()> seconds_;
  bool settled_ = false;
  std::string found_;
};

}  // namespace md
