// Rows whose owners change when members come and go.
//
// The first former owner that still lives sends each row to the owners that lack it. A former owner that is not an
// owner any more sends its rows to all owners, and drops its own when they have them. If both sides have an object, the
// later put stays (versions.h). A failed move is tried again; until then its row has too few copies.
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

  // Sends members the rows that they own since the change. `anew`: members that lived before too, as another process.
  void plan(const std::vector<std::string>& anew);
  void add(Move move) { queue_.add(std::move(move)); }
  // For a row that arrived here although other members own it. Not sent at once: this agent may be the one that has not
  // heard of a change yet.
  void give_away_later(const Place& place, TimeNs now);
  // Starts as many as may be under way at a time.
  void on_time(TimeNs now, Effects& effects);
  void on_ended(const Put& put, const Status& status, TimeNs now);

  [[nodiscard]] bool has_room() const noexcept { return reading_.size() + puts_.moves() < context_.options.moves_max; }
  [[nodiscard]] TimeNs first() const noexcept { return queue_.first(); }
  // No move is under way or planned.
  [[nodiscard]] bool is_idle(TimeNs now) const noexcept {
    return reading_.empty() && puts_.moves() == 0 && queue_.first() > now;
  }
  [[nodiscard]] std::size_t size() const noexcept { return queue_.size() + reading_.size() + puts_.moves(); }
  // Whether some row of the pool that waits to move, or is moving, matches.
  template <class Matches>
  [[nodiscard]] bool any(const std::string& pool, Matches matches) const {
    const auto of_move = [&](const Move& move) { return matches(move.keys.first, move.to); };
    return queue_.any(pool, of_move) ||
           std::ranges::any_of(reading_,
                               [&](const auto& each) { return each.second.pool == pool && of_move(each.second); }) ||
           puts_.any_move(pool, matches);
  }
  // Keys of rows whose moves failed and will be repeated.
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
