#include "tcp/port/interface_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace offpath::tcp {
namespace {

TEST(InterfaceAddress, LoopbackHasTheOneThatEverybodyKnows) {
  const auto addresses = addresses_of_interface("lo");
  ASSERT_TRUE(addresses) << addresses.error().message;
  if (addresses->empty()) GTEST_SKIP() << "lo is down here";
  EXPECT_THAT(*addresses, testing::Contains(InterfaceAddress{ipv4(0x7f000001), 8}));
  EXPECT_TRUE(addresses_of_interface("nonesuch0")->empty());
}

TEST(InterfaceAddress, TheGatewayIsThatOfTheDefaultRouteWithTheSmallestMetric) {
  constexpr std::string_view routes =
      "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
      "eth1\t00000000\t0101090A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
      "eth1\t00000000\t0901090A\t0003\t0\t0\t50\t00000000\t0\t0\t0\n"
      "eth1\t0001090A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
      "eth2\t00000000\t00000000\t0001\t0\t0\t0\t00000000\t0\t0\t0\n"
      "eth3\t0000000A\t0102090A\t0003\t0\t0\t0\t000000FF\t0\t0\t0\n"
      "eth4 00000000 01\n";
  EXPECT_EQ(gateway_in(routes, "eth1"), ipv4(0x0a090109));
  EXPECT_EQ(gateway_in(routes, "eth2"), std::nullopt);  // a route without a gateway
  EXPECT_EQ(gateway_in(routes, "eth3"), std::nullopt);  // to one network only
  EXPECT_EQ(gateway_in(routes, "eth4"), std::nullopt);
  EXPECT_EQ(gateway_in("", "eth1"), std::nullopt);
}

}  // namespace
}  // namespace offpath::tcp
