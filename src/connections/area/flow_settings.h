// Options that a program may set for a connection at any time, and the commands that carry them to the agent.
#pragma once

#include <cstdint>
#include <optional>

#include "wire/areas/tcp_area.h"

namespace offpath::channel {

struct FlowSettings {
  bool gathers : 1 = false;  // Nagle's algorithm: no small segment while another is unacknowledged
  std::uint8_t keepalive_probes : 7 = 9;
  wire::TcpCongestion congestion = wire::TcpCongestion::agents;   // one that AgentWords::may_choose() allows
  std::uint16_t keepalive_idle_s = 0, keepalive_interval_s = 75;  // idle 0: no keepalive
  std::uint8_t traffic_class4 = 0, traffic_class6 = 0;            // of packets of each family, without the bits of ECN
  std::uint32_t user_timeout_ms = 0;                              // without an acknowledgement; 0: the agent's

  // Writes them into a command. `family`: of a `connect`, which has one traffic class only.
  void put(wire::TcpCommand& command, std::optional<wire::IpFamily> family = std::nullopt) const noexcept;
  friend bool operator==(const FlowSettings&, const FlowSettings&) = default;
};
static_assert(sizeof(FlowSettings) == 12);

}  // namespace offpath::channel
