// Rows that wait to move to other members, by pool, so that work on one pool visits no other pool's moves.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "pool/table/frame_table.h"

namespace offpath::pool {

struct Move {
  std::string pool;
  FrameTable::Keys keys;
  std::vector<std::string> to;
  bool drop_after;
  std::uint32_t failures = 0;  // before
  TimeNs begin_at = 0;
};

class MoveQueue {
 public:
  void add(Move move) {
    ++size_;
    const TimeNs at = move.begin_at;
    pools_[move.pool].emplace(at, std::move(move));
  }
  // The first, if its time has come.
  [[nodiscard]] std::optional<Move> take(TimeNs now) {
    const auto of = std::ranges::min_element(pools_, {}, first_of);
    if (of == pools_.end() || first_of(*of) > now) return std::nullopt;
    Move move = std::move(of->second.extract(of->second.begin()).mapped());
    if (of->second.empty()) pools_.erase(of);
    --size_;
    return move;
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  // When the first may begin.
  [[nodiscard]] TimeNs first() const noexcept {
    const auto of = std::ranges::min_element(pools_, {}, first_of);
    return of != pools_.end() ? first_of(*of) : never;
  }
  template <class Matches>
  [[nodiscard]] bool any(const std::string& pool, Matches matches) const {
    const auto of = pools_.find(pool);
    return of != pools_.end() &&
           std::ranges::any_of(of->second, [&](const auto& each) { return matches(each.second); });
  }
  template <class Look>
  void each(const std::string& pool, Look look) const {
    if (const auto of = pools_.find(pool); of != pools_.end())
      for (const auto& [at, move] : of->second) look(move);
  }
  void add_pools(std::set<std::string_view>& pools) const {
    for (const auto& each : pools_) pools.insert(each.first);
  }

 private:
  using Pools = std::map<std::string, std::multimap<TimeNs, Move>>;
  static TimeNs first_of(const Pools::value_type& pool) noexcept { return pool.second.begin()->first; }

  Pools pools_;
  std::size_t size_ = 0;
};

}  // namespace offpath::pool
