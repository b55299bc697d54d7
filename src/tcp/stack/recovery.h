// Losses: how they are found (RFC 8985, RFC 6675, RFC 6582), what they do to the window (RFC 9937), and how they are
// undone where nothing was lost (RFC 3522, RFC 4015, RFC 5682, RFC 2883).
#pragma once

#include "tcp/flow/flows.h"
#include "tcp/flow/positions.h"

namespace offpath::tcp {

// What a flow knew before an acknowledgement.
struct RecoveryMark {
  Sequence una{};
  std::uint32_t arrived = 0, losses = 0;
};

class Recovery {
 public:
  Recovery(StackContext& context, Flows& flows) noexcept : context_(context), flows_(flows) {}

  [[nodiscard]] static RecoveryMark mark(const Flow& flow) noexcept;
  // The peer says that these bytes arrived twice.
  void take_duplicate(Flow& flow, SequenceRange bytes, TimeNs now);
  // The result of a tail loss probe (RFC 8985, 7.4).
  void judge_tail(Flow& flow, const Segment& segment, TimeNs now);
  // An acknowledgement has been taken in. The recovery may be over by then, or found to be needless.
  void acknowledged(Flow& flow, const Segment& segment, const RecoveryMark& before, TimeNs now);
  // What was in flight when the recovery began has arrived.
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
