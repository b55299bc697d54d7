#include "sift/elements/due_elements.h"

namespace offpath::sift {

DueElements::DueElements(const SiftOptions& options, StageBudgets& budgets, Elements& elements,
                         const TrackMerges& merges)
    : options_(options),
      budgets_(budgets),
      elements_(elements),
      merges_(merges),
      stages_(options.settings.track_stage()) {}

void DueElements::consider(Element& element, TimeNs now) {
  if (!element.replays.empty()) return element.replays.front().missing == 0 ? set_due(element) : void();
  if (element.pieces.empty()) return;
  if (element.bytes >= options_.settings.threshold_bytes || !element.flushes.empty()) return set_due(element);
  const TimeNs old = deadline_after(element.pieces.front().arrived_ns, options_.settings.age_ns);
  if (old <= now) return set_due(element);
  if (element.age_timer) return;
  element.age_timer = true;
  timers_.emplace(old, Timer{element.id});
}

void DueElements::set_due(Element& element) {
  if (element.due || element.batch != nullptr || element.rests || merges_.hold_back(element)) return;
  element.due = true;
  stages_[element.id.stage - 1].due.push_back(element.id);
}

bool DueElements::relieve(std::uint32_t number) {
  const Stage& stage = stages_[number - 1];
  if (stage.running > 0 || budgets_[number].outgoing > 0 || !stage.due.empty()) return false;
  Element* largest = nullptr;
  const Elements::Map& all = elements_.all();
  for (auto each = all.lower_bound({number, 0}); each != all.end() && each->first.stage == number; ++each) {
    Element& element = *each->second;
    if (element.bytes > 0 && !element.rests && element.replays.empty() && !merges_.hold_back(element) &&
        (largest == nullptr || element.bytes > largest->bytes))
      largest = &element;
  }
  if (largest == nullptr) return false;
  set_due(*largest);
  if (largest->due) ++budgets_[number].split_under_pressure;
  return largest->due;
}

void DueElements::pop_first(std::uint32_t stage) {
  first(stage).due = false;
  stages_[stage - 1].due.pop_front();
}

void DueElements::rest(Element& element, TimeNs now) {
  element.rests = true;
  timers_.emplace(options_.retry_at(element.failures++, now), Timer{element.id, true});
}

Element* DueElements::take_timer(TimeNs now) {
  if (timers_.empty() || timers_.begin()->first > now) return nullptr;
  const Timer timer = timers_.begin()->second;
  timers_.erase(timers_.begin());
  Element& element = elements_[timer.element];
  if (!timer.rests) {
    element.age_timer = false;
    return &element;
  }
  element.rests = false;
  set_due(element);  // unless merges hold it back: then their end makes it due
  return &element;
}

void DueElements::clear() {
  for (Stage& each : stages_) each = {};
  timers_.clear();
}

}  // namespace offpath::sift
