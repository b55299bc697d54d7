// Elements of a pool that are to be split, in the order in which they became due, and the splits that run. An element
// is due when it has enough bytes, when a flush waits for its pieces, or when its oldest piece has waited long enough.
// One whose split failed rests first.
//
// Read this first in src/sift/elements, then batches.h (what a split takes), track_merges.h (merges of tracks),
// element_records.h (what is kept of an element) and restoring.h (elements after a restart).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "sift/element.h"
#include "sift/elements/track_merges.h"
#include "sift/sift_options.h"

namespace offpath::sift {

class DueElements {
 public:
  // The references outlive this.
  DueElements(const SiftOptions& options, StageBudgets& budgets, Elements& elements, const TrackMerges& merges);

  // After a change of the element: it becomes due if it has to, or is looked at again when its oldest piece is old.
  void consider(Element& element, TimeNs now);
  // For pieces without room. If no work under way will make room for them, the largest element of the stage is split
  // early; otherwise false.
  [[nodiscard]] bool relieve(std::uint32_t stage);

  [[nodiscard]] bool empty(std::uint32_t stage) const noexcept { return stages_[stage - 1].due.empty(); }
  [[nodiscard]] Element& first(std::uint32_t stage) { return elements_[stages_[stage - 1].due.front()]; }
  void pop_first(std::uint32_t stage);

  // ---- splits, or sorts, that run
  void begin(std::uint32_t stage) noexcept { ++stages_[stage - 1].running; }
  void end(std::uint32_t stage) noexcept { --stages_[stage - 1].running; }
  void rest(Element& element, TimeNs now);  // its split failed

  // ---- time
  // An element that is old, or has rested: it may be due now. Null: there is none by now.
  [[nodiscard]] Element* take_timer(TimeNs now);
  [[nodiscard]] TimeNs next_deadline() const noexcept { return timers_.empty() ? never : timers_.begin()->first; }
  void clear();

 private:
  struct Stage {
    std::deque<ElementId> due;
    std::uint32_t running = 0;
  };
  struct Timer {
    ElementId element;
    bool rests = false;  // otherwise its oldest piece is old
  };

  void set_due(Element& element);

  const SiftOptions& options_;
  StageBudgets& budgets_;
  Elements& elements_;
  const TrackMerges& merges_;
  std::vector<Stage> stages_;
  std::multimap<TimeNs, Timer> timers_;
};

}  // namespace offpath::sift
