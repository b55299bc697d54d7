// A flow's state for accurate ECN (RFC 9768): the numbers of packets and bytes that arrived with a router's mark, which
// each segment reports to the peer, and the peer's reports about this end's segments. Arithmetic only; ecn.h calls it.
//
// The number of marked packets is sent modulo 8, in the three flags AE, CWR and ECE of each segment (ACE). Bytes are
// sent modulo 2^24, in an option for which some acknowledgements have no room. Both start from known values, so that a
// path that clears either is noticed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "tcp/flow/sent_packets.h"
#include "tcp/segment/segment.h"

namespace offpath::tcp {

// The three flags of a segment as a number.
[[nodiscard]] constexpr std::uint8_t ace_of(std::uint16_t flags) noexcept {
  return static_cast<std::uint8_t>((flags & flag::ae ? 4 : 0) | (flags & flag::cwr ? 2 : 0) |
                                   (flags & flag::ece ? 1 : 0));
}
[[nodiscard]] constexpr std::uint16_t ace_flags(unsigned ace) noexcept {
  return static_cast<std::uint16_t>((ace & 4 ? flag::ae : 0) | (ace & 2 ? flag::cwr : 0) | (ace & 1 ? flag::ece : 0));
}
// The code for a SYN's mark in its answer, and for the answer's mark in its acknowledgement (RFC 9768, tables 2, 3).
[[nodiscard]] constexpr std::uint8_t ace_of_handshake(Ecn arrived) noexcept {
  return arrived == Ecn::congested ? 6 : static_cast<std::uint8_t>(static_cast<std::uint8_t>(arrived) + 2);
}

// Whether an answer confirms that its sender counts marks: one of tables 2 and 3, or the reserved one.
[[nodiscard]] constexpr bool confirms_accurate(std::uint8_t ace) noexcept { return ace > 1 && ace < 7; }

// The contents of a connection's SYN-ACKs. A path may drop segments with the option, or with the flags, so the second
// SYN-ACK has no option, and the third, after a timeout of the second, has neither (RFC 9768, 3.2.3.2.2). A second SYN
// and the own timer may come together, which is not a timeout.
class EcnAnswers {
 public:
  struct Answer {
    bool flags = true, option = true;
  };
  [[nodiscard]] Answer next(TimeNs now, TimeNs timeout) noexcept {
    if (sent_ >= 2 && now - last_ >= timeout) flags_ = false;
    const Answer answer{flags_, sent_ == 0};
    if (sent_ < 2) ++sent_;
    last_ = now;
    return answer;
  }

 private:
  TimeNs last_ = 0;
  std::uint8_t sent_ = 0;
  bool flags_ = true;
};

class AccurateEcn {
 public:
  static constexpr std::uint8_t first_packets = 5;  // marked ones are counted from there
  static constexpr std::uint32_t first_bytes = 1;   // initial count of bytes that might have been marked

  // The counts of bytes before any has arrived.
  [[nodiscard]] static EcnBytes first() noexcept { return {.capable_0 = first_bytes, .congested = 0}; }

  // ---- what arrives here
  // An acceptable segment. True: an acknowledgement is due at once.
  [[nodiscard]] bool count(const Segment& segment) noexcept {
    const bool marked = segment.ecn == Ecn::congested, changes = marked && !marked_last_;
    const auto bytes = static_cast<std::uint32_t>(segment.payload.size());
    marked_last_ = marked;
    if (segment.ecn == Ecn::capable_0) capable_0_bytes_ += bytes;
    if (segment.ecn == Ecn::capable_1) capable_1_bytes_ += bytes;
    if (bytes > 0 && segment.ecn != Ecn::not_capable) options_due_ = std::max<std::uint8_t>(options_due_, 1);
    if (!marked) return false;
    marked_bytes_ += bytes;
    marked_packets_ += segment.packets;
    untold_ += segment.packets;
    // RFC 9768, 3.2.2.5.1: an acknowledgement of acknowledgements is due for every third one only.
    return (changes && bytes > 0) || untold_ >= (bytes > 0 ? 2u : 3u);
  }
  // The peer's answer to the own SYN, which may come again. Its mark counts once, and is reported separately if it
  // `confirms` accurate ECN (RFC 9768, 3.2.2.1 and 3.2.2.2).
  void count_syn_ack(Ecn ecn, bool confirms) noexcept {
    if (ecn == Ecn::congested && !syn_ack_counted_) {
      syn_ack_counted_ = true;
      ++marked_packets_;
    }
    if (!confirms) return;
    arrived_ = ecn;
    answers_syn_ack_ = true;
  }
  // The peer's SYN in a simultaneous open. The last one counts.
  void take_syn(Ecn ecn) noexcept { arrived_ = ecn; }
  // Data that had arrived before. If it was acknowledged with the option, twice in a row, the path may drop segments
  // with the option (RFC 9768, 3.2.3.2.2).
  void arrived_again() noexcept {
    if (!std::exchange(option_told_, false)) return;
    if (++options_in_vain_ >= 2) tells_bytes_ = false;
  }
  void arrived_in_order() noexcept {
    if (std::exchange(option_told_, false)) options_in_vain_ = 0;
  }

  // ---- what segments tell the peer
  // A pure acknowledgement that answers the peer's SYN-ACK has to leave first.
  [[nodiscard]] bool answers_syn_ack() const noexcept { return answers_syn_ack_; }
  // The flags of the next segment. `pure`: neither payload nor SACK blocks.
  [[nodiscard]] std::uint8_t ace(bool pure) const noexcept {
    return pure && answers_syn_ack_ ? ace_of_handshake(arrived_) : marked_packets_ & 7;
  }
  // The flags of a SYN-ACK in a simultaneous open.
  [[nodiscard]] std::uint8_t ace_of_syn_ack() const noexcept { return ace_of_handshake(arrived_); }
  [[nodiscard]] EcnAnswers& answers() noexcept { return answers_; }
  // Devices that cut a segment into packets clear CWR in all but the first.
  [[nodiscard]] bool may_be_cut() const noexcept { return (marked_packets_ & 2) == 0; }
  // The option, if bytes have arrived since the last one, with counts that have ever changed.
  [[nodiscard]] std::optional<EcnBytes> bytes() const noexcept {
    if (options_due_ == 0 || !tells_bytes_) return std::nullopt;
    EcnBytes told{.congested = marked_bytes_ & EcnBytes::mask};
    if (capable_1_bytes_ != first_bytes) told.capable_1 = capable_1_bytes_ & EcnBytes::mask;
    if (capable_0_bytes_ != first_bytes || !told.capable_1) told.capable_0 = capable_0_bytes_ & EcnBytes::mask;
    return told;
  }
  void told(bool pure, bool with_bytes) noexcept {
    untold_ = 0;
    if (pure) answers_syn_ack_ = false;
    if (!with_bytes) return;
    --options_due_;
    option_told_ = true;
  }
  // The option is tried in the first acknowledgement and in the first data (RFC 9768, 3.2.3.2.1).
  void try_option() noexcept { options_due_ = 2; }

  // ---- what the peer tells
  [[nodiscard]] bool may_mark() const noexcept { return may_mark_; }  // sent data is marked as ECN-capable
  void do_not_mark() noexcept { may_mark_ = false; }
  // The peer has not agreed, or the path removes its flags.
  void ignore() noexcept { may_mark_ = heeds_ = false; }
  // The peer's first acknowledgement may report the mark of the own SYN-ACK.
  void await_handshake() noexcept { first_ = First::handshake; }

  // Newly reported arrival of the own data.
  struct Arrived {
    std::uint32_t bytes = 0, packets = 0;
  };
  struct Marks {
    std::uint32_t packets = 0, bytes = 0;
    bool of_syn_ack = false;
    [[nodiscard]] bool any() const noexcept { return packets > 0 || bytes > 0; }
  };
  // Checks the path by the first option: zero counts were cleared on the way.
  void take_first_option(const std::optional<EcnBytes>& bytes) noexcept {
    if (bytes && (bytes->capable_0.value_or(1) == 0 || bytes->capable_1.value_or(1) == 0)) hears_bytes_ = false;
  }
  // An acknowledgement without SYN. It has no news if no data has arrived.
  [[nodiscard]] Marks hear(const Segment& segment, const Arrived& newly) noexcept {
    const std::uint8_t ace = ace_of(segment.flags);
    const std::optional<EcnBytes>& told = segment.options.ecn_bytes;
    if (first_ != First::over) {
      const bool pure = segment.payload.empty() && segment.options.sack_count == 0;
      const bool is_handshake = first_ == First::handshake && pure;
      if (first_ == First::handshake) take_first_option(told);
      first_ = is_handshake ? First::counter : First::over;
      // A count also wraps to zero after three marks; the bytes show which it is.
      const bool is_count = !is_handshake && hears_bytes_ && told && told->congested.value_or(0) > 0;
      if (ace == 0 && !is_count) ignore();
      if (is_handshake) return hear_handshake(ace);
    }
    if (newly.bytes == 0 || !heeds_) return {};
    const Marks marks = decode(ace, told, newly);
    if (marks.bytes < newly.bytes) always_ = false;
    return marks;
  }
  // The window has shrunk for marks, once in a round trip. A path that has marked everything from the beginning is not
  // congested but faulty (RFC 9768, 3.2.2.3).
  void end_round() noexcept {
    constexpr std::uint8_t rounds_max = 4;
    if (always_ && ++rounds_ > rounds_max) ignore();
  }
  // Marked bytes not reported to congestion control yet.
  void owe(std::uint32_t bytes) noexcept { owed_ += bytes; }
  [[nodiscard]] std::uint32_t take_owed() noexcept { return std::exchange(owed_, 0u); }

  SentPackets sent{};

 private:
  enum class First : std::uint8_t { handshake, counter, over };
  static constexpr std::uint32_t cycle = 8;

  // RFC 9768, table 4. The SYN-ACK was not ECN-capable: if it arrived with a mark, the path changes marks.
  [[nodiscard]] Marks hear_handshake(std::uint8_t ace) noexcept {
    const bool changed = ace == ace_of_handshake(Ecn::capable_0) || ace == ace_of_handshake(Ecn::capable_1) ||
                         ace == ace_of_handshake(Ecn::congested);
    if (changed) may_mark_ = false;
    if (ace != ace_of_handshake(Ecn::congested)) return {};
    heard_packets_ = first_packets + 1;
    return {.packets = 1, .of_syn_ack = true};
  }
  // RFC 9768, 3.2.2.5.2 and A.2. If more than seven packets may have been marked, the number may have wrapped; the
  // bytes decide. Without them the largest number is assumed, unless the peer always acknowledges many packets at once.
  [[nodiscard]] Marks decode(std::uint8_t ace, const std::optional<EcnBytes>& told, const Arrived& newly) noexcept {
    const std::uint32_t least = (ace - heard_packets_) & (cycle - 1), packets = std::max(newly.packets, 1u);
    heard_packets_ = ace;
    usual_ += (static_cast<std::int32_t>(16 * std::min(packets, 1000u)) - usual_) / 8;
    covered_ = std::min(covered_ + packets, 1000u);
    const bool tells = hears_bytes_ && told && (told->capable_0 || told->capable_1);
    if (!tells || !told->congested) {
      const std::uint32_t most = packets < cycle ? least : packets - ((packets - least) & (cycle - 1));
      // An option leaves out counts at its end that have not changed since the last one.
      const std::uint32_t marked = tells || usual_ > 16 * usual_most ? least : most;
      const std::uint32_t bytes = bytes_of(marked, newly.bytes, packets);
      estimated_ = std::min(estimated_ + bytes, EcnBytes::mask);
      return {.packets = marked, .bytes = bytes};
    }
    const std::uint32_t bytes = (*told->congested - heard_bytes_) & EcnBytes::mask;
    heard_bytes_ = *told->congested;
    // Marked bytes without a marked packet: one of the two was changed on the way (RFC 9768, 3.2.3.2.5).
    if (bytes > 0 && least == 0 && estimated_ == 0 && covered_ < cycle) may_mark_ = false;
    covered_ = 0;
    // Minus the bytes estimated since the last option.
    const std::uint32_t estimated = std::exchange(estimated_, 0u);
    return {.packets = least, .bytes = bytes > estimated ? bytes - estimated : 0};
  }
  // The bytes of marked packets of mean size, out of `packets` with `bytes` (RFC 9768, A.3).
  [[nodiscard]] static std::uint32_t bytes_of(std::uint32_t marked, std::uint32_t bytes,
                                              std::uint32_t packets) noexcept {
    return static_cast<std::uint32_t>((std::uint64_t{bytes} * std::min(marked, packets) + packets - 1) / packets);
  }
  static constexpr std::int32_t usual_most = 4;

  std::uint32_t marked_packets_ = first_packets, marked_bytes_ = 0;
  std::uint32_t capable_0_bytes_ = first_bytes, capable_1_bytes_ = first_bytes;
  std::uint32_t untold_ = 0;  // marked packets since the last segment that was sent
  std::uint8_t options_due_ = 0;
  bool marked_last_ = false, answers_syn_ack_ = false, syn_ack_counted_ = false;
  bool option_told_ = false;  // no data has arrived since
  bool tells_bytes_ = true;
  std::uint8_t options_in_vain_ = 0;
  Ecn arrived_ = Ecn::not_capable;  // the peer's SYN-ACK, or its SYN in a simultaneous open
  EcnAnswers answers_;

  First first_ = First::counter;
  bool may_mark_ = true, heeds_ = true, hears_bytes_ = true;
  bool always_ = true;                          // everything that has arrived was marked
  std::uint8_t rounds_ = 0;                     // round trips in which everything was marked
  std::uint8_t heard_packets_ = first_packets;  // modulo 8
  std::uint32_t heard_bytes_ = 0;               // modulo 2^24
  std::uint32_t estimated_ = 0, covered_ = 0;   // since the last option: marked bytes, and packets acknowledged
  std::int32_t usual_ = 0;                      // packets of an acknowledgement, smoothed, in sixteenths
  std::uint32_t owed_ = 0;
};

}  // namespace offpath::tcp
