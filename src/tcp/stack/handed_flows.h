// The serialised form of flows for the other stack (slow_path.h): writing, checking and reading.
#pragma once

#include "tcp/flow/routes.h"
#include "tcp/stack/handshake.h"
#include "tcp/stack/listeners.h"

namespace offpath::tcp {

class HandedFlows {
 public:
  HandedFlows(StackContext& context, const OtherStack& other, Routes& routes) noexcept
      : context_(context), other_(other), routes_(routes) {}

  [[nodiscard]] wire::TcpHandedFlow write(const Flow& flow) const noexcept;
  // Error: an invalid flow.
  [[nodiscard]] Status check(const wire::TcpHandedFlow& handed) const;
  void read(Flow& flow, const wire::TcpHandedFlow& handed, TimeNs now) const noexcept;
  [[nodiscard]] bool learn_next_hop(const wire::TcpHandedFlow& handed, TimeNs now);  // true: it was named

  // For the fast stack. The flow stays here, and sends nothing, until the fast stack has answered.
  void give(const HalfOpen& half, const Listener& listener, TimeNs now);
  void give(Flow& flow, const ReceivedFrame* frame, TimeNs now);

 private:
  StackContext& context_;
  const OtherStack& other_;
  Routes& routes_;
};

}  // namespace offpath::tcp
