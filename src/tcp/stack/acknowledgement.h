// A peer's acknowledgements: the window and round-trip times (RFC 9293, RFC 7323), and what they say of losses.
#pragma once

#include "tcp/flow/flows.h"
#include "tcp/stack/ecn.h"
#include "tcp/stack/recovery.h"

namespace offpath::tcp {

class Acknowledgement {
 public:
  Acknowledgement(StackContext& context, Flows& flows, EcnFeedback& ecn, Recovery& recovery) noexcept
      : context_(context), flows_(flows), ecn_(ecn), recovery_(recovery) {}

  // False: the segment is not to be looked at any further.
  [[nodiscard]] bool receive(Flow& flow, const Segment& segment, TimeNs now);

 private:
  [[nodiscard]] TimeNs echo_delay(const Flow& flow, const Timestamps& peer, TimeNs now) const noexcept;
  void acknowledge(Flow& flow, const Segment& segment, TimeNs now);
  void take_sack(Flow& flow, const Segment& segment, TimeNs now);
  void fin_acknowledged(Flow& flow, TimeNs now);

  StackContext& context_;
  Flows& flows_;
  EcnFeedback& ecn_;
  Recovery& recovery_;
};

}  // namespace offpath::tcp
