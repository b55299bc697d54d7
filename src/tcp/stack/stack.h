// One stack: all flows of one address, on one core. A state machine: frames, wishes of the owner and the time are
// arguments; frames to be sent and changes are taken from it. Read owner.h and flow.h first.
//
//   a frame in:   receive -> for ARP, ICMP and what is no flow's: stack_frames.cc, stack_listen.cc
//                         -> a flow: stack_segment.cc (is it acceptable? RST, SYN)
//                              -> stack_acknowledge.cc (what was acknowledged, what is lost)
//                              -> stack_receive.cc (payload, FIN, what to acknowledge)
//   frames out:   transmit -> flows that are ready, in turn: stack_transmit.cc
//   the time:     on_time -> stack_timers.cc
//
// A flow is ready when it may have something to send. It gets one super-segment or sixteen segments, then the next one
// has its turn. What is sent says whatever there is to be said, so an acknowledgement goes out alone only if there was
// nothing else to send; and as frames that come in a burst are all received before any is sent, one acknowledgement
// serves a burst.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "tcp/congestion/congestion.h"
#include "tcp/flow/flow_table.h"
#include "tcp/flow/neighbours.h"
#include "tcp/flow/orphans.h"
#include "tcp/flow/owner.h"
#include "tcp/flow/slow_path.h"
#include "tcp/flow/stack_options.h"
#include "tcp/flow/timer_wheel.h"
#include "tcp/port/port.h"
#include "tcp/segment/icmp.h"
#include "tcp/stack/half_open.h"

namespace offpath::tcp {

class Stack {
 public:
  // `owner` and `congestion` outlive it.
  Stack(const StackOptions& options, const PortCapabilities& port, const CongestionControl& congestion, Owner& owner,
        TimeNs now);

  // ---- frames and time
  void receive(const ReceivedFrame& frame, TimeNs now);
  // Fills frames from the front; how many. They hold the owner's memory until they are given to the port.
  [[nodiscard]] std::size_t transmit(std::span<FrameToSend> frames, TimeNs now);
  void on_time(TimeNs now);
  // What another core has received: only one of them gets a frame, and answers it, but all have to know their
  // neighbours.
  void overhear(const ArpMessage& message, TimeNs now);
  [[nodiscard]] TimeNs next_due() const noexcept;
  [[nodiscard]] bool wants_to_send() const noexcept { return !ready_.empty() || !strays_.empty(); }

  // ---- the owner's wishes
  // Peers may connect to `port` from now on; `receive_bytes` of each may come before the owner allows more.
  [[nodiscard]] Status listen(std::uint16_t port, std::uint64_t tag, std::uint64_t receive_bytes,
                              const FlowOptions& options = {});
  void stop_listening(std::uint16_t port);
  [[nodiscard]] std::optional<std::uint64_t> listener(std::uint16_t port) const noexcept;  // its tag
  // `local_port` 0: any that is free. Error: an address that nobody can have, no route, no port or place that is free,
  // or these four numbers are a connection's already.
  [[nodiscard]] Result<FlowId> connect(std::uint16_t local_port, Endpoint remote, std::uint64_t tag,
                                       std::uint64_t receive_bytes, TimeNs now, const FlowOptions& options = {});
  // A flow that is gone already is left alone by all of these. Positions only grow.
  void offer(FlowId flow, std::uint64_t position, TimeNs now);  // bytes before it may be sent
  void allow(FlowId flow, std::uint64_t position, TimeNs now);  // bytes before it may be received
  // Nothing more may be received until more is allowed, although the peer was told of room: what it sends meanwhile
  // counts as lost. False: there are bytes out of order, or no connection yet.
  [[nodiscard]] bool shut(FlowId flow) noexcept;
  void finish(FlowId flow);             // FIN, behind all that was offered
  void abort(FlowId flow, TimeNs now);  // RST, and the flow is gone
  // The owner will read no more: what is offered and a FIN still go out, then the flow is gone. Whatever comes is
  // answered with RST. `keeps_place` false: the owner is gone, too, and lacks no place that this flow has.
  void release(FlowId flow, TimeNs now, bool keeps_place = true);
  void set_options(FlowId flow, const FlowOptions& options, TimeNs now);

  [[nodiscard]] std::optional<FlowChange> next_change();

  // ---- work shared with another stack (slow_path.h): stack_hand_over.cc
  // From now on `slow` does what is no established flow's, and is told what there is. Null: this stack does it again,
  // connections included that were being begun; those of peers try again. `slow` outlives this, or the next call.
  void lean_on(SlowPath* slow);
  // What the slow path says. Error: what no slow path can say.
  [[nodiscard]] Result<bool> adopt(const wire::TcpHandedFlow& handed, const ReceivedFrame* frame,
                                   TimeNs now);  // false: declined
  bool connect_failed(const FlowKey& key, std::uint32_t attempt,
                      FlowError error);  // false: it is not waited for any more
  void receive_returned(const ReceivedFrame& frame, TimeNs now);
  [[nodiscard]] Status learn_neighbour(Ipv4Address address, const MacAddress& mac, TimeNs now);
  [[nodiscard]] Status send_frame(const FrameToSend& frame);  // headers alone

  // This stack is the slow path of `fast`, which outlives it. Before anything else.
  void work_for(FastPath& fast, TimeNs cookies_until) noexcept;
  // What the fast path says.
  void begin_connect(const FlowKey& key, std::uint32_t attempt, std::uint64_t receive_bytes, TimeNs now);
  void abandon(const FlowKey& key, std::uint32_t attempt, TimeNs now);
  void adopted(const FlowKey& key, std::uint32_t attempt, bool declined, TimeNs now);
  [[nodiscard]] Status take_time_wait(const wire::TcpHandedFlow& handed, TimeNs now);
  void resolve(Ipv4Address address, TimeNs now);

  // ---- what there is
  [[nodiscard]] const Flow* flow(FlowId id) const noexcept { return const_cast<Stack*>(this)->find(id); }
  [[nodiscard]] std::size_t flows() const noexcept { return table_.size(); }
  [[nodiscard]] std::size_t half_open() const noexcept { return half_open_.size(); }
  [[nodiscard]] const StackCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] const StackOptions& options() const noexcept { return options_; }
  [[nodiscard]] const PortCapabilities& port() const noexcept { return port_; }
  [[nodiscard]] const CongestionControl& congestion() const noexcept { return congestion_; }
  [[nodiscard]] TimeNs cookies_until() const noexcept { return cookies_until_; }

 private:
  struct Listener {
    std::uint64_t tag, receive_bytes;
    FlowOptions options;
  };

  // stack.cc: flows as such
  [[nodiscard]] Flow* find(FlowId id) noexcept;
  [[nodiscard]] FlowId id_of(const Flow& flow) const noexcept { return {flow.index, flow.generation}; }
  [[nodiscard]] Flow* new_flow(const FlowKey& key, std::uint64_t tag, std::uint64_t receive_bytes,
                               const FlowOptions& options, TimeNs now);
  void make_ready(Flow& flow);
  void note(Flow& flow, std::uint8_t changes);
  void end(Flow& flow, FlowError error);
  void reset(Flow& flow, FlowError error, TimeNs now);  // with a RST to the peer
  void tell_gone(Flow& flow);
  void become_orphan(Flow& flow, TimeNs now);
  void be_no_orphan(Flow& flow) noexcept;
  void free_flow(Flow& flow);
  void arm(Flow& flow);
  void enter(Flow& flow, FlowState state, TimeNs now);
  void free_oldest_time_wait();

  [[nodiscard]] bool is_steered_here(const FlowKey& key) const noexcept;
  [[nodiscard]] std::uint64_t asker(const Flow& flow) const noexcept {  // of its neighbour
    return fast_ != nullptr ? Neighbours::other_stack : flow.slow->share.user;
  }

  // stack_frames.cc: what is no flow's
  void receive_arp(Bytes bytes, TimeNs now);
  void receive_ipv4(Bytes bytes, bool checksum_verified, const MacAddress& from, TimeNs now);
  void receive_unreachable(const IcmpUnreachable& icmp, TimeNs now);
  void drop(Drop reason) noexcept { ++counters_.drops[static_cast<std::size_t>(reason)]; }
  [[nodiscard]] FrameToSend* stray();  // a frame that no flow sends; null: there are too many
  void send_stray(const Segment& segment, const MacAddress& to);
  void refuse(const Segment& segment, const MacAddress& from);             // RST, as RFC 9293, 3.10.7.1 wants it
  [[nodiscard]] Ipv4Address next_hop(Ipv4Address address) const noexcept;  // 0: there is no route
  void send_neighbour_messages();
  void wake_waiting(TimeNs now);

  // stack_listen.cc: passive open
  void receive_unknown(const Segment& segment, const MacAddress& from, TimeNs now);
  void receive_syn(const Segment& segment, const Listener& listener, const MacAddress& from, TimeNs now);
  void receive_for_half_open(const Segment& segment, HalfOpen& half, const MacAddress& from, TimeNs now);
  [[nodiscard]] bool receive_cookie(const Segment& segment, const Listener& listener, TimeNs now);
  void send_syn_ack(const HalfOpen& half, const Listener& listener, bool cookie, const MacAddress& to, TimeNs now);
  [[nodiscard]] Flow* establish(const HalfOpen& half, const Listener& listener, const Segment& segment, TimeNs now);
  [[nodiscard]] Flow* admit(const FlowKey& key, const Listener& listener, TimeNs now);
  void take_half_open(Flow& flow, const HalfOpen& half, const Segment& segment, TimeNs now) const noexcept;
  [[nodiscard]] std::uint64_t count_begun() const noexcept {
    return options_.peers_begun->fetch_add(1, std::memory_order_relaxed) + 1;
  }
  void half_open_due(TimeNs now);

  // stack_hand_over.cc
  void begin_opening(Flow& flow, TimeNs now) const noexcept;
  [[nodiscard]] bool pass_on(const FlowKey& key,
                             std::uint32_t index);  // true: what is being received is the other stack's
  [[nodiscard]] wire::TcpHandedFlow handed(const Flow& flow) const noexcept;
  [[nodiscard]] Status check(const wire::TcpHandedFlow& handed) const;
  void take_handed(Flow& flow, const wire::TcpHandedFlow& handed, TimeNs now) const noexcept;
  void learn_next_hop(const wire::TcpHandedFlow& handed, TimeNs now);
  void hand_over(const HalfOpen& half, const Listener& listener, const Segment& segment, TimeNs now);
  void hand_over(Flow& flow, const ReceivedFrame* frame, TimeNs now);
  void hand_back(Flow& flow);
  void ended_elsewhere(Flow& flow, FlowError error);

  // stack_segment.cc
  void receive_segment(Flow& flow, const Segment& segment, const MacAddress& from, TimeNs now);
  void receive_in_syn_sent(Flow& flow, const Segment& segment, const MacAddress& from, TimeNs now);
  void take_syn_options(Flow& flow, const TcpOptions& peer) const noexcept;
  static void take_window(Flow& flow, std::uint32_t window, Sequence sequence, Sequence ack) noexcept;
  [[nodiscard]] bool acceptable(Flow& flow, const Segment& segment, TimeNs now);
  void challenge(Flow& flow, TimeNs now);
  void established(Flow& flow, TimeNs now);

  // stack_acknowledge.cc
  [[nodiscard]] bool receive_acknowledgement(Flow& flow, const Segment& segment, TimeNs now);
  void acknowledge(Flow& flow, const Segment& segment, TimeNs now);
  void take_sack(Flow& flow, const Segment& segment);
  void judge_tail(Flow& flow, const Segment& segment, TimeNs now);
  void find_losses(Flow& flow, TimeNs now);
  void fin_acknowledged(Flow& flow, TimeNs now);
  [[nodiscard]] static std::uint32_t in_flight(const Flow& flow) noexcept;
  [[nodiscard]] static Scoreboard& scoreboard(Flow& flow);

  // stack_ecn.cc
  [[nodiscard]] static bool asks_for_ecn(const Segment& syn) noexcept;
  static void mark_capable(Flow& flow, Segment& segment, bool new_data) noexcept;
  void take_mark(Flow& flow, const Segment& segment);
  void take_echo(Flow& flow, const Segment& segment, TimeNs now);
  static void slow_down(Flow& flow) noexcept;

  // stack_receive.cc
  void receive_text(Flow& flow, const Segment& segment, TimeNs now);
  void take_in_order(Flow& flow, Sequence next);
  void receive_fin(Flow& flow, TimeNs now);
  void owe_acknowledgement(Flow& flow, std::uint32_t bytes, TimeNs now);
  [[nodiscard]] static Sequence window_edge(const Flow& flow) noexcept;
  [[nodiscard]] static Sequence allowed_edge(const Flow& flow) noexcept;

  // stack_transmit.cc
  [[nodiscard]] bool room_to_send() const noexcept { return out_used_ < out_.size(); }
  void serve(Flow& flow, TimeNs now);
  void send_synchronizing(Flow& flow, const MacAddress& to, TimeNs now);
  bool send_lost(Flow& flow, const MacAddress& to, TimeNs now);
  bool send_new(Flow& flow, const MacAddress& to, TimeNs now);
  void send_tail(Flow& flow, const MacAddress& to, TimeNs now);
  std::uint32_t emit(Flow& flow, SequenceRange range, std::uint8_t flags, const MacAddress& to, TimeNs now);
  [[nodiscard]] std::uint32_t sendable(const Flow& flow) const noexcept;
  [[nodiscard]] static Sequence data_end(const Flow& flow) noexcept;
  [[nodiscard]] std::uint16_t advertise(Flow& flow) const noexcept;
  [[nodiscard]] std::uint32_t chunk_bytes(const Flow& flow) const noexcept;
  [[nodiscard]] TcpOptions options_of(const Flow& flow, TimeNs now) const noexcept;
  void send_reset(const Flow& flow, TimeNs now);

  // stack_timers.cc
  void timer_due(Flow& flow, TimeNs now);
  void await_acknowledgement(Flow& flow, TimeNs now);
  void retransmission_due(Flow& flow, TimeNs now);
  void keepalive_due(Flow& flow, TimeNs now);
  [[nodiscard]] TimeNs keepalive_at(const Flow& flow) const noexcept;
  static void begin_waiting(Flow& flow, TimeNs now) noexcept;
  void wait_on(Flow& flow, TimeNs now) const noexcept;
  [[nodiscard]] TimeNs give_up_at(const Flow& flow) const noexcept;

  [[nodiscard]] std::uint32_t timestamp(std::uint32_t offset, TimeNs now) const noexcept {
    return offset + static_cast<std::uint32_t>(now / millisecond_ns);
  }
  [[nodiscard]] Sequence initial_sequence(const FlowKey& key, TimeNs now) const noexcept;  // RFC 6528
  [[nodiscard]] std::uint8_t own_scale() const noexcept;
  [[nodiscard]] std::uint16_t own_mss() const noexcept {
    return static_cast<std::uint16_t>(port_.mtu - ipv4_header_bytes - tcp_header_bytes);
  }

  StackOptions options_;
  PortCapabilities port_;
  const CongestionControl& congestion_;
  Owner& owner_;
  SlowPath* slow_ = nullptr;              // whom this stack leans on; null: it does all itself
  FastPath* fast_ = nullptr;              // whom it works for; null: itself
  const ReceivedFrame* frame_ = nullptr;  // that is being received
  bool is_returned_ = false;              // and comes from the slow path
  std::uint32_t attempts_ = 0;
  HashKey sequence_key_, timestamp_key_, port_key_;
  std::deque<Flow> flows_;
  std::vector<std::uint32_t> free_;
  FlowTable table_;
  TimerWheel wheel_;
  std::unordered_map<std::uint16_t, Listener> listeners_;
  HalfOpenTable half_open_;
  SynCookies cookies_;
  TimeNs cookies_until_ = 0;  // none that was given out is valid any more
  Neighbours neighbours_;
  std::deque<std::uint32_t> ready_, changed_;
  std::deque<FlowId> time_wait_;  // the oldest first; some have gone already
  std::size_t time_wait_flows_ = 0;
  Orphans orphans_;
  std::deque<FrameToSend> strays_;
  std::span<FrameToSend> out_;
  std::size_t out_used_ = 0;
  std::uint32_t next_port_ = 0;
  StackCounters counters_;
};

}  // namespace offpath::tcp
