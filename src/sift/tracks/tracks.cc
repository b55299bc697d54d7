#include "sift/tracks/tracks.h"

#include <algorithm>
#include <bit>
#include <map>

namespace offpath::sift {

std::vector<std::shared_ptr<const TrackRun>> TrackRuns::begin_merge(std::uint64_t bytes_max) {
  std::vector<std::shared_ptr<const TrackRun>> chosen;
  if (merging_) return chosen;
  std::map<int, std::vector<std::shared_ptr<const TrackRun>>> tiers;  // by log4 of their bytes
  for (const std::shared_ptr<const TrackRun>& run : runs_) tiers[std::bit_width(run->bytes()) / 2].push_back(run);
  for (auto& [tier, runs] : tiers) {
    if (runs.size() < merged_runs) continue;
    std::uint64_t bytes = 0;
    for (const std::shared_ptr<const TrackRun>& run : runs) {
      if (bytes + run->bytes() > bytes_max) break;
      bytes += run->bytes();
      chosen.push_back(run);
    }
    if (chosen.size() >= 2) {
      merging_ = true;
      return chosen;
    }
    chosen.clear();
  }
  return chosen;
}

void TrackRuns::end_merge(std::span<const std::shared_ptr<const TrackRun>> merged,
                          std::shared_ptr<const TrackRun> made) {
  merging_ = false;
  if (made == nullptr) return;
  const auto oldest = std::ranges::find(runs_, merged[0]);
  *oldest = std::move(made);
  std::erase_if(runs_, [&](const auto& run) { return std::ranges::find(merged, run) != merged.end(); });
}

const TrackSnapshot::Group* TrackSnapshot::group_of(std::uint64_t identifier) const noexcept {
  const auto index = static_cast<std::uint32_t>(identifier & (elements_ - 1));
  const auto found = std::ranges::lower_bound(groups_, index, {}, &Group::index);
  return found != groups_.end() && found->index == index ? &*found : nullptr;
}

std::uint64_t TrackSnapshot::rows() const noexcept {
  std::uint64_t rows = 0;
  for (const Group& group : groups_)
    for (const std::shared_ptr<const TrackRun>& run : group.runs) rows += run->rows();
  return rows;
}

std::uint64_t TrackSnapshot::rows_of(std::span<const std::uint64_t> identifiers) const noexcept {
  std::uint64_t rows = 0;
  for (const std::uint64_t identifier : identifiers) {
    const Group* const group = group_of(identifier);
    if (group == nullptr) continue;
    for (const std::shared_ptr<const TrackRun>& run : group->runs) {
      const RowRange range = run->find(key_of(*form_->rows, identifier));
      rows += range.end - range.first;
    }
  }
  return rows;
}

}  // namespace offpath::sift
