// A flow's positions: the ends of its data and windows, and bytes in flight. Functions of one flow.
#pragma once

#include <algorithm>
#include <memory>

#include "tcp/flow/flow.h"

namespace offpath::tcp {

// The end of the offered stream; a FIN is the number behind it.
[[nodiscard]] inline Sequence data_end(const Flow& flow) noexcept {
  return flow.una + static_cast<std::uint32_t>(std::min<std::uint64_t>(flow.unacknowledged(), 1u << 30));
}

// The right edge of the window that the owner's room allows now.
[[nodiscard]] inline Sequence window_edge(const Flow& flow) noexcept {
  const std::uint64_t most = std::uint64_t{65'535} << flow.receive_scale;
  const auto window = static_cast<std::uint32_t>(std::min(flow.room(), most));
  return flow.receive_next + (window >> flow.receive_scale << flow.receive_scale);
}

// The end of acceptable data: the announced window, or less if the owner has shut it.
[[nodiscard]] inline Sequence allowed_edge(const Flow& flow) noexcept {
  return earlier(flow.receive_edge,
                 flow.receive_next + static_cast<std::uint32_t>(std::min<std::uint64_t>(flow.room(), 1u << 30)));
}

// The window to announce, which moves the announced edge.
[[nodiscard]] inline std::uint16_t advertise(Flow& flow) noexcept {
  const Sequence edge = window_edge(flow);
  const std::int32_t grown = edge - flow.receive_edge;
  // Not in small steps, which would lead to small segments (RFC 9293, 3.8.6.2.2).
  const auto least = static_cast<std::int32_t>(
      std::min<std::uint64_t>(flow.mss, std::max<std::uint64_t>(flow.slow->buffer_bytes / 2, 1)));
  if (grown >= least) flow.receive_edge = edge;
  const std::uint32_t window = bytes_between(flow.receive_next, later(flow.receive_edge, flow.receive_next));
  return static_cast<std::uint16_t>(std::min<std::uint32_t>(window >> flow.receive_scale, 65'535));
}

inline void take_window(Flow& flow, std::uint32_t window, Sequence sequence, Sequence ack) noexcept {
  flow.send_window = window;
  flow.slow->send_window_most = std::max(flow.slow->send_window_most, window);
  flow.window_sequence = sequence;
  flow.window_ack = ack;
}

[[nodiscard]] inline std::uint32_t in_flight(const Flow& flow) noexcept {
  if (flow.slow->scoreboard == nullptr) return bytes_between(flow.una, flow.next);
  const std::uint32_t bytes = flow.slow->scoreboard->in_flight(flow.next);
  // Without SACK each duplicate ACK stands for a segment that has arrived.
  const std::uint32_t arrived = flow.sack ? 0 : std::uint32_t{flow.duplicates} * flow.mss;
  return bytes > arrived ? bytes - arrived : 0;
}

// The flow's scoreboard, made on demand.
[[nodiscard]] inline Scoreboard& scoreboard(Flow& flow) {
  if (flow.slow->scoreboard == nullptr) flow.slow->scoreboard = std::make_unique<Scoreboard>(flow.una);
  return *flow.slow->scoreboard;
}

}  // namespace offpath::tcp
