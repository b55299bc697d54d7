// Losses: their detection (RFC 8985, RFC 6675, RFC 6582), their effect on the window (RFC 9937), and the undoing of
// needless recoveries (RFC 3522, RFC 4015, RFC 5682, RFC 2883).
#pragma once

#include "tcp/flow/flows.h"
#include "tcp/flow/positions.h"

namespace offpath::tcp {

// The state of a flow before an acknowledgement.
struct RecoveryMark {
  Sequence una{};
  std::uint32_t arrived = 0, losses = 0;
};

class Recovery {
 public:
  Recovery(StackContext& context, Flows& flows) noexcept : context_(context), flows_(flows) {}

  [[nodiscard]] static RecoveryMark mark(const Flow& flow) noexcept;
  // The peer reports that these bytes arrived twice.
  void take_duplicate(Flow& flow, SequenceRange bytes, TimeNs now);
  // The result of a tail loss probe (RFC 8985, 7.4).
  void judge_tail(Flow& flow, const Segment& segment, TimeNs now);
  // An acknowledgement has been processed. The recovery may be over now, or found to be needless.
  void acknowledged(Flow& flow, const Segment& segment, const RecoveryMark& before, TimeNs now);
  // All data in flight at the recovery's beginning has arrived.
  void finish(Flow& flow) noexcept;
  // A segment has been late for long enough.
  void judge_late(Flow& flow, TimeNs now);
  // The retransmission timer has fired.
  void time_out(Flow& flow, TimeNs now);

 private:
  void begin(Flow& flow, bool timeout, TimeNs now);
  void find_losses(Flow& flow, std::uint32_t newly, TimeNs now);
  [[nodiscard]] bool lose_probe(Flow& flow);
  void suspect_path(Flow& flow, TimeNs now);
  static void reduce(Flow& flow, std::uint32_t newly, bool safe) noexcept;
  [[nodiscard]] static bool is_spurious(Flow& flow, const Segment& segment, const RecoveryMark& before) noexcept;
  void undo(Flow& flow, TimeNs now);

  StackContext& context_;
  Flows& flows_;
};

}  // namespace offpath::tcp
