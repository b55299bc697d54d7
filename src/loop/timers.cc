#include "loop/timers.h"

#include <algorithm>
#include <utility>

namespace offpath::loop {

Timers::Id Timers::start(TimeNs due, Function function) {
  Id id = next_id_++;
  functions_.emplace(id, std::move(function));
  heap_.push_back({due, id});
  std::ranges::push_heap(heap_, later);
  return id;
}

bool Timers::cancel(Id id) {
  if (functions_.erase(id) == 0) return false;
  // Most timers are cancelled long before they are due; without this their entries would accumulate.
  if (heap_.size() > 64 && heap_.size() > 2 * functions_.size()) {
    std::erase_if(heap_, [&](const Entry& entry) { return !functions_.contains(entry.id); });
    std::ranges::make_heap(heap_, later);
  }
  return true;
}

void Timers::drop_cancelled() {
  while (!heap_.empty() && !functions_.contains(heap_.front().id)) {
    std::ranges::pop_heap(heap_, later);
    heap_.pop_back();
  }
}

TimeNs Timers::next_due() {
  drop_cancelled();
  return heap_.empty() ? never : heap_.front().due;
}

std::size_t Timers::fire(TimeNs now) {
  std::size_t fired = 0;
  Id first_new = next_id_;
  std::vector<Entry> started_meanwhile;
  while (next_due() <= now) {
    Entry entry = heap_.front();
    std::ranges::pop_heap(heap_, later);
    heap_.pop_back();
    if (entry.id >= first_new) {
      started_meanwhile.push_back(entry);
      continue;
    }
    Function function = std::move(functions_.extract(entry.id).mapped());
    function(now, entry.due);
    ++fired;
  }
  for (const Entry& entry : started_meanwhile) {
    heap_.push_back(entry);
    std::ranges::push_heap(heap_, later);
  }
  return fired;
}

}  // namespace offpath::loop
