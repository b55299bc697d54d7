#include "sift/arrival/charges.h"

#include <algorithm>

namespace offpath::sift {

// Before the pool's first rows it is the most that any form may need, but nothing that the budget cannot admit.
std::uint64_t Charges::of_sort(std::uint64_t frame_bytes, std::uint64_t rows) const noexcept {
  if (form_.tracks != nullptr) return rows * TrackRun::sort_bytes_per_row(*form_.tracks->rows);
  const std::uint64_t budget = options_.settings.budget_bytes;
  const std::uint64_t needed = BufferCache::class_bytes(frame_bytes) + of_split(1);
  const std::uint64_t row_bytes = frame_bytes / std::max<std::uint64_t>(rows, 1);
  return std::min(rows * TrackRun::sort_bytes_per_row(row_bytes), budget - std::min(budget, needed));
}

std::uint64_t Charges::of_piece(std::uint64_t frame_bytes, std::uint64_t rows) const noexcept {
  // In a kept pool the copy with its notes, which is made before a split or a sort, needs the first of the two.
  if (options_.kept) frame_bytes += kept_notes_bytes_max;
  return BufferCache::class_bytes(frame_bytes) + std::max(frame_bytes + frame_bytes / 8, of_sort(frame_bytes, rows));
}

std::uint64_t Charges::of_kept_piece(const KeptItem& item, std::uint32_t stage) const noexcept {
  const std::uint64_t budget = options_.settings.budget_bytes;  // the object includes its notes
  // All pieces of a split need room together, and were admitted by an agent that may have charged less for sorts.
  const std::uint64_t sort = stage == options_.settings.track_stage() ? of_sort(item.bytes, item.rows) : 0;
  const std::uint64_t needed = BufferCache::class_bytes(item.bytes) + std::max(item.bytes + item.bytes / 8, sort);
  return std::min(needed, budget - std::min(budget, of_split(stage)));
}

std::uint64_t Charges::of_split(std::uint32_t stage) const noexcept {
  if (stage == options_.settings.track_stage()) return 0;
  return parts_bytes_max(0, 0, options_.settings.fanout, form_.overhead_bytes);
}

Status Charges::check(std::uint64_t charge) const {
  const std::uint64_t needed = charge + of_split(1);
  if (needed <= options_.settings.budget_bytes) return {};
  return fail(
      Error::too_large,
      "a piece may need {} bytes to be split, but the budget of '{}' is {} bytes for each stage: name the pool with a "
      "larger budget=, or send fewer rows at a time",
      needed, options_.settings.pool, options_.settings.budget_bytes);
}

}  // namespace offpath::sift
