// A flow's timed actions: retransmission (RFC 6298), window probes, delayed acknowledgements, keepalive, the end of
// TIME-WAIT.
#pragma once

#include "tcp/flow/flows.h"
#include "tcp/stack/recovery.h"

namespace offpath::tcp {

class FlowTimers {
 public:
  FlowTimers(StackContext& context, Flows& flows, Recovery& recovery) noexcept
      : context_(context), flows_(flows), recovery_(recovery) {}

  void due(Flow& flow, TimeNs now);

 private:
  void try_larger_segments(Flow& flow, TimeNs now) const noexcept;
  void retransmission_due(Flow& flow, TimeNs now);
  void keepalive_due(Flow& flow, TimeNs now);

  StackContext& context_;
  Flows& flows_;
  Recovery& recovery_;
};

}  // namespace offpath::tcp
