// Ranks whose programs have ended, and the text that explains why a step waits: "rank 2 (solver, process 4711 on node7)
// ended at 2026-11-26 01:02:03 UTC". Only programs of this agent are known here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace offpath::pool {

struct GoneRank {
  std::string program, host;  // the host may be unknown
  std::int64_t pid = 0;
  std::int64_t at_real_ns = 0;  // by CLOCK_REALTIME; 0: unknown
};

class GoneRanks {
 public:
  static constexpr std::size_t kept_max = 1024;  // of all pools; the oldest are forgotten
  static constexpr std::size_t described_max = 4;

  void add(const std::string& pool, std::uint32_t rank, GoneRank gone);
  void remove(const std::string& pool, std::uint32_t rank);  // its program is back
  [[nodiscard]] const GoneRank* find(const std::string& pool, std::uint32_t rank) const;
  // The gone ranks of `ranks` ranks that are not in `ended`, as part of a sentence. May be empty.
  [[nodiscard]] std::string describe(const std::string& pool, const std::set<std::uint32_t>& ended,
                                     std::uint32_t ranks) const;

 private:
  using Key = std::pair<std::string, std::uint32_t>;
  std::map<Key, GoneRank> gone_;
  std::deque<Key> oldest_first_;
};

[[nodiscard]] std::string describe(std::uint32_t rank, const GoneRank& gone);

// The ranks of `ranks` ranks that are not in `ended`, the lowest first, at most `count_max`.
[[nodiscard]] std::vector<std::uint32_t> missing_ranks(const std::set<std::uint32_t>& ended, std::uint32_t ranks,
                                                       std::size_t count_max);

// A step that some ranks have not ended.
struct WaitingStep {
  std::string row;
  std::uint32_t ended, ranks;
  std::vector<std::uint32_t> missing;  // some of them
  std::string gone;                    // GoneRanks::describe
  TimeNs since;                        // its first rank ended it
};

// The newest visible row of a pool, and the steps that have waited longest for ranks.
struct PoolSteps {
  static constexpr std::size_t listed_max = 8, ranks_listed_max = 16;
  std::string pool, newest;
  std::size_t waiting = 0;
  std::vector<WaitingStep> listed{};
};

}  // namespace offpath::pool
