// A flow's actions when nothing arrives: retransmission (RFC 6298), window probes, delayed acknowledgements,
// keepalive, the end of TIME-WAIT.
#pragma once

#include "tcp/flow/flows.h"

namespace offpath::tcp {

class FlowTimers {
 public:
  FlowTimers(StackContext& context, Flows& flows) noexcept : context_(context), flows_(flows) {}

  void due(Flow& flow, TimeNs now);

 private:
  void retransmission_due(Flow& flow, TimeNs now);
  void keepalive_due(Flow& flow, TimeNs now);

  StackContext& context_;
  Flows& flows_;
};

}  // namespace offpath::tcp
