// The runs of one element of the last stage, and snapshots of them for readers.
//
// A batch of pieces is sorted into a run. Four runs of similar size are merged into one, in a job, while they are being
// read (a log-structured merge, by tiers). So each row is copied log4(rows / rows of a batch) times, and a look-up
// searches at most three runs of each size: a dozen for a thousand batches. One sorted table instead would be moved for
// each batch; a list for each identifier would scatter its rows, and cost a head and a tail for each of a hundred
// million.
//
// The tier with most runs is merged first, so that small runs that come fast do not keep larger ones from being merged.
// A run with a temporarily unreadable block rests, and one with a lost block stays unmerged; the others are merged
// without them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "sift/tracks/track_run.h"

namespace offpath::sift {

class TrackRuns {
 public:
  static constexpr std::size_t merged_runs = 4;        // of one tier, at least
  static constexpr std::size_t merged_runs_max = 16;   // at a time, as one block of each is in memory
  static constexpr std::size_t waiting_runs_max = 32;  // that a merge could take; then sorts wait for merges

  void add(std::shared_ptr<const TrackRun> run) { runs_.push_back(std::move(run)); }
  // Runs to be merged, oldest first; none if there is nothing to merge or a merge is under way. Their result does not
  // exceed bytes_max.
  [[nodiscard]] std::vector<std::shared_ptr<const TrackRun>> begin_merge(std::uint64_t bytes_max, TimeNs now);
  [[nodiscard]] bool can_merge(std::uint64_t bytes_max, TimeNs now) const {
    return !merging_ && !choose(bytes_max, now).empty();
  }
  [[nodiscard]] bool is_merging() const noexcept { return merging_; }
  // Merges have fallen behind: there are too many runs below half of bytes_max.
  [[nodiscard]] bool are_many(std::uint64_t bytes_max) const noexcept;
  // A block of the run could not be read, again: it is not merged before `until`.
  void rest(const TrackRun& run, TimeNs until) {
    Rest& rest = resting_[&run];
    rest.until = until;
    ++rest.failures;
  }
  // In a row.
  [[nodiscard]] std::uint32_t failures_of(const TrackRun& run) const {
    const auto rest = resting_.find(&run);
    return rest == resting_.end() ? 0 : rest->second.failures;
  }
  // `made` is null if it failed: the runs stay.
  void end_merge(std::span<const std::shared_ptr<const TrackRun>> merged, std::shared_ptr<const TrackRun> made);
  [[nodiscard]] const std::vector<std::shared_ptr<const TrackRun>>& runs() const noexcept { return runs_; }

 private:
  struct Rest {
    TimeNs until = 0;
    std::uint32_t failures = 0;
  };
  [[nodiscard]] std::vector<std::shared_ptr<const TrackRun>> choose(std::uint64_t bytes_max, TimeNs now) const;

  std::vector<std::shared_ptr<const TrackRun>> runs_;
  std::map<const TrackRun*, Rest> resting_;  // runs of which a block could not be read
  bool merging_ = false;
};

// Runs of some elements, kept alive for a reader.
class TrackSnapshot {
 public:
  // `elements`: number of elements of the whole last stage.
  TrackSnapshot(std::shared_ptr<const TrackForm> form, std::uint32_t elements)
      : form_(std::move(form)), elements_(elements) {}
  // In ascending order of indices.
  void add(std::uint32_t index, const std::vector<std::shared_ptr<const TrackRun>>& runs) {
    if (!runs.empty()) groups_.push_back({index, runs});
  }

  struct Group {
    std::uint32_t index;
    std::vector<std::shared_ptr<const TrackRun>> runs;
  };
  [[nodiscard]] const std::vector<Group>& groups() const noexcept { return groups_; }
  // The runs that may have an identifier's rows.
  [[nodiscard]] const Group* group_of(std::uint64_t identifier) const noexcept;
  [[nodiscard]] const Group* group_of(Bytes long_identifier) const noexcept;
  [[nodiscard]] const std::shared_ptr<const TrackForm>& form() const noexcept {
    return form_;
  }  // null: there was no piece
  [[nodiscard]] std::uint64_t rows() const noexcept;
  // An upper bound on the identifiers' rows; empty: unknown without reading the disk.
  [[nodiscard]] std::optional<std::uint64_t> rows_of(std::span<const std::uint64_t> identifiers) const;

 private:
  [[nodiscard]] const Group* group_at(std::uint64_t place) const noexcept;

  std::shared_ptr<const TrackForm> form_;
  std::uint32_t elements_;
  std::vector<Group> groups_;
};

}  // namespace offpath::sift
