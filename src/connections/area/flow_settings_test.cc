#include "connections/area/flow_settings.h"

#include <gtest/gtest.h>

namespace offpath::channel {
namespace {

constexpr FlowSettings settings{
    .congestion = wire::TcpCongestion::dctcp, .traffic_class4 = 0xb8, .traffic_class6 = 0x20};

TEST(FlowSettings, OfAConnectHaveTheTrafficClassOfItsFamily) {
  wire::TcpCommand four{}, six{};
  settings.put(four, wire::IpFamily::v4);
  settings.put(six, wire::IpFamily::v6);
  EXPECT_EQ(wire::tcp_traffic_class_of(four.flags), 0xb8);
  EXPECT_EQ(wire::tcp_traffic_class_of(six.flags), 0x20);
  EXPECT_EQ(four.traffic_class6, 0) << "the peer's address is in its place";
}

TEST(FlowSettings, OfOtherCommandsHaveBothTrafficClasses) {
  wire::TcpCommand command{};
  settings.put(command);
  EXPECT_EQ(wire::tcp_traffic_class_of(command.flags), 0xb8);
  EXPECT_EQ(command.traffic_class6, 0x20);
  EXPECT_EQ(wire::tcp_congestion_of(command.flags), wire::TcpCongestion::dctcp);
}

TEST(FlowSettings, KeepTheFlagsOfPorts) {
  wire::TcpCommand command{};
  command.flags = wire::tcp_for_ipv6 | wire::tcp_reuse_port | wire::tcp_no_delay;
  FlowSettings{.gathers = true, .keepalive_idle_s = 3}.put(command);
  EXPECT_EQ(command.flags & (wire::tcp_families | wire::tcp_reuse_port), wire::tcp_for_ipv6 | wire::tcp_reuse_port);
  EXPECT_EQ(command.flags & wire::tcp_no_delay, 0);
  EXPECT_NE(command.flags & wire::tcp_keepalive, 0);
  EXPECT_EQ(command.keepalive_idle_s, 3);
}

}  // namespace
}  // namespace offpath::channel
