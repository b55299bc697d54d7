// State that all parts of one stack share: its options, the device's capabilities, counters, and the other stack if two
// share the work. Each part of a stack holds a reference to it.
#pragma once

#include <algorithm>

#include "base/measure/latency.h"
#include "tcp/congestion/congestion.h"
#include "tcp/flow/neighbours.h"
#include "tcp/flow/slow_path.h"
#include "tcp/flow/stack_options.h"
#include "tcp/port/port.h"
#include "tcp/segment/ipv6.h"
#include "tcp/segment/segment.h"

namespace offpath::tcp {

// A key for one purpose, derived from a stack's secret.
[[nodiscard]] inline HashKey derived_key(const HashKey& secret, std::uint64_t purpose) noexcept {
  const FlowKey none{};
  return {keyed_hash(secret, none, 2 * purpose), keyed_hash(secret, none, 2 * purpose + 1)};
}

struct StackContext {
  // `congestion_control` outlives it.
  StackContext(const StackOptions& stack_options, const PortCapabilities& capabilities,
               const CongestionControl& congestion_control)
      : options(stack_options),
        port(capabilities),
        congestion(congestion_control),
        sequence_key(derived_key(options.secret, 1)),
        timestamp_key(derived_key(options.secret, 2)) {}

  [[nodiscard]] const CongestionControl& control(wire::TcpCongestion chosen) const noexcept {
    return chosen == wire::TcpCongestion::agents ? congestion : congestion_control(chosen);
  }
  [[nodiscard]] const CongestionControl& control(const Flow& flow) const noexcept { return control(flow.algorithm); }
  void drop(Drop reason) noexcept { ++counters.drops[static_cast<std::size_t>(reason)]; }
  [[nodiscard]] static std::uint32_t timestamp(std::uint32_t offset, TimeNs now) noexcept {
    return offset + static_cast<std::uint32_t>(now / millisecond_ns);
  }
  // The hash differs for each connection, the clock ticks every 4 us (RFC 6528, RFC 9293, 3.4.1).
  [[nodiscard]] Sequence initial_sequence(const FlowKey& key, TimeNs now) const noexcept {
    return Sequence(static_cast<std::uint32_t>(keyed_hash(sequence_key, key)) + static_cast<std::uint32_t>(now / 4000));
  }
  [[nodiscard]] std::uint8_t own_scale() const noexcept {
    std::uint8_t scale = 0;
    while (scale < window_scale_max && (std::uint64_t{65'535} << scale) < options.window_max) ++scale;
    return scale;
  }
  // Payload of a segment without options, in packets of the port or in smaller ones.
  [[nodiscard]] std::uint16_t own_mss(IpFamily family) const noexcept { return mss_of_mtu(family, port.mtu); }
  [[nodiscard]] static std::uint16_t mss_of_mtu(IpFamily family, std::uint16_t mtu) noexcept {
    return static_cast<std::uint16_t>(mtu - ip_header_bytes(family) - tcp_header_bytes);
  }
  [[nodiscard]] std::uint16_t path_mtu_least(IpFamily family) const noexcept {
    return family == IpFamily::v4 ? options.path_mtu_least : ipv6_mtu_least;
  }
  // Unspecified: there is no route.
  [[nodiscard]] IpAddress next_hop(const IpAddress& address) const noexcept {
    const IpInterface& own = options.own(address.family());
    if (own.address.is_unspecified() || (!address.is_v4() && is_duplicate)) return {};
    const bool is_here =
        share_prefix(address, own.address, own.prefix_length) || (!address.is_v4() && is_link_local(address));
    if (is_here) return address;
    return own.gateway.is_unspecified() && !address.is_v4() ? router : own.gateway;
  }
  // The number of connections begun by peers, this one included, over all stacks that share the count.
  [[nodiscard]] std::uint64_t count_begun() const noexcept {
    return options.peers_begun->fetch_add(1, std::memory_order_relaxed) + 1;
  }

  StackOptions options;
  PortCapabilities port;
  const CongestionControl& congestion;  // the default of flows without a choice: control()
  IpAddress router{};                   // the IPv6 router that advertised itself; unspecified: none
  bool is_duplicate = false;            // another node has the IPv6 address
  HashKey sequence_key, timestamp_key;
  StackCounters counters{};
  LatencyHistogram acknowledged{};  // from a segment's departure to its acknowledgement, one for each round trip
};

// The other stack, if two share the work (slow_path.h), and the frame being received, which may have to go to it.
struct OtherStack {
  SlowPath* slow = nullptr;              // the stack that does handshakes for this one; null: this one does them
  FastPath* fast = nullptr;              // the stack that this one does handshakes for; null: it has flows of its own
  const ReceivedFrame* frame = nullptr;  // being received
  bool is_returned = false;              // the frame being received was returned by the slow path

  // The user who is charged for resolving the neighbour of `flow`.
  [[nodiscard]] std::uint64_t asker(const Flow& flow) const noexcept {
    return fast != nullptr ? Neighbours::other_stack : flow.slow->share.user;
  }
  // A flow that the other stack still has, or waits for, has ended here.
  void ended(Flow& flow, FlowError error) const {
    const bool opening = flow.state == FlowState::syn_sent || flow.state == FlowState::syn_received;
    if (fast != nullptr) {
      if (opening && !flow.elsewhere) fast->failed(flow.key, flow.slow->attempt, error);
    } else if (slow != nullptr) {
      slow->abandon(flow.key, flow.slow->attempt);
    }
    flow.elsewhere = false;
  }
};

}  // namespace offpath::tcp
