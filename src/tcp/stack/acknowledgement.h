// A peer's acknowledgements: the window, round-trip times, losses and their repair (RFC 5681, RFC 6675, RFC 6582).
#pragma once

#include "tcp/flow/flows.h"
#include "tcp/stack/ecn.h"

namespace offpath::tcp {

class Acknowledgement {
 public:
  Acknowledgement(StackContext& context, Flows& flows, EcnFeedback& ecn) noexcept
      : context_(context), flows_(flows), ecn_(ecn) {}

  // False: the segment is not to be looked at any further.
  [[nodiscard]] bool receive(Flow& flow, const Segment& segment, TimeNs now);

 private:
  void acknowledge(Flow& flow, const Segment& segment, TimeNs now);
  static void take_sack(Flow& flow, const Segment& segment);
  void judge_tail(Flow& flow, const Segment& segment, TimeNs now);
  void find_losses(Flow& flow, TimeNs now);
  void fin_acknowledged(Flow& flow, TimeNs now);

  StackContext& context_;
  Flows& flows_;
  EcnFeedback& ecn_;
};

}  // namespace offpath::tcp
