// Merges of the runs of tracks of a pool's elements: which wait for room, in the order in which they became due, and
// when those that failed are tried again.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "sift/element.h"
#include "sift/tracks/track_memory.h"

namespace offpath::sift {

class TrackMerges {
 public:
  using Runs = std::vector<std::shared_ptr<const TrackRun>>;

  // The references outlive this.
  TrackMerges(const SiftOptions& options, const PoolForm& form, StageBudgets& budgets, Elements& elements,
              TrackMemory& memory) noexcept
      : options_(options), form_(form), budgets_(budgets), elements_(elements), memory_(memory) {}

  // After a change of the element's runs: a merge waits if there is one to be made.
  void queue(Element& element, TimeNs now);
  // The element has so many runs that a sort would only add to them.
  [[nodiscard]] bool hold_back(const Element& element) const noexcept {
    return (element.merge_waits || element.tracks.is_merging()) && element.tracks.are_many(memory_.run_bytes_max());
  }

  // The merge that waits first, whose memory is taken. Without runs there is nothing to merge any more.
  struct Merge {
    Element& element;
    Runs runs;
    std::uint64_t run_bytes = 0;
  };
  // Nothing: no merge waits, or there is no room for the resulting run.
  [[nodiscard]] std::optional<Merge> begin(TimeNs now);
  // `batch` has the result. `merged` are the runs of begin(). `name`: of the result's object.
  void end(Element& element, const Batch& batch, const Runs& merged, std::string name, const Status& status, TimeNs now,
           Effects& effects);

  // An element whose pause after a failure is over, and which was queued again. Null: there is none by now.
  [[nodiscard]] Element* take_timer(TimeNs now);
  [[nodiscard]] TimeNs next_deadline() const noexcept { return timers_.empty() ? never : timers_.begin()->first; }
  void clear();

 private:
  void note_failure(Element& element, const Batch& batch, const Runs& merged, const Failure& why, TimeNs now);

  const SiftOptions& options_;
  const PoolForm& form_;
  StageBudgets& budgets_;
  Elements& elements_;
  TrackMemory& memory_;
  std::deque<ElementId> waiting_;
  std::multimap<TimeNs, ElementId> timers_;
};

}  // namespace offpath::sift
