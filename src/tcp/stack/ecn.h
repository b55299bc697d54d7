// Congestion that routers mark instead of dropping (RFC 3168): agreed on by the SYNs, echoed by the receiver of marks,
// answered by the sender. With a congestion control that goes by the share of marked bytes (DCTCP, RFC 8257) each
// acknowledgement echoes what has just arrived; otherwise the echo goes on until the sender says that its window has
// shrunk (CWR).
#pragma once

#include "tcp/flow/context.h"
#include "tcp/segment/segment.h"

namespace offpath::tcp {

class EcnFeedback {
 public:
  explicit EcnFeedback(StackContext& context) noexcept : context_(context) {}

  [[nodiscard]] static bool asks_for_ecn(const Segment& syn) noexcept { return syn.has(flag::ece | flag::cwr); }
  // A segment to be sent. Only new data may be marked, so that nobody can fill a window with what was acknowledged.
  static void mark_capable(Flow& flow, Segment& segment, bool new_data) noexcept;
  void take_mark(Flow& flow, const Segment& segment);  // a received segment with payload
  // A received acknowledgement that echoes marks: the sender slows down once for each window of data, and says so.
  void take_echo(Flow& flow, const Segment& segment, TimeNs now);
  // The window has shrunk, and does not shrink again for what is in flight now.
  static void slow_down(Flow& flow) noexcept;

 private:
  StackContext& context_;
};

}  // namespace offpath::tcp
