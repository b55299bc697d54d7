// The bytes in flight that the receiver lacks: holes between what it acknowledged and the highest byte it reported
// by SACK (RFC 2018, RFC 6675). A flow has one only while there is something to repair.
//
//   una          hole     hole          highest                 next
//    |            |--|     |------|        |                      |
//    +------------+--+-----+------+--------+----------------------+
//      (a hole, or nothing)   selected       in flight, not judged
//
// A hole is whole in one state: waiting (may be late only), lost (to be sent again), resent. A part that is sent again
// becomes a hole of its own. Without SACK nothing is ever selected, and the same holes determine retransmissions.
#pragma once

#include <optional>
#include <vector>

#include "base/clock.h"
#include "tcp/segment/sequence.h"

namespace offpath::tcp {

class Scoreboard {
 public:
  // the holes of an overflowing queue of half a megabyte; each takes 32 bytes
  static constexpr std::size_t holes_max = 384, islands_max = holes_max / 4 * 3;

  explicit Scoreboard(Sequence una) : highest_(una), reported_(una) {}

  // All data before `una` has arrived.
  void acknowledge(Sequence una);

  // Takes a SACK block, without its impossible parts. Returns the number of newly reported bytes. While there are too
  // many holes, parts that would add one are ignored, and will be sent again needlessly.
  std::uint32_t select(SequenceRange block, Sequence una, Sequence next, TimeNs now = 0);

  // After a timeout: all data that was not selected is lost. If the first byte was selected too, the receiver has
  // discarded reported data, which it may, and everything is lost.
  void lose_all(Sequence una, Sequence next);
  // The segment at `una` is lost (RFC 6582, without SACK).
  void lose_front(Sequence una, std::uint32_t bytes, Sequence next);
  // The rules that distinguish lost segments from late ones.
  struct Rules {
    std::uint32_t mss = 0;
    TimeNs round_trip_ns = 0;  // 0: unknown
    TimeNs window_ns = never;  // how late a segment may be (reorder_window.h); `never`: order alone decides
    bool counts = true;        // three segments behind a hole mean that it is lost (RFC 6675, IsLost)
    bool recovers = false;     // losses are being repaired already
  };
  // Declares holes lost (RFC 8985, 6.2) by their order or by their time, following `rules`. Returns the time of the
  // next decision, or `never`.
  TimeNs judge(const Rules& rules, TimeNs now);

  // All data missing before the highest selected byte is lost: that byte left much later (RFC 8985, 7.4).
  void lose_waiting() noexcept;

  // No hole was lost: those not sent again count as waiting since `now`, or as not judged.
  void forgive(Sequence una, TimeNs now);

  // The first range to be sent again.
  [[nodiscard]] std::optional<SequenceRange> lost() const noexcept;
  // The first bytes of that range were sent; `next` is the first byte never sent.
  void resent(SequenceRange part, Sequence next, TimeNs now);

  // Bytes in flight (RFC 6675, pipe).
  [[nodiscard]] std::uint32_t in_flight(Sequence next) const noexcept;
  [[nodiscard]] Sequence highest() const noexcept { return highest_; }  // the highest selected byte, or the
                                                                        // acknowledgement
  [[nodiscard]] bool lost_only(SequenceRange range) const noexcept;     // no byte outside of it is lost
  [[nodiscard]] std::uint32_t selected(Sequence una) const noexcept;    // bytes known to have arrived behind `una`
  // Calls back with each range of arrived bytes behind `una`.
  template <typename Take>
  void each_selected(Sequence una, Take take) const {
    Sequence begin = una;
    for (const Hole& hole : holes_) {
      if (hole.begin > begin) take(SequenceRange{begin, hole.begin});
      begin = later(begin, hole.end);
    }
    if (highest_ > begin) take(SequenceRange{begin, highest_});
  }
  [[nodiscard]] std::uint32_t losses() const noexcept { return losses_; }  // holes declared lost so far
  // Data that was sent once has arrived after bytes that were sent later.
  [[nodiscard]] bool saw_reordering() const noexcept { return saw_reordering_; }
  [[nodiscard]] bool empty() const noexcept { return holes_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return holes_.size(); }

 private:
  enum class State : std::uint8_t { waiting, lost, resent };
  struct Hole {
    Sequence begin, end;
    State state;
    std::uint32_t order;  // of resent ones: how many were sent again before
    Sequence next;        // of resent ones: the first byte never sent, then
    TimeNs at;            // of resent ones: when; of others: when bytes behind them arrived, or 0
  };
  void delivered(const Hole& hole) noexcept;
  void lose(Hole& hole) noexcept;
  void make_room();

  std::vector<Hole> holes_;   // in their order
  Sequence highest_;          // bytes behind it are not judged
  Sequence reported_;         // the highest byte that has arrived, apart from data declared lost behind it
  std::uint32_t order_ = 0;   // ranges sent again so far
  std::uint32_t newest_ = 0;  // the newest of these with arrived data, counted from 1
  std::uint32_t losses_ = 0;
  bool saw_reordering_ = false;
};

}  // namespace offpath::tcp
