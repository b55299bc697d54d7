// The runs of one element of the last stage, and snapshots of them for readers.
//
// A batch of pieces is sorted into a run. Four runs of similar size are merged into one, in a job, while they are being
// read (a log-structured merge, by tiers). So each row is copied log4(rows / rows of a batch) times, and a look-up
// searches at most three runs of each size: a dozen for a thousand batches. One sorted table instead would be moved for
// each batch; a list for each identifier would scatter its rows, and cost a head and a tail for each of a hundred
// million.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "sift/tracks/track_run.h"

namespace offpath::sift {

class TrackRuns {
 public:
  static constexpr std::size_t merged_runs = 4;

  void add(std::shared_ptr<const TrackRun> run) { runs_.push_back(std::move(run)); }
  // Runs to be merged, oldest first; none if there is nothing to merge or a merge is under way. Their result does not
  // exceed bytes_max.
  [[nodiscard]] std::vector<std::shared_ptr<const TrackRun>> begin_merge(std::uint64_t bytes_max);
  // `made` is null if it failed: the runs stay, and are merged when the next one is added.
  void end_merge(std::span<const std::shared_ptr<const TrackRun>> merged, std::shared_ptr<const TrackRun> made);
  [[nodiscard]] const std::vector<std::shared_ptr<const TrackRun>>& runs() const noexcept { return runs_; }

 private:
  std::vector<std::shared_ptr<const TrackRun>> runs_;
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
  [[nodiscard]] const std::shared_ptr<const TrackForm>& form() const noexcept {
    return form_;
  }  // null: there was no piece
  [[nodiscard]] std::uint64_t rows() const noexcept;
  [[nodiscard]] std::uint64_t rows_of(std::span<const std::uint64_t> identifiers) const noexcept;

 private:
  std::shared_ptr<const TrackForm> form_;
  std::uint32_t elements_;
  std::vector<Group> groups_;
};

}  // namespace offpath::sift
