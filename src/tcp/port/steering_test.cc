// The kernel's BPF program and the agent's function choose the same core for every frame.
#include "testing/tcp/steering.h"

#include <gtest/gtest.h>
#include <linux/if_packet.h>

#include <random>

#include "tcp/port/packet_filter.h"
#include "tcp/segment/icmp.h"
#include "tcp/segment/ipv4.h"
#include "wire/areas/flow_steering.h"

namespace offpath::tcp {
namespace {

struct Quad {
  std::uint32_t from, to;
  std::uint16_t from_port, to_port;
  [[nodiscard]] std::uint32_t core(std::uint32_t cores) const {
    return wire::core_of_flow(from, from_port, to, to_port, cores);
  }
};

// An IPv4 header of a given length, and the first eight bytes behind it: ports and four other bytes.
void put_ipv4(std::vector<std::byte>& frame, const Quad& quad, std::uint8_t protocol, std::size_t options) {
  const std::size_t at = frame.size(), header = 20 + options;
  frame.resize(at + header + 8);
  frame[at] = static_cast<std::byte>(0x40 | header / 4);
  frame[at + 9] = static_cast<std::byte>(protocol);
  store_be32(frame.data() + at + 12, quad.from);
  store_be32(frame.data() + at + 16, quad.to);
  store_be16(frame.data() + at + header, quad.from_port);
  store_be16(frame.data() + at + header + 2, quad.to_port);
}

std::vector<std::byte> ethernet(std::uint16_t type) {
  std::vector<std::byte> frame(ethernet_header_bytes);
  write_ethernet_header({{}, {}, type}, frame.data());
  return frame;
}

TEST(PacketFilter, TakesWhatAStackReadsAndNothingThatIsSentHere) {
  constexpr Ipv4Address own{0x0a000001};
  const auto program = taking_program(own), any = taking_program({});
  const auto datagram = [](std::uint32_t to, std::uint8_t protocol, std::uint16_t fragment = 0x4000,
                           std::uint8_t icmp_type = 3, std::size_t options = 0) {
    auto frame = ethernet(ethertype_ipv4);
    put_ipv4(frame, {0x0a000002, to, 0, 0}, protocol, options);
    store_be16(frame.data() + ethernet_header_bytes + 6, fragment);
    frame[ethernet_header_bytes + 20 + options] = std::byte{icmp_type};
    return frame;
  };
  const auto takes = [&](const std::vector<std::byte>& frame, const FrameTold& told = {}) {
    EXPECT_EQ(run_filter(any, frame, told) != 0, told.type != PACKET_OUTGOING && told.tag.value_or(0) % 4096 == 0);
    return run_filter(program, frame, told) == ~0u;
  };
  auto arp = ethernet(ethertype_arp);
  arp.resize(42);
  for (const std::uint8_t protocol : {std::uint8_t{6}, std::uint8_t{1}})
    for (const std::size_t options : {0u, 4u, 40u}) {
      EXPECT_TRUE(takes(datagram(own.value, protocol, 0x4000, 3, options)));
      EXPECT_FALSE(takes(datagram(own.value + 1, protocol, 0x4000, 3, options)));
    }
  EXPECT_TRUE(takes(arp));
  EXPECT_TRUE(takes(datagram(own.value, 6, 0)));
  EXPECT_FALSE(takes(datagram(own.value, 17)));            // UDP
  EXPECT_FALSE(takes(datagram(own.value, 1, 0x4000, 8)));  // an echo
  EXPECT_FALSE(takes(datagram(own.value, 6, 0x2000)));     // more fragments
  EXPECT_FALSE(takes(datagram(own.value, 6, 0x0001)));     // a later one
  EXPECT_FALSE(takes(ethernet(0x86dd)));
  EXPECT_FALSE(takes(ethernet(ethertype_ipv4)));  // without a header
  for (const auto& frame : {arp, datagram(own.value, 6)}) {
    EXPECT_FALSE(takes(frame, {.type = PACKET_OUTGOING}));
    EXPECT_FALSE(takes(frame, {.tag = 5}));
    EXPECT_TRUE(takes(frame, {.tag = 0xe000}));
  }
}

class Steering : public testing::TestWithParam<std::uint32_t> {
 protected:
  std::mt19937_64 random{GetParam()};
  std::vector<sock_filter> program = steering_program(GetParam());
  Quad any() {
    return {static_cast<std::uint32_t>(random()), static_cast<std::uint32_t>(random()),
            static_cast<std::uint16_t>(random()), static_cast<std::uint16_t>(random())};
  }
};

TEST_P(Steering, OfTheKernelIsTheAgents) {
  for (int i = 0; i < 2000; ++i) {
    const Quad quad = any();
    auto frame = ethernet(ethertype_ipv4);
    put_ipv4(frame, quad, 6, random() % 11 * 4);
    EXPECT_EQ(run_filter(program, frame), quad.core(GetParam()));
  }
}

TEST_P(Steering, IsTheSameBothWays) {
  for (int i = 0; i < 2000; ++i) {
    const Quad quad = any();
    EXPECT_EQ(quad.core(GetParam()), (Quad{quad.to, quad.from, quad.to_port, quad.from_port}.core(GetParam())));
  }
}

TEST_P(Steering, FollowsWhatAnIcmpMessageQuotes) {
  for (int i = 0; i < 2000; ++i) {
    const Quad quad = any();
    auto frame = ethernet(ethertype_ipv4);
    put_ipv4(frame, any(), 1, random() % 11 * 4);  // the last eight bytes are the ICMP header
    put_ipv4(frame, quad, 6, random() % 11 * 4);
    EXPECT_EQ(run_filter(program, frame), quad.core(GetParam()));
  }
}

TEST_P(Steering, GivesTheRestToCore0) {
  for (const std::uint16_t type : {ethertype_arp, ethertype_ipv6}) {
    auto frame = ethernet(type);
    put_ipv4(frame, any(), 6, 0);
    EXPECT_EQ(run_filter(program, frame), 0u);
  }
  for (const std::uint8_t protocol : {17, 2, 132}) {
    auto frame = ethernet(ethertype_ipv4);
    put_ipv4(frame, any(), protocol, 0);
    EXPECT_EQ(run_filter(program, frame), 0u);
  }
  auto quoting_udp = ethernet(ethertype_ipv4);
  put_ipv4(quoting_udp, any(), 1, 0);
  put_ipv4(quoting_udp, any(), 17, 0);
  EXPECT_EQ(run_filter(program, quoting_udp), 0u);
  auto frame = ethernet(ethertype_ipv4);
  put_ipv4(frame, any(), 6, 0);
  for (; frame.size() > ethernet_header_bytes; frame.pop_back())
    EXPECT_LT(run_filter(program, frame), GetParam()) << frame.size();
}

TEST_P(Steering, SpreadsConnectionsOfOneClient) {
  std::vector<std::uint32_t> of_core(GetParam());
  constexpr std::uint32_t connections = 8000;
  for (std::uint32_t i = 0; i < connections; ++i)
    ++of_core[Quad{0x0a090001, 0x0a090002, static_cast<std::uint16_t>(32'768 + i), 80}.core(GetParam())];
  for (const std::uint32_t count : of_core) {
    EXPECT_GT(count, connections / GetParam() * 4 / 5);
    EXPECT_LT(count, connections / GetParam() * 6 / 5);
  }
}

// The ports of tests/e2e/test_sockets_programs.py, whose order matters.
TEST(Ports, OfOneIperf3AreOneCores) {
  const auto core = [](std::uint16_t local) { return Quad{0x0a090001, 0x0a090002, local, 7405}.core(2); };
  EXPECT_EQ(core(20'009), core(20'010));
}

INSTANTIATE_TEST_SUITE_P(Cores, Steering, testing::Values(1u, 2u, 3u, 8u, 16u));

}  // namespace
}  // namespace offpath::tcp
