// Next hops of flows: the neighbour of a flow's frames, and the messages that find it. A stack with a slow path asks
// the slow path instead of sending them. While the stack's own IPv6 address is checked (own_address.h), or no router is
// known any more, flows wait as if for a neighbour.
#pragma once

#include <deque>
#include <optional>

#include "tcp/flow/context.h"
#include "tcp/flow/frame_queue.h"
#include "tcp/flow/neighbours.h"
#include "tcp/flow/own_address.h"

namespace offpath::tcp {

class Routes {
 public:
  Routes(StackContext& context, const OtherStack& other, FrameQueue& frames, TimeNs now)
      : context_(context),
        other_(other),
        frames_(frames),
        own_(context, now),
        neighbours_(context.options.v4.address, context.options.v6.address, context.port.mac,
                    context.options.neighbours) {}

  // The hardware address of a flow's next hop. Null: it is being resolved, and the flow will be in next_woken().
  [[nodiscard]] const MacAddress* await(Flow& flow, TimeNs now) {
    const IpAddress hop = context_.next_hop(flow.key.remote.address);
    if (hop.is_unspecified() || !may_use(flow.key.remote.address)) return wait_for_own(flow, hop);
    return neighbours_.find(hop, flow.neighbour, flow.index, other_.asker(flow), now);
  }
  // The same, without waking the flow.
  [[nodiscard]] const MacAddress* find(const Flow& flow, TimeNs now) {
    return find(context_.next_hop(flow.key.remote.address), other_.asker(flow), now);
  }
  // For an answer to a peer that has only begun to connect.
  [[nodiscard]] const MacAddress* find_peer(const IpAddress& address, TimeNs now) {
    return find(context_.next_hop(address), Neighbours::peers, now);
  }
  // For the fast stack.
  [[nodiscard]] const MacAddress* find_for_other(const IpAddress& address, TimeNs now) {
    return find(address, Neighbours::other_stack, now);
  }
  [[nodiscard]] const MacAddress* known(const IpAddress& address) const noexcept { return neighbours_.known(address); }

  // Whether datagrams of an address's family can be exchanged already.
  [[nodiscard]] bool may_use(const IpAddress& address) const noexcept { return address.is_v4() || own_.is_usable(); }
  void receive(const NeighbourMessage& message, TimeNs now);
  void overhear(const NeighbourMessage& message, TimeNs now);
  // Core 0's result about the IPv6 address.
  void settle_own(bool usable, TimeNs now);
  void take_query(TimeNs within_ns, TimeNs now) { own_.take_query(within_ns, now); }
  void learn(const IpAddress& address, const MacAddress& mac, bool wanted, TimeNs now) {
    neighbours_.learn(address, mac, wanted, now);
  }
  // The flow gets no answers: if a router that advertised itself leads to its peer, the router is probed at its next
  // use.
  void doubt(const Flow& flow, TimeNs now);
  void on_time(TimeNs now);
  [[nodiscard]] TimeNs next_due() const noexcept { return std::min(neighbours_.next_due(), own_.next_due()); }
  [[nodiscard]] std::optional<Neighbours::Woken> next_woken(TimeNs now);
  [[nodiscard]] std::size_t neighbours() const noexcept { return neighbours_.size(); }
  void send_messages();

 private:
  [[nodiscard]] const MacAddress* find(const IpAddress& hop, std::uint64_t asker, TimeNs now) {
    return may_use(hop) ? neighbours_.find(hop, Neighbours::no_flow, asker, now) : nullptr;
  }
  [[nodiscard]] bool concerns(const NeighbourMessage& message) const noexcept;
  [[nodiscard]] const MacAddress* wait_for_own(const Flow& flow, const IpAddress& hop);

  StackContext& context_;
  const OtherStack& other_;
  FrameQueue& frames_;
  OwnAddress own_;
  Neighbours neighbours_;
  std::deque<Neighbours::Woken> waiting_;  // waiting for the check of the own address, or for a router
  std::size_t released_ = 0;               // the first of these, whose condition has changed
  struct Known {
    bool usable = false, duplicate = false;
    IpAddress router{};
    friend bool operator==(const Known&, const Known&) noexcept = default;
  } known_{};
  void note_change();
};

}  // namespace offpath::tcp
