// Payload and FIN, and when they are acknowledged (RFC 9293, 3.10.7.4; RFC 5681, 4.2).
#pragma once

#include "tcp/flow/flows.h"
#include "tcp/stack/ecn.h"

namespace offpath::tcp {

class Reception {
 public:
  Reception(StackContext& context, Flows& flows, EcnFeedback& ecn, Owner& owner) noexcept
      : context_(context), flows_(flows), ecn_(ecn), owner_(owner) {}

  // The payload of an acceptable segment.
  void receive(Flow& flow, const Segment& segment, TimeNs now);

  // The next acknowledgement reports that `range` has arrived twice (RFC 2883).
  static void report_duplicate(Flow& flow, SequenceRange range) noexcept;
  // With SACK: there was a gap before this segment.
  static void owe_twice(Flow& flow) noexcept;

 private:
  void take_in_order(Flow& flow, Sequence next);
  void receive_fin(Flow& flow, TimeNs now);
  void owe_acknowledgement(Flow& flow, std::uint32_t bytes, TimeNs now);

  StackContext& context_;
  Flows& flows_;
  EcnFeedback& ecn_;
  Owner& owner_;
};

}  // namespace offpath::tcp
