// Next hops of flows: which neighbour a flow's frames go to, and the ARP messages that find it. A stack with a slow
// path asks that one instead of sending ARP.
#pragma once

#include <optional>

#include "tcp/flow/context.h"
#include "tcp/flow/frame_queue.h"
#include "tcp/flow/neighbours.h"

namespace offpath::tcp {

class Routes {
 public:
  Routes(StackContext& context, const OtherStack& other, FrameQueue& frames)
      : context_(context),
        other_(other),
        frames_(frames),
        neighbours_(context.options.address, context.port.mac, context.options.neighbours) {}

  // The hardware address of a flow's next hop. Null: it is being asked for, and the flow will be in next_woken().
  [[nodiscard]] const MacAddress* await(Flow& flow, TimeNs now) {
    return neighbours_.find(context_.next_hop(flow.key.remote.address), flow.neighbour, flow.index, other_.asker(flow),
                            now);
  }
  // The same, without waking the flow.
  [[nodiscard]] const MacAddress* find(const Flow& flow, TimeNs now) {
    return neighbours_.find(context_.next_hop(flow.key.remote.address), Neighbours::no_flow, other_.asker(flow), now);
  }
  // For an answer to a peer that has only begun to connect.
  [[nodiscard]] const MacAddress* find_peer(Ipv4Address address, TimeNs now) {
    return neighbours_.find(context_.next_hop(address), Neighbours::no_flow, Neighbours::peers, now);
  }
  // For the stack that this one works for.
  [[nodiscard]] const MacAddress* find_for_other(Ipv4Address address, TimeNs now) {
    return neighbours_.find(address, Neighbours::no_flow, Neighbours::other_stack, now);
  }
  [[nodiscard]] const MacAddress* known(Ipv4Address address) const noexcept { return neighbours_.known(address); }

  void receive(const ArpMessage& message, TimeNs now);
  void overhear(const ArpMessage& message, TimeNs now) { neighbours_.overhear(message, now); }
  void learn(Ipv4Address address, const MacAddress& mac, bool wanted, TimeNs now) {
    neighbours_.learn(address, mac, wanted, now);
  }
  void on_time(TimeNs now) { neighbours_.on_time(now); }
  [[nodiscard]] TimeNs next_due() const noexcept { return neighbours_.next_due(); }
  [[nodiscard]] std::optional<Neighbours::Woken> next_woken() { return neighbours_.next_woken(); }
  void send_messages();

 private:
  StackContext& context_;
  const OtherStack& other_;
  FrameQueue& frames_;
  Neighbours neighbours_;
};

}  // namespace offpath::tcp
