#include "sift/elements/track_merges.h"

#include <utility>

#include "base/log.h"

namespace offpath::sift {

void TrackMerges::queue(Element& element, TimeNs now) {
  if (element.merge_waits || now < element.retry_at || !element.tracks.can_merge(memory_.run_bytes_max(), now)) return;
  element.merge_waits = true;
  waiting_.push_back(element.id);
}

std::optional<TrackMerges::Merge> TrackMerges::begin(TimeNs now) {
  if (waiting_.empty()) {
    memory_.no_merge_waits();
    return std::nullopt;
  }
  Merge merge{elements_[waiting_.front()], {}};
  merge.runs = merge.element.tracks.begin_merge(memory_.run_bytes_max(), now);
  if (!merge.runs.empty()) {
    for (const auto& run : merge.runs) merge.run_bytes += run->bytes();
    merge.run_bytes += memory_.list_bytes_max(merge.run_bytes, form_.tracks->rows->key());
    if (!memory_.take(merge.run_bytes, TrackMemory::For::merge)) {
      merge.element.tracks.end_merge(merge.runs, nullptr);
      return std::nullopt;
    }
  }
  merge.element.merge_waits = false;
  waiting_.pop_front();
  return merge;
}

void TrackMerges::end(Element& element, const Batch& batch, const Runs& merged, std::string name, const Status& status,
                      TimeNs now, Effects& effects) {
  element.tracks.end_merge(merged, status ? batch.run : nullptr);
  memory_.give_back(batch.run_bytes);
  if (status) {
    ++budgets_[element.id.stage].merges;
    if (std::exchange(element.merge_failures, 0) > 0)
      log(LogLevel::info, "pool '{}': runs of tracks of element {} can be merged again", options_.settings.pool,
          element.id.index);
    for (const auto& run : merged) memory_.retire(run, effects);
    memory_.add(batch.run, std::move(name), options_.kept);
  } else {
    note_failure(element, batch, merged, status.error(), now);
  }
  queue(element, now);
}

// A run that cannot be read keeps only itself from being merged: it rests, or is damaged and was logged as that
// (tracks/track_run.h). For any other cause the element rests.
void TrackMerges::note_failure(Element& element, const Batch& batch, const Runs& merged, const Failure& why,
                               TimeNs now) {
  ++budgets_[element.id.stage].merge_failures;
  const TrackRun* const unread = batch.unread ? merged[*batch.unread].get() : nullptr;
  if (unread != nullptr && unread->is_damaged()) return;
  const std::uint32_t before = unread != nullptr ? element.tracks.failures_of(*unread) : element.merge_failures++;
  const TimeNs again = options_.merge_again_at(before, now);
  if (unread != nullptr)
    element.tracks.rest(*unread, again);
  else
    element.retry_at = again;
  timers_.emplace(again, element.id);
  if (before > 0) return;
  log(LogLevel::warning,
      "pool '{}': {} of element {} cannot be merged: {}. Nothing is lost, and the agent tries again after a pause that "
      "grows to {} s: make room, or check the disk",
      options_.settings.pool, unread != nullptr ? "a run of tracks" : "runs of tracks", element.id.index, why.message,
      options_.merge_retry_max_ns / second_ns);
}

Element* TrackMerges::take_timer(TimeNs now) {
  if (timers_.empty() || timers_.begin()->first > now) return nullptr;
  Element& element = elements_[timers_.begin()->second];
  timers_.erase(timers_.begin());
  queue(element, now);
  return &element;
}

void TrackMerges::clear() {
  waiting_.clear();
  timers_.clear();
}

}  // namespace offpath::sift
