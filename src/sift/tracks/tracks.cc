#include "sift/tracks/tracks.h"

#include <algorithm>
#include <bit>
#include <map>

namespace offpath::sift {

namespace {

using Runs = std::vector<std::shared_ptr<const TrackRun>>;

// The oldest runs that fit together; two always do.
Runs fitting(const Runs& runs, std::uint64_t bytes_max) {
  Runs some;
  std::uint64_t bytes = 0;
  for (const std::shared_ptr<const TrackRun>& run : runs) {
    if (some.size() == TrackRuns::merged_runs_max) break;
    if (bytes + run->bytes() > bytes_max) continue;
    bytes += run->bytes();
    some.push_back(run);
  }
  return some;
}

}  // namespace

std::vector<std::shared_ptr<const TrackRun>> TrackRuns::choose(std::uint64_t bytes_max, TimeNs now) const {
  std::map<int, Runs> tiers;  // by log4 of their bytes
  for (const std::shared_ptr<const TrackRun>& run : runs_) {
    const auto rest = resting_.find(run.get());
    if (run->bytes() > bytes_max / 2 || run->is_damaged() || (rest != resting_.end() && now < rest->second.until))
      continue;
    tiers[std::bit_width(run->bytes()) / 2].push_back(run);
  }
  Runs chosen;
  std::size_t most = merged_runs - 1;
  for (const auto& [tier, runs] : tiers) {
    if (runs.size() <= most) continue;
    most = runs.size();
    chosen = fitting(runs, bytes_max);
  }
  return chosen;
}

std::vector<std::shared_ptr<const TrackRun>> TrackRuns::begin_merge(std::uint64_t bytes_max, TimeNs now) {
  if (merging_) return {};
  std::vector<std::shared_ptr<const TrackRun>> chosen = choose(bytes_max, now);
  merging_ = !chosen.empty();
  return chosen;
}

bool TrackRuns::are_many(std::uint64_t bytes_max) const noexcept {
  if (runs_.size() < waiting_runs_max) return false;
  const auto small = std::ranges::count_if(
      runs_, [&](const auto& run) { return run->bytes() <= bytes_max / 2 && !run->is_damaged(); });
  return static_cast<std::size_t>(small) >= waiting_runs_max;
}

void TrackRuns::end_merge(std::span<const std::shared_ptr<const TrackRun>> merged,
                          std::shared_ptr<const TrackRun> made) {
  merging_ = false;
  if (made == nullptr) return;
  for (const std::shared_ptr<const TrackRun>& run : merged) resting_.erase(run.get());
  const auto oldest = std::ranges::find(runs_, merged[0]);
  *oldest = std::move(made);
  std::erase_if(runs_, [&](const auto& run) { return std::ranges::find(merged, run) != merged.end(); });
}

const TrackSnapshot::Group* TrackSnapshot::group_of(std::uint64_t identifier) const noexcept {
  if (groups_.empty()) return nullptr;
  const KeyForm& keys = form_->rows->key();
  return group_at(keys.place_of(keys.key_of(identifier)));
}

const TrackSnapshot::Group* TrackSnapshot::group_of(Bytes long_identifier) const noexcept {
  return groups_.empty() ? nullptr : group_at(form_->rows->key().place_of(long_identifier));
}

const TrackSnapshot::Group* TrackSnapshot::group_at(std::uint64_t place) const noexcept {
  const auto index = static_cast<std::uint32_t>(place & (elements_ - 1));
  const auto found = std::ranges::lower_bound(groups_, index, {}, &Group::index);
  return found != groups_.end() && found->index == index ? &*found : nullptr;
}

std::uint64_t TrackSnapshot::rows() const noexcept {
  std::uint64_t rows = 0;
  for (const Group& group : groups_)
    for (const std::shared_ptr<const TrackRun>& run : group.runs) rows += run->rows();
  return rows;
}

std::optional<std::uint64_t> TrackSnapshot::rows_of(std::span<const std::uint64_t> identifiers) const {
  std::uint64_t rows = 0;
  if (form_ == nullptr || form_->rows->key().is_long()) return rows;  // numbers are not among them
  for (const std::uint64_t identifier : identifiers) {
    const Group* const group = group_of(identifier);
    if (group == nullptr) continue;
    for (const std::shared_ptr<const TrackRun>& run : group->runs) {
      if (!run->is_in_memory()) return std::nullopt;
      const std::uint64_t key = key_of(*form_->rows, identifier);
      const auto number = run->find_block(key);
      if (!number) continue;
      const auto block = run->block(*number, {});
      if (!block) return std::nullopt;
      const RowRange range = (*block)->find(key);
      rows += range.end - range.first;
    }
  }
  return rows;
}

}  // namespace offpath::sift
