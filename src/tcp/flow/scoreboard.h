// The bytes in flight that the receiver lacks: holes between what it acknowledged and the highest byte it reported
// by SACK (RFC 2018, RFC 6675). There is one only while there is something to repair.
//
//   una          hole     hole          highest                 next
//    |            |--|     |------|        |                      |
//    +------------+--+-----+------+--------+----------------------+
//      (a hole, or nothing)   selected       in flight, not judged
//
// A hole is whole in one state: waiting (may be late only), lost (to be sent again), resent. A part that is sent again
// becomes a hole of its own. Without SACK nothing is ever selected, and the same holes say what is to be sent again.
#pragma once

#include <optional>
#include <vector>

#include "base/clock.h"
#include "tcp/segment/sequence.h"

namespace offpath::tcp {

class Scoreboard {
 public:
  // as many as a queue of half a megabyte leaves that overflows; each takes 32 bytes
  static constexpr std::size_t holes_max = 384, islands_max = holes_max / 4 * 3;

  explicit Scoreboard(Sequence una) : highest_(una), reported_(una) {}

  // All before `una` has arrived.
  void acknowledge(Sequence una);

  // A SACK block as it came; what cannot be is left out. Returns the bytes that are newly known to have arrived. While
  // there are too many holes, what would add one is left out, and will be sent again for nothing.
  std::uint32_t select(SequenceRange block, Sequence una, Sequence next, TimeNs now = 0);

  // After a timeout: all that was not selected is lost. If not even the first byte is missing, the receiver has thrown
  // away what it had reported, as it may, and everything is.
  void lose_all(Sequence una, Sequence next);
  // The segment at `una` is lost (RFC 6582, where there is no SACK).
  void lose_front(Sequence una, std::uint32_t bytes, Sequence next);
  // What tells a lost segment from a late one.
  struct Rules {
    std::uint32_t mss = 0;
    TimeNs round_trip_ns = 0;  // 0: not known
    TimeNs window_ns = never;  // how late a segment may be (reorder_window.h); `never`: order alone decides
    bool counts = true;        // three segments behind a hole tell that it is lost (RFC 6675, IsLost)
    bool recovers = false;     // losses are being repaired already
  };
  // Declares holes lost (RFC 8985, 6.2): those that `rules` gives up by their order, and those that have been waiting
  // for as long as it allows. Returns when the next one has waited so long; `never` if none has to.
  TimeNs judge(const Rules& rules, TimeNs now);

  // All that is missing before the highest byte selected is lost: that byte left long after it (RFC 8985, 7.4).
  void lose_waiting() noexcept;

  // Nothing that was declared lost is: what was not sent again counts as waiting since `now`, or as not judged.
  void forgive(Sequence una, TimeNs now);

  // The first range to be sent again.
  [[nodiscard]] std::optional<SequenceRange> lost() const noexcept;
  // The first bytes of it were sent, `next` being the first byte never sent.
  void resent(SequenceRange part, Sequence next, TimeNs now);

  // Bytes that are on their way (RFC 6675, pipe).
  [[nodiscard]] std::uint32_t in_flight(Sequence next) const noexcept;
  [[nodiscard]] Sequence highest() const noexcept { return highest_; }     // byte selected, or what was acknowledged
  [[nodiscard]] bool lost_only(SequenceRange range) const noexcept;        // nothing outside of it is
  [[nodiscard]] std::uint32_t selected(Sequence una) const noexcept;       // bytes known to have arrived behind `una`
  [[nodiscard]] std::uint32_t losses() const noexcept { return losses_; }  // holes declared lost so far
  // Something that was sent once has arrived after bytes that were sent later.
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
    TimeNs at;            // of resent ones: when; of others: when bytes behind them arrived; 0: none have
  };
  void delivered(const Hole& hole) noexcept;
  void lose(Hole& hole) noexcept;
  void make_room();

  std::vector<Hole> holes_;   // in their order
  Sequence highest_;          // bytes behind it are not judged
  Sequence reported_;         // the highest one that has arrived: highest_, but for what was declared lost behind it
  std::uint32_t order_ = 0;   // ranges sent again so far
  std::uint32_t newest_ = 0;  // the newest of these of which something arrived, counted from 1
  std::uint32_t losses_ = 0;
  bool saw_reordering_ = false;
};

}  // namespace offpath::tcp
