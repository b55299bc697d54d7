// A benchmark's results: claims with their peers and targets, and series for the figures. One JSON form for all:
//
//   {"bench": "move", "commit": "1a2b3c", "machine": "...",
//    "claims": [{"claim", "value", "unit", "peer", "peer_value", "ratio", "target", "holds"}],
//    "series": [{"figure", "name", "x_unit", "y_unit", "x": [...], "y": [...]}]}
//
// A claim with a peer also has "interval" ([low, high] of the ratio, 95 %) and "pairs"; one that does not hold or was
// not measured has "why". A figure that was not measured is null, never a number. "detail" has values that differ from
// run to run, so that names stay the same; "peer_waits" is the way of waiting of a peer whose cost is mostly waiting.
// "simulated" is true of figures that were simulated with measured costs.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "measure.h"

namespace offpath::bench {

inline constexpr double not_measured = std::numeric_limits<double>::quiet_NaN();

struct Target {
  enum class Of { value, ratio };
  enum class Bound { at_most, at_least };

  Of of = Of::value;
  Bound bound = Bound::at_most;
  double limit = 0;
  std::string_view unit;  // of the limit as printed; empty for a ratio

  [[nodiscard]] bool met_by(double figure) const noexcept;  // false for not_measured
  [[nodiscard]] std::string text() const;                   // "<= 400 ns", ">= 0.95"
};
[[nodiscard]] constexpr Target value_at_most(double limit, std::string_view unit) {
  return {Target::Of::value, Target::Bound::at_most, limit, unit};
}
[[nodiscard]] constexpr Target value_at_least(double limit, std::string_view unit) {
  return {Target::Of::value, Target::Bound::at_least, limit, unit};
}
[[nodiscard]] constexpr Target ratio_at_least(double limit) {
  return {Target::Of::ratio, Target::Bound::at_least, limit, ""};
}

struct Claim {
  std::string claim = {};
  double value = not_measured;
  std::string unit = {};
  std::string peer = {};  // empty: none
  double peer_value = not_measured;
  double ratio = not_measured;
  std::optional<Interval> interval = {};
  std::size_t pairs = 0;
  std::optional<Target> target = {};  // none: for information; it holds if it was measured
  std::string why = {};               // not empty: the reason why it was not measured, so it does not hold
  std::string detail = {};            // values that differ from run to run; may be empty
  std::string peer_waits = {};        // "asleep" or "spinning", of a peer whose cost is mostly waiting
  bool simulated = false;             // in virtual time, with measured costs; a measured peer says so by its name

  [[nodiscard]] bool holds() const noexcept;
};

struct Series {
  std::string figure;  // "fig3"
  std::string name;    // the legend's text
  std::string x_unit, y_unit;
  std::vector<double> x, y;
};

class Report {
 public:
  explicit Report(std::string bench) : bench_(std::move(bench)) {}

  void add(Claim claim) { claims_.push_back(std::move(claim)); }
  void add(Series series) { series_.push_back(std::move(series)); }
  // A claim that was not measured.
  void add_unmeasured(std::string claim, std::string unit, Target target, std::string why);

  [[nodiscard]] const std::vector<Claim>& claims() const noexcept { return claims_; }
  [[nodiscard]] bool all_hold() const noexcept;
  [[nodiscard]] std::string json() const;
  [[nodiscard]] std::string table() const;

 private:
  std::string bench_;
  std::vector<Claim> claims_;
  std::vector<Series> series_;
};

// Command line of every benchmark program.
struct Options {
  std::string json_path = {};  // empty: none
  std::string agent = {};      // address; empty: OFFPATH_AGENT
  bool check = false;          // exit status 1 when a claim does not hold
  bool quick = false;          // checks that it runs; its figures are meaningless
  int host_core = 0;
  int agent_core = 1;  // where peers of the agent run
  std::uint64_t size_max_bytes = std::uint64_t(1) << 30;
  std::vector<std::pair<std::string, std::string>> others = {};  // further "--name VALUE" options of the program

  [[nodiscard]] PairPlan pairs() const noexcept { return quick ? PairPlan{3, 1} : PairPlan{}; }
  [[nodiscard]] std::string_view other(std::string_view name) const noexcept;  // empty if not given
};
// `other_names`: further "--name"s that take a value.
[[nodiscard]] Result<Options> parse_options(int argc, char** argv, const std::vector<std::string>& other_names = {});
// "64K", "1M", "1G", plain bytes; powers of 1024.
[[nodiscard]] Result<std::uint64_t> parse_size(std::string_view text);

// Prints the table, writes the JSON, and returns the exit status: 0; 1 with --check if a claim does not hold; 2 if the
// file could not be written.
[[nodiscard]] int finish(const Report& report, const Options& options);
// The body of main(): parses, runs, finishes; prints a failure and exits with 2.
[[nodiscard]] int run_main(int argc, char** argv, std::string_view bench, const std::vector<std::string>& other_names,
                           Status (*body)(const Options&, Report&));

}  // namespace offpath::bench
