#include "tcp/flow/scoreboard.h"

#include <algorithm>

#include "base/status.h"

namespace offpath::tcp {

void Scoreboard::delivered(const Hole& hole) noexcept {
  if (hole.state == State::resent) newest_ = std::max(newest_, hole.order);
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
}

std::uint32_t Scoreboard::select(SequenceRange block, Sequence una, Sequence next) {
  if (block.begin >= block.end || block.begin < una || block.end > next) return 0;
  make_room();
  if (holes_.size() >= holes_max / 2) return 0;
  std::uint32_t bytes = 0;
  if (block.end > highest_) {
    if (block.begin > highest_) holes_.push_back({highest_, block.begin, State::waiting, 0, next, 0});
    bytes += bytes_between(later(highest_, block.begin), block.end);
    highest_ = block.end;
  }
  for (std::size_t i = 0; i < holes_.size();) {
    Hole& hole = holes_[i];
    const Sequence begin = later(hole.begin, block.begin), end = earlier(hole.end, block.end);
    if (begin >= end) {
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
    highest_ = una;
  }
  for (Hole& hole : holes_) hole.state = State::lost;
  if (highest_ < next) holes_.push_back({highest_, next, State::lost, 0, next, 0});
  highest_ = next;
}

void Scoreboard::lose_front(Sequence una, std::uint32_t bytes, Sequence next) {
  const Sequence end = earlier(una + bytes, next);
  if (!holes_.empty() && holes_.front().begin == una) {
    holes_.front().state = State::lost;
  } else if (una < end && highest_ <= una) {
    holes_.push_back({una, end, State::lost, 0, next, 0});
    highest_ = end;
  }
}

void Scoreboard::judge(std::uint32_t mss, TimeNs now, TimeNs round_trip) {
  std::uint32_t islands = 0, selected = 0;
  Sequence behind = highest_;  // where the next hole begins
  for (auto hole = holes_.rbegin(); hole != holes_.rend(); ++hole) {
    if (hole->end != behind) {
      ++islands;
      selected += bytes_between(hole->end, behind);
    }
    behind = hole->begin;
    if (hole->state == State::waiting && (islands >= 3 || selected > 2 * mss)) hole->state = State::lost;
    if (hole->state != State::resent) continue;
    const bool overtaken = highest_ > hole->next || newest_ > hole->order,
               in_time = round_trip == 0 || now < hole->at + round_trip + round_trip / 4;
    if (highest_ > hole->next + 2 * mss || newest_ >= hole->order + 3 || (overtaken && !in_time))
      hole->state = State::lost;
  }
}

void Scoreboard::lose_waiting() noexcept {
  for (Hole& hole : holes_)
    if (hole.state == State::waiting) hole.state = State::lost;
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
  const Hole before{hole->begin, part.begin, State::lost, 0, next, 0},
      rest{part.end, hole->end, State::lost, 0, next, 0};
  *hole = {part.begin, part.end, State::resent, ++order_, next, now};
  if (rest.begin < rest.end) hole = holes_.insert(hole + 1, rest) - 1;
  if (before.begin < before.end) holes_.insert(hole, before);
}

// Neighbours of one state become one; if that is not enough, whatever touches, to be sent again.
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
