// When each of many keys is due. Finding the earliest costs one access, changing one costs a search; neither visits all
// keys.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace offpath {

template <class Key>
class DueTimes {
 public:
  // `never` removes the key.
  void set(const Key& key, TimeNs at) {
    const auto known = times_.find(key);
    if (known == times_.end()) {
      if (at == never) return;
      order_.emplace(at, key);
      times_.emplace(key, at);
    } else if (known->second != at) {
      order_.erase({known->second, key});
      if (at != never) order_.emplace(at, key);
      if (at != never)
        known->second = at;
      else
        times_.erase(known);
    }
  }
  void erase(const Key& key) { set(key, never); }
  [[nodiscard]] TimeNs first() const noexcept { return order_.empty() ? never : order_.begin()->first; }
  [[nodiscard]] std::vector<Key> all() const {
    std::vector<Key> keys;
    for (const auto& [key, at] : times_) keys.push_back(key);
    return keys;
  }
  // Removes and returns the keys that are due, ordered by time.
  [[nodiscard]] std::vector<Key> take(TimeNs now) {
    std::vector<Key> due;
    while (!order_.empty() && order_.begin()->first <= now) {
      due.push_back(order_.begin()->second);
      times_.erase(due.back());
      order_.erase(order_.begin());
    }
    return due;
  }

 private:
  std::map<Key, TimeNs> times_;
  std::set<std::pair<TimeNs, Key>> order_;
};

}  // namespace offpath
