#include "tcp/flow/scoreboard.h"

#include <algorithm>

#include "base/status.h"

namespace offpath::tcp {

void Scoreboard::delivered(const Hole& hole) noexcept {
  if (hole.state == State::resent)
    newest_ = std::max(newest_, hole.order);
  else if (hole.at != 0)
    saw_reordering_ = true;
}

void Scoreboard::lose(Hole& hole) noexcept {
  if (hole.state != State::lost) ++losses_;
  if (hole.state == State::resent) hole.at = 0;  // it cannot show reordering any more
  hole.state = State::lost;
}

void Scoreboard::acknowledge(Sequence una) {
  auto hole = holes_.begin();
  for (; hole != holes_.end() && hole->begin < una; ++hole) {
    delivered(*hole);
    if (hole->end > una) {
      hole->begin = una;
      break;
    }
  }
  holes_.erase(holes_.begin(), hole);
  highest_ = later(highest_, una);
  reported_ = later(reported_, una);
}

std::uint32_t Scoreboard::select(SequenceRange block, Sequence una, Sequence next, TimeNs now) {
  if (block.begin >= block.end || block.begin < una || block.end > next) return 0;
  make_room();
  const bool full = holes_.size() >= islands_max;
  if (full && block.begin > highest_) return 0;
  std::uint32_t bytes = 0;
  if (block.end > highest_) {
    if (block.begin > highest_)
      holes_.push_back({highest_, block.begin, State::waiting, 0, next, std::max<TimeNs>(now, 1)});
    bytes += bytes_between(later(highest_, block.begin), block.end);
    highest_ = block.end;
  }
  reported_ = later(reported_, block.end);
  for (std::size_t i = 0; i < holes_.size();) {
    Hole& hole = holes_[i];
    const Sequence begin = later(hole.begin, block.begin), end = earlier(hole.end, block.end);
    if (begin >= end || (full && begin > hole.begin && end < hole.end)) {
      ++i;
      continue;
    }
    delivered(hole);
    bytes += bytes_between(begin, end);
    const Hole rest{end, hole.end, hole.state, hole.order, hole.next, hole.at};
    hole.end = begin;
    if (rest.begin < rest.end) holes_.insert(holes_.begin() + static_cast<std::ptrdiff_t>(i) + 1, rest);
    if (holes_[i].begin == holes_[i].end) {
      holes_.erase(holes_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  return bytes;
}

void Scoreboard::lose_all(Sequence una, Sequence next) {
  if (una == next) return;
  const bool reneged = holes_.empty() ? highest_ > una : holes_.front().begin != una;
  if (reneged) {
    holes_.clear();
    highest_ = reported_ = una;
  }
  for (Hole& hole : holes_) lose(hole);
  if (highest_ < next) holes_.push_back({highest_, next, State::lost, 0, next, 0});
  highest_ = next;
}

void Scoreboard::lose_front(Sequence una, std::uint32_t bytes, Sequence next) {
  const Sequence end = earlier(una + bytes, next);
  if (!holes_.empty() && holes_.front().begin == una) {
    lose(holes_.front());
  } else if (una < end && highest_ <= una) {
    holes_.push_back({una, end, State::lost, 0, next, 0});
    highest_ = end;
  }
}

TimeNs Scoreboard::judge(const Rules& rules, TimeNs now) {
  std::uint32_t islands = 0, selected = 0;
  Sequence behind = highest_;  // where the next hole begins
  TimeNs next_at = never;
  const bool by_time = rules.window_ns != never;
  // Without reordering so far, any hole that was overtaken during a recovery is lost (RFC 8985, 6.2 step 4).
  const TimeNs window = rules.counts && rules.recovers ? 0 : rules.window_ns;
  for (auto hole = holes_.rbegin(); hole != holes_.rend(); ++hole) {
    if (hole->end != behind) {
      ++islands;
      selected += bytes_between(hole->end, behind);
    }
    behind = hole->begin;
    if (hole->state == State::lost) continue;
    bool lost = false, overtaken = false;
    TimeNs due = never;
    if (hole->state == State::waiting) {
      lost = rules.counts && (islands >= 3 || selected > 2 * rules.mss);
      overtaken = hole->at != 0;
      if (by_time) due = hole->at + window;
    } else {
      lost = rules.counts && (highest_ > hole->next + 2 * rules.mss || newest_ >= hole->order + 3);
      overtaken = highest_ > hole->next || newest_ > hole->order;
      if (by_time && rules.round_trip_ns != 0) due = hole->at + rules.round_trip_ns + window;
    }
    if (lost || (overtaken && now >= due))
      lose(*hole);
    else if (overtaken)
      next_at = std::min(next_at, due);
  }
  return next_at;
}

void Scoreboard::lose_waiting() noexcept {
  for (Hole& hole : holes_)
    if (hole.state == State::waiting) lose(hole);
}

void Scoreboard::forgive(Sequence una, TimeNs now) {
  for (Hole& hole : holes_) {
    hole.end = earlier(hole.end, reported_);
    if (hole.state != State::lost) continue;
    hole.state = State::waiting;
    hole.at = now;
  }
  std::erase_if(holes_, [](const Hole& hole) { return hole.begin >= hole.end; });
  highest_ = later(reported_, una);
}

bool Scoreboard::lost_only(SequenceRange range) const noexcept {
  return std::ranges::all_of(holes_, [range](const Hole& hole) {
    return hole.state != State::lost || (range.begin <= hole.begin && hole.end <= range.end);
  });
}

std::uint32_t Scoreboard::selected(Sequence una) const noexcept {
  std::uint32_t bytes = bytes_between(una, later(highest_, una));
  for (const Hole& hole : holes_) bytes -= bytes_between(hole.begin, hole.end);
  return bytes;
}

std::optional<SequenceRange> Scoreboard::lost() const noexcept {
  for (const Hole& hole : holes_)
    if (hole.state == State::lost) return SequenceRange{hole.begin, hole.end};
  return std::nullopt;
}

void Scoreboard::resent(SequenceRange part, Sequence next, TimeNs now) {
  make_room();
  // Merging may have made the hole larger, at its front too.
  auto hole = std::find_if(holes_.begin(), holes_.end(),
                           [&](const Hole& h) { return h.begin <= part.begin && part.begin < h.end; });
  OFP_ASSERT(hole != holes_.end() && part.end <= hole->end && hole->state == State::lost);
  const Hole before{hole->begin, part.begin, State::lost, 0, next, hole->at},
      rest{part.end, hole->end, State::lost, 0, next, hole->at};
  *hole = {part.begin, part.end, State::resent, ++order_, next, now};
  if (rest.begin < rest.end) hole = holes_.insert(hole + 1, rest) - 1;
  if (before.begin < before.end) holes_.insert(hole, before);
}

// Merges neighbours of one state; if that is not enough, any adjacent holes, which are then sent again.
void Scoreboard::make_room() {
  for (const bool alike : {true, false}) {
    if (holes_.size() + 3 <= holes_max) return;
    std::vector<Hole> merged;
    for (const Hole& hole : holes_) {
      if (merged.empty() || merged.back().end != hole.begin || (alike && merged.back().state != hole.state)) {
        merged.push_back(hole);
        continue;
      }
      Hole& last = merged.back();
      last = {last.begin,
              hole.end,
              alike ? hole.state : State::lost,
              std::max(last.order, hole.order),
              later(last.next, hole.next),
              std::max(last.at, hole.at)};
    }
    holes_ = std::move(merged);
  }
}

std::uint32_t Scoreboard::in_flight(Sequence next) const noexcept {
  std::uint32_t bytes = bytes_between(highest_, next);
  for (const Hole& hole : holes_)
    if (hole.state != State::lost) bytes += bytes_between(hole.begin, hole.end);
  return bytes;
}

}  // namespace offpath::tcp
