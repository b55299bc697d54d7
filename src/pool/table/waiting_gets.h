// Requests for objects that are not there. Tens of thousands may wait, of one user: what a put or a round of the loop
// looks at does not grow with them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "mover/mover.h"
#include "wire/region.h"

namespace offpath::pool {

struct Get {
  mover::ChannelNumber channel = 0;
  std::uint64_t ticket = 0;
  uid_t user = 0;
  std::string pool;
  std::pair<std::string, std::string> keys;  // row, column
  bool of_member = false;
  wire::BufferRef inbox{};     // of the member; what does not fit is delivered
  std::string reader{};        // the member
  std::uint64_t delivery = 0;  // its number for it
  std::int64_t wait_ns = 0;
  TimeNs deadline = never;
};

class WaitingGets {
 public:
  void add(Get get);
  [[nodiscard]] std::size_t size() const noexcept { return gets_.size(); }
  [[nodiscard]] std::uint64_t key_bytes() const noexcept { return key_bytes_; }
  [[nodiscard]] TimeNs next_deadline() const noexcept {
    return by_deadline_.empty() ? never : by_deadline_.begin()->first;
  }

  void add_pools(std::set<std::string_view>& names) const;  // that are waited for

  // Each in the order in which they came; the late ones in that of their deadlines.
  [[nodiscard]] std::vector<Get> take(const std::string& pool, const std::pair<std::string, std::string>& keys);
  [[nodiscard]] std::vector<Get> take_late(TimeNs now);
  [[nodiscard]] std::vector<Get> take_if(const std::function<bool(const Get&)>& chosen);  // looks at all of them

 private:
  using Number = std::uint64_t;  // counts them
  struct Wanted {
    const std::string* pool;  // of the get itself, which does not move
    const std::pair<std::string, std::string>* keys;
    Number number;
    [[nodiscard]] bool operator<(const Wanted& other) const noexcept {
      if (const int order = pool->compare(*other.pool); order != 0) return order < 0;
      if (const auto order = *keys <=> *other.keys; order != 0) return order < 0;
      return number < other.number;
    }
  };
  Get extract(Number number);

  std::map<Number, Get> gets_;
  std::set<Wanted> by_keys_;
  std::set<std::pair<TimeNs, Number>> by_deadline_;
  std::uint64_t key_bytes_ = 0;
  Number last_ = 0;
};

}  // namespace offpath::pool
