// Rows whose owners change when members come and go.
//
// Of the owners before, the first that still lives sends each of its rows to the owners that have not got it; an owner
// before that is none any more sends to all, and drops its own when they have it. Of what arrives and what is there the
// later put stays (versions.h). A move that fails is tried again: its row has fewer copies than it is to have until
// then.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "pool/peers/pool_context.h"
#include "pool/rows/move_queue.h"
#include "pool/rows/puts.h"

namespace offpath::pool {

class Moves {
 public:
  Moves(PoolContext& context, Puts& puts) : context_(context), puts_(puts) {}

  // Sends members the rows that are theirs since they changed. `anew`: those that lived before too, as another process.
  void plan(const std::vector<std::string>& anew);
  void add(Move move) { queue_.add(std::move(move)); }
  // For a row that came here though other members own it. Not at once: this agent may be the one that has not heard yet
  // that members changed.
  void give_away_later(const Place& place, TimeNs now);
  // Starts as many as may be under way at a time.
  void on_time(TimeNs now, Effects& effects);
  void on_ended(const Put& put, const Status& status, TimeNs now);

  [[nodiscard]] bool has_room() const noexcept { return reading_.size() + puts_.moves() < context_.options.moves_max; }
  [[nodiscard]] TimeNs first() const noexcept { return queue_.first(); }
  // None is under way, or about to be.
  [[nodiscard]] bool is_idle(TimeNs now) const noexcept {
    return reading_.empty() && puts_.moves() == 0 && queue_.first() > now;
  }
  [[nodiscard]] std::size_t size() const noexcept { return queue_.size() + reading_.size() + puts_.moves(); }
  // Whether a row of the pool that waits to go to other members, or is on its way to them, is such a one.
  template <class Matches>
  [[nodiscard]] bool any(const std::string& pool, Matches matches) const {
    const auto of_move = [&](const Move& move) { return matches(move.keys.first, move.to); };
    return queue_.any(pool, of_move) ||
           std::ranges::any_of(reading_,
                               [&](const auto& each) { return each.second.pool == pool && of_move(each.second); }) ||
           puts_.any_move(pool, matches);
  }
  // Keys of rows whose moves failed, and are made again by and by.
  [[nodiscard]] std::set<FrameTable::Keys> failed(const std::string& pool) const;
  void add_pools(std::set<std::string_view>& names) const;

 private:
  void start(const Move& move, const FrameTable::Held& held, TimeNs now, Effects& effects);
  void on_read(std::uint64_t number, const Version& version, const Result<FramePtr>& read, TimeNs now,
               Effects& effects);

  PoolContext& context_;
  Puts& puts_;
  MoveQueue queue_;
  std::map<std::uint64_t, Move> reading_;  // whose rows are being read back from disk
};

}  // namespace offpath::pool
