// The reads of a pool's clients, and whether some serial order of their puts explains them. Knows nothing of agents: a
// test reports when members were cut off from each other, and when all consequences were settled.
//
// A stored put replaces the puts that it had to know: a put that ended before it began, on its own side of a cut, or
// before the cut, when members were at rest. Of puts that are not ordered so any may be the one that lasts. A read
// returns a put that had begun and that no put known there has replaced.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/clock.h"

namespace offpath::sim {

class History {
 public:
  // Members changed, or can reach others than before: nothing is at rest.
  void change(bool whole) {
    ++period_;
    whole_ = whole;
    rest_ = false;
  }
  void rest() { rest_ = true; }
  [[nodiscard]] bool whole_and_at_rest() const noexcept { return whole_ && rest_; }

  // The value's number identifies the put.
  void begin_put(const std::string& key, std::uint64_t value, unsigned side, TimeNs now) {
    puts_[key].emplace(value, Put{now, never, false, moment(side), 0});
  }
  void end_put(const std::string& key, std::uint64_t value, bool stored, TimeNs now) {
    Put& put = puts_[key].at(value);
    put.end = now;
    put.stored = stored;
    put.ended_in = period_;
  }

  // The error of a read that began then; nothing, if it is right. No value: there was no object.
  [[nodiscard]] std::string judge_read(const std::string& key, std::optional<std::uint64_t> value, unsigned side,
                                       TimeNs began) const {
    const Moment read = moment(side);
    const auto of_key = puts_.find(key);
    const auto is_known = [&](const Put& put) { return put.stored && put.end < began && knows(read, put.moment); };
    if (!value) {
      if (of_key == puts_.end()) return {};
      for (const auto& [number, put] : of_key->second)
        if (is_known(put)) return fmt::format("{}: put {} was stored, and there is no object", key, number);
      return {};
    }
    if (of_key == puts_.end() || !of_key->second.contains(*value))
      return fmt::format("{}: {} was read, which nobody put", key, *value);
    const Put& returned = of_key->second.at(*value);
    for (const auto& [number, put] : of_key->second)
      if (is_known(put) && replaces(put, returned))
        return fmt::format("{}: put {} was read, and put {} had replaced it", key, *value, number);
    return {};
  }

  // Keys that were put last on both sides of one cut, while it lasted: of two stored puts one was given up when it
  // healed.
  [[nodiscard]] std::set<std::string> torn() const {
    std::set<std::string> keys;
    for (const auto& [key, puts] : puts_) {
      std::uint64_t last = 0;
      for (const auto& [value, put] : puts) last = std::max(last, put.moment.period);
      std::set<unsigned> sides;
      for (const auto& [value, put] : puts)
        if (put.stored && put.moment.period == last && put.ended_in == last) sides.insert(put.moment.side);
      if (sides.size() > 1) keys.insert(key);
    }
    return keys;
  }
  [[nodiscard]] std::vector<std::string> keys() const {
    std::vector<std::string> all;
    for (const auto& [key, puts] : puts_) all.push_back(key);
    return all;
  }

 private:
  struct Moment {
    std::uint64_t period;
    unsigned side;
    bool whole, rest;
  };
  struct Put {
    TimeNs began, end;
    bool stored;
    Moment moment;  // of its beginning
    std::uint64_t ended_in;
  };
  [[nodiscard]] Moment moment(unsigned side) const noexcept { return {period_, side, whole_, rest_}; }
  // Whether a put stored then is known to the reader now.
  [[nodiscard]] static bool knows(const Moment& now, const Moment& then) noexcept {
    if (!now.rest) return false;
    if (now.whole) return true;
    return now.period == then.period && now.side == then.side && then.rest;
  }
  [[nodiscard]] static bool replaces(const Put& later, const Put& earlier) noexcept {
    if (!later.stored || earlier.end >= later.began || !later.moment.rest) return false;
    // By its time it is later wherever the earlier one lies.
    if (earlier.moment.whole && earlier.moment.rest) return true;
    return knows(later.moment, earlier.moment);
  }

  std::map<std::string, std::map<std::uint64_t, Put>> puts_;
  std::uint64_t period_ = 0;
  bool whole_ = true, rest_ = false;
};

}  // namespace offpath::sim
