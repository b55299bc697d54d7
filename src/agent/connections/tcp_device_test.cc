// The address that the agent uses for programs' connections, and the errors if there is none.
#include "agent/connections/tcp_device.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace offpath::agent {
namespace {

using tcp::InterfaceAddress;

TEST(TcpDevice, TakesTheFirstAddressThatAMachineCanHave) {
  const tcp::IpAddress of_ipv6 = tcp::ip_address("2001:db8::1").value();
  const InterfaceAddress there[] = {
      {tcp::ipv4(0x7f000001), 8}, {of_ipv6, 64}, {tcp::ipv4(0x0a000002), 32}, {tcp::ipv4(0x0a000003), 24}};
  const auto taken = address_to_take("eth0", there);
  ASSERT_TRUE(taken) << taken.error().message;
  EXPECT_EQ(*taken, there[2]);
}

TEST(TcpDevice, SaysWhatToNameWhereThereIsNoneToTake) {
  const InterfaceAddress everywhere[] = {{tcp::ipv4(0x0a000002), 0}}, loopback[] = {{tcp::ipv4(0x7f000001), 8}};
  for (const std::span<const InterfaceAddress> there :
       {std::span<const InterfaceAddress>(everywhere), std::span<const InterfaceAddress>(loopback), {}}) {
    const auto taken = address_to_take("eth0", there);
    ASSERT_FALSE(taken);
    EXPECT_EQ(taken.error().code, Error::invalid);
    EXPECT_NE(taken.error().message.find("tcp.address"), std::string::npos) << taken.error().message;
  }
}

TEST(TcpDevice, TheReasonOfAChoiceNamesWhatWasChosen) {
  EXPECT_EQ(reason_of_choice(std::vector<std::unique_ptr<tcp::Port>>{}), "AF_XDP, because its driver has zero-copy");
  const std::string other = reason_of_choice(fail(Error::unsupported, "its driver, veth, has no zero-copy"));
  EXPECT_TRUE(other.starts_with("AF_PACKET, because ")) << other;
  EXPECT_NE(other.find("its driver, veth, has no zero-copy"), std::string::npos) << other;
}

TEST(TcpDevice, AnInterfaceThatIsNotThereIsSaidSo) {
  TcpSettings settings;
  settings.device = "offpath-none";
  const auto settled = settle_address(settings);
  ASSERT_FALSE(settled);
  EXPECT_EQ(settled.error().code, Error::not_found) << settled.error().message;
}

// Loopback's address: without IPv6 there is no address to refuse.
TEST(TcpDevice, AnIpv6AddressOfTheKernelsIsRefused) {
  const tcp::IpAddress own = tcp::ip_address("::1").value();
  const auto there = tcp::addresses_of_interface("lo");
  ASSERT_TRUE(there) << there.error().message;
  if (std::ranges::find(*there, own, &InterfaceAddress::address) == there->end()) GTEST_SKIP() << "no IPv6 here";
  TcpSettings settings;
  settings.device = "lo";
  settings.stack.v6 = {own, 128, {}};
  const auto settled = settle_address(settings);
  ASSERT_FALSE(settled);
  EXPECT_NE(settled.error().message.find("tcp.address6: the kernel has ::1 on lo"), std::string::npos)
      << settled.error().message;
}

}  // namespace
}  // namespace offpath::agent
