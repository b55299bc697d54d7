// The kernel's BPF program and the agent's function choose the same core for every frame.
#include "testing/tcp/steering.h"

#include <gtest/gtest.h>
#include <linux/if_packet.h>

#include <random>

#include "tcp/port/core_of_frame.h"
#include "tcp/port/packet_filter.h"
#include "tcp/segment/icmp.h"
#include "tcp/segment/ip_packet.h"
#include "tcp/segment/multicast_listener.h"
#include "tcp/segment/neighbour_discovery.h"
#include "wire/areas/flow_steering.h"

namespace offpath::tcp {
namespace {

struct Quad {
  IpAddress from, to;
  std::uint16_t from_port, to_port;
  [[nodiscard]] std::uint32_t core(std::uint32_t cores) const {
    return wire::core_of_flow(from, from_port, to, to_port, cores);
  }
};

constexpr std::uint8_t udp = 17, fragment_header = 44;

// An IP header with options of a given length, or an extension header, and the first eight bytes behind it: ports and
// four other bytes.
void put_ip(std::vector<std::byte>& frame, const Quad& quad, std::uint8_t protocol, std::size_t options = 0) {
  const bool is_v4 = quad.to.is_v4();
  const std::size_t at = frame.size(), header = ip_header_bytes(quad.to.family()) + options;
  frame.resize(at + header + 8);
  write_ip_header({.source = quad.from, .target = quad.to, .protocol = protocol}, 0, &frame[at]);
  if (is_v4) frame[at] = static_cast<std::byte>(0x40 | header / 4);
  store_be16(frame.data() + at + header, quad.from_port);
  store_be16(frame.data() + at + header + 2, quad.to_port);
}

std::vector<std::byte> ethernet(std::uint16_t type) {
  std::vector<std::byte> frame(ethernet_header_bytes);
  write_ethernet_header({{}, {}, type}, frame.data());
  return frame;
}

std::vector<std::byte> frame_of(const Quad& quad, std::uint8_t protocol, std::size_t options = 0) {
  auto frame = ethernet(quad.to.is_v4() ? ethertype_ipv4 : ethertype_ipv6);
  put_ip(frame, quad, protocol, options);
  return frame;
}

class TakesFrames : public testing::Test {
 protected:
  static constexpr IpAddress own = ipv4(0x0a000001), other = ipv4(0x0a000002);
  static inline const IpAddress own6 = ip_address("2001:db8::17").value(), other6 = ip_address("2001:db8::18").value();
  const std::vector<sock_filter> of_both = taking_program(FrameTargets{own, own6}),
                                 steered = taking_program(FrameTargets{own, own6, true}),
                                 of_v4 = taking_program(FrameTargets{own, {}}),
                                 of_v6 = taking_program(FrameTargets{{}, own6}), any = taking_program({});

  bool takes(const std::vector<std::byte>& frame, const FrameTold& told = {}) {
    EXPECT_EQ(run_filter(any, frame, told) != 0, told.type != PACKET_OUTGOING && told.tag.value_or(0) % 4096 == 0);
    const bool is_taken = run_filter(of_both, frame, told) == ~0u;
    const std::uint16_t type = read_ethernet_header(frame.data()).type;
    EXPECT_EQ(run_filter(of_v4, frame, told) == ~0u, is_taken && type != ethertype_ipv6);
    EXPECT_EQ(run_filter(of_v6, frame, told) == ~0u, is_taken && type != ethertype_ipv4);
    return is_taken;
  }
  static std::vector<std::byte> icmp(const IpAddress& to, std::uint8_t type, std::size_t options = 0) {
    auto frame =
        frame_of({to.is_v4() ? other : other6, to, 0, 0}, to.is_v4() ? protocol_icmp : protocol_icmpv6, options);
    frame[frame.size() - 8] = std::byte{type};
    return frame;
  }
};

TEST_F(TakesFrames, ThatAStackReadsAndNoneThatIsSentHere) {
  const auto datagram = [](const IpAddress& to, std::uint8_t protocol, std::uint16_t fragment = 0x4000,
                           std::size_t options = 0) {
    auto frame = frame_of({other, to, 0, 0}, protocol, options);
    store_be16(frame.data() + ethernet_header_bytes + 6, fragment);
    return frame;
  };
  auto arp = ethernet(ethertype_arp);
  arp.resize(42);
  for (const std::size_t options : {0u, 4u, 40u}) {
    EXPECT_TRUE(takes(datagram(own, protocol_tcp, 0x4000, options)));
    EXPECT_TRUE(takes(icmp(own, icmp_unreachable, options)));
    EXPECT_FALSE(takes(datagram(other, protocol_tcp, 0x4000, options)));
    EXPECT_FALSE(takes(icmp(other, icmp_unreachable, options)));
  }
  EXPECT_TRUE(takes(arp));
  EXPECT_TRUE(takes(datagram(own, protocol_tcp, 0)));
  EXPECT_FALSE(takes(datagram(own, udp)));
  EXPECT_FALSE(takes(icmp(own, 8)));                         // an echo
  EXPECT_FALSE(takes(datagram(own, protocol_tcp, 0x2000)));  // more fragments
  EXPECT_FALSE(takes(datagram(own, protocol_tcp, 0x0001)));  // a later one
  EXPECT_FALSE(takes(ethernet(ethertype_ipv4)));             // without a header
  for (const auto& frame : {arp, datagram(own, protocol_tcp), frame_of({other6, own6, 0, 0}, protocol_tcp)}) {
    EXPECT_FALSE(takes(frame, {.type = PACKET_OUTGOING}));
    EXPECT_FALSE(takes(frame, {.tag = 5}));
    EXPECT_TRUE(takes(frame, {.tag = 0xe000}));
  }
}

TEST_F(TakesFrames, OfIpv6ForTheAddressAndItsGroups) {
  EXPECT_TRUE(takes(frame_of({other6, own6, 0, 0}, protocol_tcp)));
  for (unsigned byte = 0; byte < 16; ++byte) {  // one that differs anywhere is another's
    IpAddress not_ours = own6;
    not_ours.bytes[byte] ^= 1;
    EXPECT_FALSE(takes(frame_of({other6, not_ours, 0, 0}, protocol_tcp))) << byte;
  }
  for (const std::uint8_t type : {icmpv6_unreachable, icmpv6_too_big, icmpv6_parameter_problem}) {
    EXPECT_TRUE(takes(icmp(own6, type)));
    EXPECT_FALSE(takes(icmp(other6, type)));
  }
  for (const std::uint8_t type : {nd_router_advertisement, nd_neighbour_solicitation, nd_neighbour_advertisement}) {
    EXPECT_TRUE(takes(icmp(own6, type)));
    EXPECT_TRUE(takes(icmp(all_nodes, type)));
    EXPECT_TRUE(takes(icmp(solicited_node(own6), type)));
    EXPECT_FALSE(takes(icmp(other6, type)));
  }
  for (const int type : {128, 131, 133, 137, 143})
    EXPECT_FALSE(takes(icmp(own6, static_cast<std::uint8_t>(type)))) << type;
  // Behind an option: a router asks who listens.
  auto query = frame_of({other6, all_nodes, 0, 0}, 0, 8);
  EXPECT_FALSE(takes(query));
  query[query.size() - 8] = std::byte{mld_query};
  EXPECT_TRUE(takes(query));
  EXPECT_EQ(run_filter(steered, query), ~0u);
  EXPECT_FALSE(takes(frame_of({other6, own6, 0, 0}, udp)));
  EXPECT_FALSE(takes(frame_of({other6, own6, 0, 0}, fragment_header)));
  EXPECT_FALSE(takes(ethernet(ethertype_ipv6)));
  // A flow's core is unknown if its header is at another place.
  for (const int extension : {0, 43, 60}) {
    const auto frame = frame_of({other6, own6, 0, 0}, static_cast<std::uint8_t>(extension));
    EXPECT_TRUE(takes(frame)) << extension;
    EXPECT_EQ(run_filter(steered, frame), 0u) << extension;
  }
}

TEST_F(TakesFrames, WithoutTcpWhereThatComesByAnotherWay) {
  for (const bool is_steered : {false, true}) {
    const auto program = taking_program(FrameTargets{own, own6, is_steered, false});
    EXPECT_EQ(run_filter(program, frame_of({other, own, 0, 0}, protocol_tcp)), 0u);
    EXPECT_EQ(run_filter(program, frame_of({other6, own6, 0, 0}, protocol_tcp)), 0u);
    EXPECT_EQ(run_filter(program, icmp(own, icmp_unreachable)), ~0u);
    EXPECT_EQ(run_filter(program, icmp(own6, icmpv6_too_big)), ~0u);
    EXPECT_EQ(run_filter(program, icmp(all_nodes, nd_neighbour_solicitation)), ~0u);
    EXPECT_EQ(run_filter(program, ethernet(ethertype_arp)), ~0u);
    EXPECT_EQ(run_filter(program, frame_of({other6, own6, 0, 0}, 60)), is_steered ? 0u : ~0u);
  }
}

class Steering : public testing::TestWithParam<std::uint32_t> {
 protected:
  std::mt19937_64 random{GetParam()};
  std::vector<sock_filter> program = steering_program(GetParam());
  // The results of the kernel's program, and of the agent's own steering.
  std::uint32_t core(const std::vector<std::byte>& frame) {
    const std::uint32_t found = run_filter(program, frame);
    EXPECT_EQ(core_of_frame(frame, GetParam()), found);
    return found;
  }
  IpAddress any_address(IpFamily family) {
    if (family == IpFamily::v4) return ipv4(static_cast<std::uint32_t>(random()));
    IpAddress made;
    for (auto& byte : made.bytes) byte = static_cast<std::uint8_t>(random());
    return made;
  }
  Quad any(IpFamily family) {
    return {any_address(family), any_address(family), static_cast<std::uint16_t>(random()),
            static_cast<std::uint16_t>(random())};
  }
  std::size_t any_options(IpFamily family) { return family == IpFamily::v4 ? random() % 11 * 4 : 0; }
  static constexpr IpFamily families[] = {IpFamily::v4, IpFamily::v6};
};

TEST_P(Steering, OfTheKernelIsTheAgents) {
  for (int i = 0; i < 2000; ++i)
    for (const IpFamily family : families) {
      const Quad quad = any(family);
      EXPECT_EQ(core(frame_of(quad, protocol_tcp, any_options(family))), quad.core(GetParam()));
    }
}

TEST_P(Steering, IsTheSameBothWays) {
  for (int i = 0; i < 2000; ++i)
    for (const IpFamily family : families) {
      const Quad quad = any(family);
      EXPECT_EQ(quad.core(GetParam()), (Quad{quad.to, quad.from, quad.to_port, quad.from_port}.core(GetParam())));
    }
}

TEST_P(Steering, FollowsWhatAnIcmpMessageQuotes) {
  for (int i = 0; i < 2000; ++i)
    for (const IpFamily family : families) {
      const Quad quad = any(family);
      // The last eight bytes are the ICMP header.
      auto frame = frame_of(any(family), family == IpFamily::v4 ? protocol_icmp : protocol_icmpv6, any_options(family));
      if (family == IpFamily::v6) frame[frame.size() - 8] = std::byte{icmpv6_too_big};
      put_ip(frame, quad, protocol_tcp, any_options(family));
      EXPECT_EQ(core(frame), quad.core(GetParam()));
    }
}

TEST_P(Steering, GivesTheRestToCore0) {
  auto arp = ethernet(ethertype_arp);
  put_ip(arp, any(IpFamily::v4), protocol_tcp);
  EXPECT_EQ(core(arp), 0u);
  for (const IpFamily family : families) {
    for (const std::uint8_t protocol : {udp, std::uint8_t{2}, std::uint8_t{132}})
      EXPECT_EQ(core(frame_of(any(family), protocol)), 0u);
    auto quoting_udp = frame_of(any(family), family == IpFamily::v4 ? protocol_icmp : protocol_icmpv6);
    put_ip(quoting_udp, any(family), udp);
    EXPECT_EQ(core(quoting_udp), 0u);
    auto frame = frame_of(any(family), protocol_tcp);
    for (; frame.size() > ethernet_header_bytes; frame.pop_back()) EXPECT_LT(core(frame), GetParam()) << frame.size();
  }
  for (const std::uint8_t type : {nd_router_advertisement, nd_neighbour_solicitation, nd_neighbour_advertisement}) {
    auto discovery = frame_of(any(IpFamily::v6), protocol_icmpv6);
    discovery[discovery.size() - 8] = std::byte{type};
    put_ip(discovery, any(IpFamily::v6), protocol_tcp);
    EXPECT_EQ(core(discovery), 0u);
  }
}

TEST_P(Steering, SpreadsConnectionsOfOneClient) {
  std::vector<std::uint32_t> of_core(GetParam());
  constexpr std::uint32_t connections = 8000;
  for (std::uint32_t i = 0; i < connections; ++i)
    ++of_core[Quad{ipv4(0x0a090001), ipv4(0x0a090002), static_cast<std::uint16_t>(32'768 + i), 80}.core(GetParam())];
  for (const std::uint32_t count : of_core) {
    EXPECT_GT(count, connections / GetParam() * 4 / 5);
    EXPECT_LT(count, connections / GetParam() * 6 / 5);
  }
}

// The ports of tests/e2e/sockets/test_sockets_programs.py, whose order matters.
TEST(Ports, OfOneIperf3AreOneCores) {
  const auto core = [](std::uint16_t local) { return Quad{ipv4(0x0a090001), ipv4(0x0a090002), local, 7405}.core(2); };
  EXPECT_EQ(core(20'009), core(20'010));
}

INSTANTIATE_TEST_SUITE_P(Cores, Steering, testing::Values(1u, 2u, 3u, 8u, 16u));

}  // namespace
}  // namespace offpath::tcp
