// Whether an exchange holds its interval, and which one it could hold: judged from the views of one member.
//
// Of 64 views in a row, those count as complete that lack no record, except of members that are known to be dead, or of
// which nothing new arrived until, or since, a view among them: such members were gone, not late. If less than 95 % are
// complete, the interval that could be held follows from when all records of a round had arrived, in whichever later
// round that was: the time that was enough for 95 % of the rounds, as part of the interval as large as the deadline is.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "exchange/exchange.h"

namespace offpath::exchange {

class IntervalWatch {
 public:
  static constexpr unsigned views = 64;
  static constexpr unsigned complete_percent = 95;

  struct Judged {
    unsigned views = 0, complete = 0;
    TimeNs holds_ns = 0;       // 0: it holds its interval
    bool is_measured = false;  // false: no round became complete at all, and this is twice the interval
  };

  IntervalWatch() = default;
  IntervalWatch(TimeNs interval_ns, TimeNs deadline_ns) : interval_ns_(interval_ns), deadline_ns_(deadline_ns) {}

  // Returns a judgement after each 64 views. Views without records, and exchanges without an interval, are not judged.
  [[nodiscard]] std::optional<Judged> on_view(const View& view, const std::function<bool(MemberIndex)>& is_alive);

 private:
  struct Member {
    std::uint64_t late = 0;    // a bit for each of the last 64 views, the lowest for the newest: not of that interval
    std::uint64_t silent = 0;  // likewise: nothing new
    std::uint64_t epoch = 0;   // of its newest record
  };
  struct Round {
    std::uint64_t epoch;
    TimeNs began_at;
  };
  [[nodiscard]] Judged judge(const std::function<bool(MemberIndex)>& is_alive) const;
  void note_complete(const View& view, const std::function<bool(MemberIndex)>& is_alive);

  TimeNs interval_ns_ = 0, deadline_ns_ = 0;
  unsigned seen_ = 0;
  std::vector<Member> members_;
  std::vector<Round> open_;   // not complete yet, the oldest first
  std::vector<TimeNs> took_;  // of rounds that became complete
};

}  // namespace offpath::exchange
