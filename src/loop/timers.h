// Timers: functions that are called at their time. Reads no clock, so tests drive it in virtual time.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "base/clock.h"

namespace offpath::loop {

class Timers {
 public:
  using Id = std::uint64_t;
  // `due` is the requested time: now - due is the delay of the call, which may be long after a SIGSTOP.
  using Function = std::function<void(TimeNs now, TimeNs due)>;

  Id start(TimeNs due, Function function);
  bool cancel(Id id);  // false: it has been called or cancelled already

  // Calls the functions that are due, the earliest first and equal ones in the order of their start. Timers that these
  // functions start wait for the next call, even if they are due. Returns how many were called.
  std::size_t fire(TimeNs now);
  [[nodiscard]] TimeNs next_due();  // `never` if there is none
  [[nodiscard]] std::size_t size() const noexcept { return functions_.size(); }

 private:
  struct Entry {
    TimeNs due;
    Id id;
  };
  static bool later(const Entry& a, const Entry& b) noexcept { return a.due != b.due ? a.due > b.due : a.id > b.id; }
  void drop_cancelled();

  std::vector<Entry> heap_;  // the earliest first; entries of cancelled timers stay until they come up
  std::unordered_map<Id, Function> functions_;
  Id next_id_ = 1;
};

}  // namespace offpath::loop
