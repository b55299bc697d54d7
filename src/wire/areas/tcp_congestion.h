// The congestion control of a connection, as a program chooses it (TCP_CONGESTION).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace offpath::wire {

// agents: the program has not chosen; the agent's own (`tcp.congestion`).
enum class TcpCongestion : std::uint8_t { agents, new_reno, cubic, dctcp, timely };

// As Linux names them, in the order of TcpCongestion.
inline constexpr std::array<std::string_view, 5> tcp_congestion_names{"", "reno", "cubic", "dctcp", "timely"};

// For a byte that others may write at any time, copied once. `agents`: not an algorithm.
[[nodiscard]] constexpr TcpCongestion tcp_congestion_read(TcpCongestion byte) noexcept {
  return static_cast<std::size_t>(byte) < tcp_congestion_names.size() ? byte : TcpCongestion::agents;
}
[[nodiscard]] constexpr std::string_view name_of(TcpCongestion congestion) noexcept {
  return tcp_congestion_names[static_cast<std::size_t>(tcp_congestion_read(congestion))];
}
// agents: none has this name.
[[nodiscard]] constexpr TcpCongestion tcp_congestion_named(std::string_view name) noexcept {
  const auto found = std::ranges::find(tcp_congestion_names, name);
  return found == tcp_congestion_names.end() ? TcpCongestion::agents
                                             : static_cast<TcpCongestion>(found - tcp_congestion_names.begin());
}

// In a set of them.
[[nodiscard]] constexpr std::uint8_t tcp_congestion_bit(TcpCongestion congestion) noexcept {
  return static_cast<std::uint8_t>(1u << static_cast<unsigned>(congestion));
}
inline constexpr std::uint8_t tcp_congestions_all = (1u << tcp_congestion_names.size()) - 1;

}  // namespace offpath::wire
