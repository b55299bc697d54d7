// Explicit congestion notification: agreed on by the SYNs, marked by routers, echoed by the receiver, answered by the
// sender.
//
// Classic ECN (RFC 3168): with DCTCP (RFC 8257), which uses the share of marked bytes, each acknowledgement echoes the
// last mark; otherwise the echo continues until the sender reports a smaller window (CWR). Accurate ECN (RFC 9768):
// each segment has the number of marked packets, and acknowledgements of data have the marked bytes
// (tcp/flow/accurate_ecn.h). The first SYN chooses between them.
#pragma once

#include "tcp/flow/context.h"
#include "tcp/segment/segment.h"
#include "tcp/stack/half_open.h"

namespace offpath::tcp {

// The kind of ECN that a SYN asks for. Undefined combinations of flags also ask for accurate ECN (RFC 9768, 3.1.3).
[[nodiscard]] EcnMode ecn_asked_for(const Segment& syn, EcnUse use) noexcept;

class EcnFeedback {
 public:
  explicit EcnFeedback(StackContext& context) noexcept : context_(context) {}

  // ---- the handshake
  // Notes what an own SYN asks for now, and returns its flags.
  [[nodiscard]] static std::uint16_t ask(Flow& flow, const StackContext& context) noexcept;
  void take_syn_ack(Flow& flow, const Segment& segment, TimeNs now);
  // Simultaneous open: the peer's SYN decides, as if this end had only answered (RFC 9768, 3.1.2).
  void take_syn(Flow& flow, const Segment& syn);
  // That SYN has come again. False: it asks for another kind of ECN, which ends the connection (RFC 9768, 3.1.5).
  [[nodiscard]] bool take_syn_again(Flow& flow, const Segment& syn) const noexcept;
  // The flags of the own SYN-ACK then.
  static void answer_syn(Flow& flow, const StackContext& context, Segment& segment, TimeNs now) noexcept;
  // The peer's SYN-ACK then.
  void take_answer(Flow& flow, const Segment& segment, TimeNs now);
  // The SYN-ACK has come again, and will be acknowledged.
  static void take_syn_ack_again(Flow& flow, const Segment& segment) noexcept;

  // ---- what arrives
  void take_mark(Flow& flow, const Segment& segment);  // with payload; not for accurate flows
  // Any acceptable segment of an accurate flow. True: an acknowledgement is due at once.
  [[nodiscard]] bool count(Flow& flow, const Segment& segment);

  // ---- what is sent
  // Only new data may be marked, so that nobody can fill a window with what was acknowledged.
  // `pure`: an acknowledgement alone.
  static void mark_capable(Flow& flow, Segment& segment, bool new_data, bool pure = false) noexcept;

  // ---- what is acknowledged
  // Whether a received acknowledgement tells of marks of data; `newly` arrived, for accurate flows.
  [[nodiscard]] bool echoes(Flow& flow, const Segment& segment, const AccurateEcn::Arrived& newly, TimeNs now);
  // The sender slows down once for each window of data, and sends CWR if its ECN is classic. `in_flight`: bytes before
  // the acknowledgement.
  void take_echo(Flow& flow, bool echoes, std::uint32_t in_flight, TimeNs now);
  // Of `acknowledged` bytes, those that were marked.
  [[nodiscard]] static std::uint32_t marked_bytes(Flow& flow, bool echoes, std::uint32_t acknowledged) noexcept {
    if (flow.accurate) return flow.slow->accurate->take_owed();
    return echoes ? acknowledged : 0;
  }
  // The window has shrunk, and does not shrink again for the data now in flight.
  static void slow_down(Flow& flow) noexcept;

 private:
  // Whether the peer reports that the own SYN, or SYN-ACK, arrived as sent: not ECN-capable.
  void heed_handshake(Flow& flow, std::uint8_t ace, TimeNs now);
  StackContext& context_;
};

}  // namespace offpath::tcp
