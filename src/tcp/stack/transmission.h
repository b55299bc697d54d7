// A flow's turn to send: lost data, new data, its FIN, and an acknowledgement if nothing else
// carried it.
#pragma once

#include "tcp/flow/flows.h"
#include "tcp/stack/handed_flows.h"

namespace offpath::tcp {

class Transmission {
 public:
  Transmission(StackContext& context, const OtherStack& other, FrameQueue& frames, Routes& routes, Flows& flows,
               HandedFlows& handed, Owner& owner) noexcept
      : context_(context),
        other_(other),
        frames_(frames),
        routes_(routes),
        flows_(flows),
        handed_(handed),
        owner_(owner) {}

  // One turn: a super-segment, or sixteen segments.
  void serve(Flow& flow, TimeNs now);

 private:
  void send_synchronizing(Flow& flow, const MacAddress& to, TimeNs now);
  bool send_lost(Flow& flow, const MacAddress& to, TimeNs now);
  bool send_probe(Flow& flow, const MacAddress& to, TimeNs now);
  bool send_new(Flow& flow, const MacAddress& to, TimeNs now);
  void send_tail(Flow& flow, const MacAddress& to, TimeNs now);
  std::uint32_t emit(Flow& flow, SequenceRange range, std::uint8_t flags, const MacAddress& to, TimeNs now,
                     std::uint16_t probe_bytes = 0);
  void resume(Flow& flow, TimeNs now) const noexcept;
  [[nodiscard]] static std::uint32_t trial_room(const Flow& flow) noexcept;
  [[nodiscard]] std::uint32_t sendable(const Flow& flow) const noexcept;
  [[nodiscard]] bool may_be_cut(const Flow& flow) const noexcept;
  [[nodiscard]] std::uint32_t chunk_bytes(const Flow& flow) const noexcept;
  [[nodiscard]] TcpOptions options_of(const Flow& flow, TimeNs now) const noexcept;

  StackContext& context_;
  const OtherStack& other_;
  FrameQueue& frames_;
  Routes& routes_;
  Flows& flows_;
  HandedFlows& handed_;
  Owner& owner_;
};

}  // namespace offpath::tcp
