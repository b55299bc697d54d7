#include "tcp/stack/handed_flows.h"
#include "tcp/flow/positions.h"

namespace offpath::tcp {

namespace {

constexpr std::uint32_t round_trip_us_max = 600'000'000;
constexpr std::uint16_t timestamps_bytes = 12;  // subtracted from a segment's payload

// Of the next hop; all zeros where it is not known.
MacAddress next_hop_mac(const wire::TcpHandedFlow& handed) noexcept {
  MacAddress mac;
  std::copy(std::begin(handed.next_hop_mac), std::end(handed.next_hop_mac), mac.begin());
  return mac;
}

}  // namespace

wire::TcpHandedFlow HandedFlows::write(const Flow& flow) const noexcept {
  wire::TcpHandedFlow made{};
  made.key = slow_key(flow.key, flow.slow->attempt);
  made.una = flow.next.value();
  made.receive_next = flow.receive_next.value();
  made.send_window = flow.send_window;
  made.window_sequence = flow.window_sequence.value();
  made.window_ack = flow.window_ack.value();
  made.recent_timestamp = flow.recent_timestamp;
  made.round_trip_us =
      static_cast<std::uint32_t>(std::min<TimeNs>(flow.rtt.smoothed_ns() / microsecond_ns, round_trip_us_max));
  made.mss = flow.mss;
  made.traffic_class = flow.slow->options.traffic_class(flow.key.family());
  made.send_scale = flow.send_scale;
  made.receive_scale = flow.receive_scale;
  made.flags =
      static_cast<std::uint8_t>((flow.timestamps ? wire::tcp_handed_timestamps : 0) |
                                (flow.sack ? wire::tcp_handed_sack : 0) | (flow.ecn ? wire::tcp_handed_ecn : 0));
  if (const MacAddress* mac = routes_.known(context_.next_hop(flow.key.remote.address)))
    std::copy(mac->begin(), mac->end(), made.next_hop_mac);
  return made;
}

Status HandedFlows::check(const wire::TcpHandedFlow& handed) const {
  const FlowKey key = flow_key(handed.key);
  const auto bad = [&](std::string_view what, std::uint64_t value) {
    return fail(Error::protocol, "a connection from {} to {} with {} {}", text_of(key.local), text_of(key.remote), what,
                value);
  };
  if (key.local.address != context_.options.own(key.family()).address || key.local.port == 0)
    return bad("a local port of", key.local.port);
  if (!is_unicast(key.remote.address) || key.remote.address == key.local.address || key.remote.port == 0 ||
      context_.next_hop(key.remote.address).is_unspecified())
    return bad("a remote port of", key.remote.port);
  constexpr std::uint8_t flags = wire::tcp_handed_timestamps | wire::tcp_handed_sack | wire::tcp_handed_ecn;
  if ((handed.flags & ~flags) != 0) return bad("flags", handed.flags);
  if (handed.send_scale > window_scale_max) return bad("a window scale of", handed.send_scale);
  if (handed.receive_scale != 0 && handed.receive_scale != context_.own_scale())
    return bad("a scale of this end of", handed.receive_scale);
  if (handed.send_window > std::uint32_t{65'535} << window_scale_max) return bad("a window of", handed.send_window);
  const std::uint32_t options = (handed.flags & wire::tcp_handed_timestamps) != 0 ? timestamps_bytes : 0;
  if (handed.mss + options < context_.options.mss_least || handed.mss + options > context_.own_mss(key.family()))
    return bad("segments of", handed.mss);
  if (handed.round_trip_us > round_trip_us_max) return bad("a round trip in us of", handed.round_trip_us);
  if (const MacAddress mac = next_hop_mac(handed); mac != MacAddress{} && !is_station(mac))
    return bad("a group's hardware address for its neighbour, which begins with", handed.next_hop_mac[0]);
  return {};
}

// The owner's room bounds windows of this end, not the other stack's values.
void HandedFlows::read(Flow& flow, const wire::TcpHandedFlow& handed, TimeNs now) const noexcept {
  flow.una = flow.next = Sequence(handed.una);
  flow.slow->iss = flow.una - 1u;
  flow.receive_next = flow.ack_sent = Sequence(handed.receive_next);
  flow.receive_edge = flow.receive_next + static_cast<std::uint32_t>(std::min<std::uint64_t>(flow.allowed, 65'535));
  take_window(flow, handed.send_window, Sequence(handed.window_sequence), Sequence(handed.window_ack));
  flow.recent_timestamp = handed.recent_timestamp;
  flow.heard_ms = context_.timestamp(0, now);
  flow.mss = handed.mss;
  flow.send_scale = handed.send_scale;
  flow.receive_scale = handed.receive_scale;
  flow.timestamps = (handed.flags & wire::tcp_handed_timestamps) != 0;
  flow.sack = (handed.flags & wire::tcp_handed_sack) != 0;
  flow.ecn = (handed.flags & wire::tcp_handed_ecn) != 0;
  if (handed.round_trip_us != 0) flow.rtt.add(TimeNs{handed.round_trip_us} * microsecond_ns, context_.options.rto);
}

bool HandedFlows::learn_next_hop(const wire::TcpHandedFlow& handed, TimeNs now) {
  const MacAddress mac = next_hop_mac(handed);
  if (!is_station(mac)) return false;
  routes_.learn(context_.next_hop(handed.key.remote_address), mac, true, now);
  return true;
}

void HandedFlows::give(const HalfOpen& half, const Listener& listener, TimeNs now) {
  Flow flow;
  flow.slow = std::make_unique<FlowSlow>();
  flow.key = half.key;
  flow.allowed = listener.receive_bytes;
  flow.receive_scale = context_.own_scale();
  take_half_open(flow, half, context_, now);
  static_cast<void>(routes_.find_peer(half.key.remote.address, now));  // it will be needed
  other_.fast->adopt(write(flow), other_.frame);
}

void HandedFlows::give(Flow& flow, const ReceivedFrame* frame, TimeNs now) {
  flow.elsewhere = true;
  flow.wants_ack = false;
  static_cast<void>(routes_.find(flow, now));
  other_.fast->adopt(write(flow), frame);
}

}  // namespace offpath::tcp
