// One stack: all flows of one address of each family, on one core. A state machine: frames, commands of the owner and
// the time are arguments; frames to be sent and changes are taken from it. Read tcp/flow/owner.h and flow.h first.
//
//   a frame in:   receive -> ARP, neighbour discovery: routes.h; a segment of no flow: passive_open.h
//                         -> a flow: segment_arrival.h (is it acceptable? RST, SYN, ICMP)
//                              -> acknowledgement.h (what was acknowledged), recovery.h (what is lost), ecn.h
//                              -> reception.h (payload, FIN, what to acknowledge)
//   frames out:   transmit -> flows that are ready, in turn: transmission.h
//   the time:     on_time -> flow_timers.h
//   the owner:    connect: active_open.h; other commands: stack_commands.cc
//
// The flows themselves, and which of them are ready, changed, orphaned or in TIME-WAIT: flows.h.
//
// A flow is ready when it may have something to send. It gets one super-segment or sixteen segments, then the next one
// has its turn. Every segment carries the acknowledgement that is due, so an acknowledgement goes out alone only if
// there was nothing else to send. All frames of a burst are received before any is sent, so one acknowledgement serves
// a burst.
//
// Read this first in src/tcp/stack, then segment_arrival.h, acknowledgement.h, recovery.h, reception.h and
// transmission.h (an established flow), flow_timers.h, and passive_open.h, active_open.h and handshake.h (its
// beginning); hand_over.h only with a slow path.
#pragma once

#include <optional>
#include <span>

#include "base/status.h"
#include "tcp/flow/flows.h"
#include "tcp/segment/ethernet.h"
#include "tcp/stack/active_open.h"
#include "tcp/stack/flow_timers.h"
#include "tcp/stack/hand_over.h"
#include "tcp/stack/passive_open.h"
#include "tcp/stack/segment_arrival.h"
#include "tcp/stack/transmission.h"

namespace offpath::tcp {

class Stack {
 public:
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  // `owner` and `congestion` outlive it.
  Stack(const StackOptions& options, const PortCapabilities& port, const CongestionControl& congestion, Owner& owner,
        TimeNs now);

  // ---- frames and time
  void receive(const ReceivedFrame& frame, TimeNs now);
  // Fills frames from the front; how many. They hold the owner's memory until they are given to the port.
  [[nodiscard]] std::size_t transmit(std::span<FrameToSend> frames, TimeNs now);
  void on_time(TimeNs now);
  // Core 0's result about the IPv6 address, which this core waits for.
  void settle_own(bool usable, TimeNs now);
  // A message that another core has received: only one core gets and answers a frame, but all have to know the
  // neighbours.
  void overhear(const NeighbourMessage& message, TimeNs now);
  [[nodiscard]] TimeNs next_due() const noexcept;
  [[nodiscard]] bool wants_to_send() const noexcept { return flows_.ready() != 0 || !frames_.empty(); }

  // ---- the owner's commands
  // Peers of this family may connect to `port` from now on, and send `receive_bytes` each before the owner allows more.
  [[nodiscard]] Status listen(IpFamily family, std::uint16_t port, std::uint64_t tag, std::uint64_t receive_bytes,
                              const FlowOptions& options = {});
  void retag_listener(IpFamily family, std::uint16_t port, std::uint64_t tag, const FlowOptions& options);
  void stop_listening(IpFamily family, std::uint16_t port);
  [[nodiscard]] std::optional<std::uint64_t> listener(IpFamily family, std::uint16_t port) const noexcept;  // its tag
  // `local_port` 0: any free port. Error: not a unicast address, no route, no free port or flow, or a connection with
  // these addresses and ports exists already.
  [[nodiscard]] Result<FlowId> connect(std::uint16_t local_port, Endpoint remote, std::uint64_t tag,
                                       std::uint64_t receive_bytes, TimeNs now, const FlowOptions& options = {});
  // These commands ignore a flow that is gone. Positions only grow.
  void offer(FlowId flow, std::uint64_t position, TimeNs now);  // bytes before it may be sent
  void allow(FlowId flow, std::uint64_t position, TimeNs now);  // bytes before it may be received
  // Shuts the window until more is allowed, although the peer knows of room: data that it sends meanwhile counts as
  // lost. The next position may be less than the one before, which the peer is told. False: there are bytes out of
  // order, or no connection yet.
  [[nodiscard]] bool shut(FlowId flow) noexcept;
  void finish(FlowId flow);             // FIN, behind all offered bytes
  void abort(FlowId flow, TimeNs now);  // RST, and the flow is gone
  // The owner will not read any more: offered bytes and a FIN still go out, then the flow is gone. Arriving data is
  // answered with RST. `keeps_place` false: the owner is gone too, so the flow occupies no place of it.
  void release(FlowId flow, TimeNs now, bool keeps_place = true);
  void set_options(FlowId flow, const FlowOptions& options, TimeNs now);

  [[nodiscard]] std::optional<FlowChange> next_change() { return flows_.next_change(); }

  // ---- work shared with another stack (slow_path.h, hand_over.h)
  // From now on `slow` does all work outside of established flows, and gets the present state. Null: this stack does it
  // again, including connections that were being begun here; peers try again. `slow` outlives this, or the next call.
  void lean_on(SlowPath* slow);
  // Messages of the slow path. Error: an invalid message.
  [[nodiscard]] Result<bool> adopt(const wire::TcpHandedFlow& handed, const ReceivedFrame* frame,
                                   TimeNs now);  // false: declined
  // False: the connection is no longer waited for.
  bool connect_failed(const FlowKey& key, std::uint32_t attempt, FlowError error);
  void receive_returned(const ReceivedFrame& frame, TimeNs now);
  [[nodiscard]] Status learn_neighbour(const IpAddress& address, const MacAddress& mac, TimeNs now);
  [[nodiscard]] Status send_frame(const FrameToSend& frame);  // headers alone

  // This stack is the slow path of `fast`, which outlives it. Called before anything else.
  void work_for(FastPath& fast, TimeNs cookies_until) noexcept;
  // Messages of the fast path.
  void begin_connect(const FlowKey& key, std::uint32_t attempt, std::uint64_t receive_bytes, TimeNs now,
                     const FlowOptions& options);
  void abandon(const FlowKey& key, std::uint32_t attempt, TimeNs now);
  void adopted(const FlowKey& key, std::uint32_t attempt, bool declined, TimeNs now);
  [[nodiscard]] Status take_time_wait(const wire::TcpHandedFlow& handed, TimeNs now);
  void resolve(const IpAddress& address, TimeNs now);

  // ---- state
  [[nodiscard]] const Flow* flow(FlowId id) const noexcept { return const_cast<Flows&>(flows_).find(id); }
  [[nodiscard]] std::size_t flows() const noexcept { return flows_.size(); }
  // Whether there is room for frames that no flow sends, including those of other senders meanwhile.
  [[nodiscard]] bool has_stray_room() const noexcept { return frames_.is_half_empty(); }
  [[nodiscard]] std::size_t half_open() const noexcept { return passive_.size(); }
  [[nodiscard]] const StackCounters& counters() const noexcept { return context_.counters; }
  [[nodiscard]] const LatencyHistogram& acknowledged() const noexcept { return context_.acknowledged; }
  [[nodiscard]] const StackOptions& options() const noexcept { return context_.options; }
  [[nodiscard]] const PortCapabilities& port() const noexcept { return context_.port; }
  [[nodiscard]] const CongestionControl& control(wire::TcpCongestion chosen) const noexcept {
    return context_.control(chosen);
  }
  [[nodiscard]] TimeNs cookies_until() const noexcept { return passive_.cookies_until(); }
  [[nodiscard]] std::size_t neighbours() const noexcept { return routes_.neighbours(); }
  [[nodiscard]] bool may_use_ipv6() const noexcept { return routes_.may_use({}); }
  // Another node of the link has the IPv6 address, so it is not used.
  [[nodiscard]] bool is_duplicate() const noexcept { return context_.is_duplicate; }
  [[nodiscard]] const IpAddress& router() const noexcept { return context_.router; }  // that advertised itself

 private:
  [[nodiscard]] bool is_own_multicast(const MacAddress& mac) const noexcept;
  void receive_neighbour(const NeighbourMessage& message, TimeNs now);
  void receive_ip(const EthernetHeader& header, Bytes bytes, const ReceivedFrame& frame, TimeNs now);
  void receive_discovery(const IpPacket& packet, const MacAddress& from, TimeNs now);
  void receive_query(const IpPacket& packet, TimeNs now);
  void receive_segment(const Segment& segment, const MacAddress& from, TimeNs now);
  void receive_unreachable(const IcmpUnreachable& icmp, TimeNs now);

  // In order of dependency: each part knows only those above it.
  StackContext context_;
  OtherStack other_;
  FrameQueue frames_;
  Routes routes_;
  Flows flows_;
  Listeners listeners_;
  HandedFlows handed_;
  EcnFeedback ecn_;
  Recovery recovery_;
  ActiveOpen active_;
  PassiveOpen passive_;
  SegmentArrival arrival_;
  Transmission transmission_;
  FlowTimers timers_;
  HandOver hand_over_;
};

}  // namespace offpath::tcp
