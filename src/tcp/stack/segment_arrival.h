// The arrival of a flow's segment (RFC 9293, 3.10.7): whether it is acceptable, and the meaning of RST and SYN in this
// state. Also ICMP messages of routers about a flow's segments.
#pragma once

#include "tcp/segment/icmp.h"
#include "tcp/stack/acknowledgement.h"
#include "tcp/stack/handed_flows.h"
#include "tcp/stack/listeners.h"
#include "tcp/stack/reception.h"

namespace offpath::tcp {

class SegmentArrival {
 public:
  SegmentArrival(StackContext& context, const OtherStack& other, FrameQueue& frames, Flows& flows,
                 const Listeners& listeners, HandedFlows& handed, EcnFeedback& ecn, Recovery& recovery,
                 Owner& owner) noexcept
      : context_(context),
        other_(other),
        frames_(frames),
        flows_(flows),
        listeners_(listeners),
        handed_(handed),
        ecn_(ecn),
        acknowledgement_(context, flows, ecn, recovery),
        reception_(context, flows, ecn, owner) {}

  // False: the flow has made way for a new one of the same key, which this segment may begin.
  [[nodiscard]] bool receive(Flow& flow, const Segment& segment, const MacAddress& from, TimeNs now);
  void receive_unreachable(Flow& flow, const IcmpUnreachable& icmp, TimeNs now);

 private:
  void receive_in_syn_sent(Flow& flow, const Segment& segment, const MacAddress& from, TimeNs now);
  void receive_synchronized(Flow& flow, const Segment& segment, const MacAddress& from, TimeNs now);
  [[nodiscard]] bool acceptable(Flow& flow, const Segment& segment, TimeNs now);

  StackContext& context_;
  const OtherStack& other_;
  FrameQueue& frames_;
  Flows& flows_;
  const Listeners& listeners_;
  HandedFlows& handed_;
  EcnFeedback& ecn_;
  Acknowledgement acknowledgement_;
  Reception reception_;
};

}  // namespace offpath::tcp
