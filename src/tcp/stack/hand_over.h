// Work that two stacks share: flows that change hands, and the services of each for the other. Read slow_path.h first.
//
// A peer's flow is half open at the slow path until the fast one has confirmed it. A flow that is begun here is in both
// tables until then, marked `elsewhere` in one of them. Segments that arrive in between go to the slow path, because
// the fast one does not have the flow yet, and return behind the hand-over. So no segment of a flow is refused, and no
// flow is active in both stacks.
#pragma once

#include "tcp/flow/flows.h"
#include "tcp/stack/handed_flows.h"
#include "tcp/stack/listeners.h"
#include "tcp/stack/passive_open.h"

namespace offpath::tcp {

class HandOver {
 public:
  HandOver(StackContext& context, OtherStack& other, FrameQueue& frames, Routes& routes, Flows& flows,
           const Listeners& listeners, HandedFlows& handed, PassiveOpen& passive) noexcept
      : context_(context),
        other_(other),
        frames_(frames),
        routes_(routes),
        flows_(flows),
        listeners_(listeners),
        handed_(handed),
        passive_(passive) {}

  // True: the frame being received, of this key and flow, belongs to the other stack, and was sent there.
  [[nodiscard]] bool pass_on(const FlowKey& key, std::uint32_t index);

  // ---- of the fast stack
  void lean_on(SlowPath* slow);
  [[nodiscard]] Result<bool> adopt(const wire::TcpHandedFlow& handed, TimeNs now);  // false: declined
  [[nodiscard]] bool connect_failed(const FlowKey& key, std::uint32_t attempt, FlowError error);
  [[nodiscard]] Status send_frame(const FrameToSend& frame);

  // ---- of the slow one
  void begin_connect(const FlowKey& key, std::uint32_t attempt, std::uint64_t receive_bytes, TimeNs now,
                     const FlowOptions& options);
  void abandon(const FlowKey& key, std::uint32_t attempt, TimeNs now);
  void adopted(const FlowKey& key, std::uint32_t attempt, bool declined, TimeNs now);
  [[nodiscard]] Status take_time_wait(const wire::TcpHandedFlow& handed, TimeNs now);
  void resolve(const IpAddress& address, TimeNs now);

 private:
  StackContext& context_;
  OtherStack& other_;
  FrameQueue& frames_;
  Routes& routes_;
  Flows& flows_;
  const Listeners& listeners_;
  HandedFlows& handed_;
  PassiveOpen& passive_;
};

}  // namespace offpath::tcp
