// A peer's acknowledgements: the window, round-trip times (RFC 9293, RFC 7323) and reports of losses.
#pragma once

#include "tcp/flow/flows.h"
#include "tcp/stack/ecn.h"
#include "tcp/stack/recovery.h"

namespace offpath::tcp {

class Acknowledgement {
 public:
  Acknowledgement(StackContext& context, Flows& flows, EcnFeedback& ecn, Recovery& recovery) noexcept
      : context_(context), flows_(flows), ecn_(ecn), recovery_(recovery) {}

  // False: the rest of the segment is ignored.
  [[nodiscard]] bool receive(Flow& flow, const Segment& segment, TimeNs now);

 private:
  [[nodiscard]] TimeNs echo_delay(const Flow& flow, const Timestamps& peer, TimeNs now) const noexcept;
  [[nodiscard]] static AccurateEcn::Arrived newly_arrived(Flow& flow, const Segment& segment,
                                                          const RecoveryMark& before);
  void acknowledge(Flow& flow, const Segment& segment, bool echoes, TimeNs now);
  void take_sack(Flow& flow, const Segment& segment, TimeNs now);
  void fin_acknowledged(Flow& flow, TimeNs now);

  StackContext& context_;
  Flows& flows_;
  EcnFeedback& ecn_;
  Recovery& recovery_;
};

}  // namespace offpath::tcp
