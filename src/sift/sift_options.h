// The options of a sift pool, the counters of its stages, and the memory budget of a stage.
#pragma once

#include <cstdint>
#include <vector>

#include "base/backoff.h"
#include "sift/piece.h"
#include "sift/settings.h"
#include "sift/split/row_form.h"

namespace offpath::sift {

struct SiftOptions {
  Settings settings;
  Source self;
  FrameMemory memory;
  std::size_t offers_max = 65536;                // offers that wait at one stage; further ones are told to try again
  std::uint64_t check_in_job_bytes = 256 << 10;  // from this many bytes of identifiers on, they are checked in a job
  std::uint64_t merged_bytes_max = 1ull << 30;   // of a run of tracks (tracks/tracks.h)
  TimeNs retry_min_ns = 10 * millisecond_ns;     // doubled by each failure in a row
  TimeNs retry_max_ns = second_ns;
  TimeNs merge_retry_max_ns = 60 * second_ns;  // a merge reads much before it fails
  bool kept = false;                           // restore() has to come first

  // The next attempt after a failure that was preceded by `failures_before` failures in a row.
  [[nodiscard]] TimeNs retry_at(std::uint32_t failures_before, TimeNs now) const noexcept {
    return deadline_after(now, backoff_ns(retry_min_ns, failures_before, retry_max_ns));
  }
  [[nodiscard]] TimeNs merge_again_at(std::uint32_t failures_before, TimeNs now) const noexcept {
    return deadline_after(now, backoff_ns(retry_min_ns, failures_before, merge_retry_max_ns));
  }
};

struct StageCounters {
  std::uint64_t budget_bytes = 0, used_bytes = 0, used_bytes_peak = 0;
  std::uint64_t offers_waiting = 0, outgoing = 0, outgoing_bytes = 0;
  std::uint64_t pieces_taken = 0, rows_taken = 0, repeated = 0, refused = 0, splits = 0, split_under_pressure = 0;
  std::uint64_t published = 0, published_again = 0;
  std::uint64_t restored = 0, lost = 0;            // kept pieces that came back, or could not be read
  std::uint64_t merges = 0, merge_failures = 0;    // of runs of tracks, in the last stage
  std::uint64_t track_runs = 0, damaged_runs = 0;  // at the moment, in the last stage
};

// The memory that each stage may use, and its counters. Stages are numbered from 1.
class StageBudgets {
 public:
  StageBudgets(std::uint32_t stages, std::uint64_t bytes_of_each) : counters_(stages) {
    for (StageCounters& each : counters_) each.budget_bytes = bytes_of_each;
  }

  [[nodiscard]] StageCounters& operator[](std::uint32_t stage) noexcept { return counters_[stage - 1]; }
  [[nodiscard]] const StageCounters& operator[](std::uint32_t stage) const noexcept { return counters_[stage - 1]; }
  [[nodiscard]] bool has_room(std::uint32_t stage, std::uint64_t bytes) const noexcept {
    return (*this)[stage].used_bytes + bytes <= (*this)[stage].budget_bytes;
  }
  void charge(std::uint32_t stage, std::uint64_t bytes) noexcept {
    StageCounters& counters = (*this)[stage];
    counters.used_bytes += bytes;
    counters.used_bytes_peak = std::max(counters.used_bytes_peak, counters.used_bytes);
    OFP_ASSERT(counters.used_bytes <= counters.budget_bytes);
  }
  void release(std::uint32_t stage, std::uint64_t bytes) noexcept {
    StageCounters& counters = (*this)[stage];
    OFP_ASSERT(counters.used_bytes >= bytes);
    counters.used_bytes -= bytes;
  }
  void clear() noexcept { std::ranges::fill(counters_, StageCounters{}); }

 private:
  std::vector<StageCounters> counters_;
};

}  // namespace offpath::sift
