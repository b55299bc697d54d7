#include "connections/area/flow_settings.h"

namespace offpath::channel {

void FlowSettings::put(wire::TcpCommand& command, std::optional<wire::IpFamily> family) const noexcept {
  const bool is_v6 = family == wire::IpFamily::v6;
  command.flags =
      static_cast<std::uint16_t>((command.flags & ~wire::tcp_no_delay) | (gathers ? 0 : wire::tcp_no_delay) |
                                 (keepalive_idle_s != 0 ? wire::tcp_keepalive : 0) |
                                 wire::tcp_flags_of(congestion, is_v6 ? traffic_class6 : traffic_class4));
  if (!family) command.traffic_class6 = traffic_class6;
  command.keepalive_idle_s = keepalive_idle_s;
  command.keepalive_interval_s = keepalive_interval_s;
  command.keepalive_probes = keepalive_probes;
  command.user_timeout_ms = user_timeout_ms;
}

}  // namespace offpath::channel
