// Headers in frames: frames of other stacks are read, and written headers are read back.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tcp/segment/arp.h"
#include "tcp/segment/checksum.h"
#include "tcp/segment/ethernet.h"
#include "tcp/segment/icmp.h"
#include "tcp/segment/ipv4.h"
#include "tcp/segment/neighbour_discovery.h"
#include "tcp/segment/segment.h"

namespace offpath::tcp {
namespace {

std::vector<std::byte> bytes_from(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

TEST(Checksum, IsThatOfTheStandard) {
  // RFC 1071, 3: the sum is ddf2.
  Checksum checksum;
  checksum.add(bytes_from({0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}));
  EXPECT_EQ(checksum.sum(), 0xddf2);
  EXPECT_EQ(checksum.finish(), 0x220d);
}

TEST(Checksum, DoesNotDependOnHowBytesAreSplit) {
  std::mt19937 random(1);
  std::vector<std::byte> bytes(1500);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  for (int round = 0; round < 200; ++round) {
    const auto size = random() % bytes.size();
    std::uint32_t plain = 0;
    for (std::size_t i = 0; i < size; ++i) plain += static_cast<std::uint32_t>(bytes[i]) << (i % 2 == 0 ? 8 : 0);
    while (plain >> 16 != 0) plain = (plain & 0xffff) + (plain >> 16);
    Checksum parts;
    for (std::size_t at = 0; at < size;) {
      const std::size_t part = std::min<std::size_t>(random() % 40, size - at);
      parts.add(Bytes(bytes).subspan(at, part));
      at += part;
    }
    ASSERT_EQ(parts.sum(), plain) << size;
  }
}

TEST(Arp, IsReadAsItWasWritten) {
  const NeighbourMessage message{true, {1, 2, 3, 4, 5, 6}, ipv4(0x0a000001), {7, 8, 9, 10, 11, 12}, ipv4(0x0a000002)};
  std::array<std::byte, arp_bytes> bytes{};
  write_arp(message, bytes);
  EXPECT_EQ(read_arp(bytes), message);
  EXPECT_FALSE(read_arp(Bytes(bytes).first(27)));
  bytes[5] = std::byte{16};  // addresses of IPv6
  EXPECT_FALSE(read_arp(bytes));
}

// A SYN of Linux with all its options.
const std::vector<std::byte> syn_of_linux =
    bytes_from({0x45, 0x00, 0x00, 0x3c, 0x1c, 0x46, 0x40, 0x00, 0x40, 0x06, 0xb1, 0xe6, 0xac, 0x10, 0x0a,
                0x63, 0xac, 0x10, 0x0a, 0x0c, 0x9e, 0x1a, 0x00, 0x50, 0x2d, 0x5c, 0x8a, 0x10, 0x00, 0x00,
                0x00, 0x00, 0xa0, 0x02, 0xfa, 0xf0, 0x00, 0x00, 0x00, 0x00, 0x02, 0x04, 0x05, 0xb4, 0x04,
                0x02, 0x08, 0x0a, 0x1d, 0x74, 0x9a, 0x10, 0x00, 0x00, 0x00, 0x00, 0x01, 0x03, 0x03, 0x07});

TEST(Segment, OfAnotherStackIsRead) {
  IpPacket packet;
  auto bytes = syn_of_linux;
  ASSERT_EQ(read_ipv4(bytes, packet), Drop::none);
  EXPECT_EQ(text_of(packet.source), "172.16.10.99");
  EXPECT_EQ(packet.traffic_class, 0);
  Segment segment;
  EXPECT_EQ(read_segment(packet, false, segment), Drop::bad_tcp_checksum);
  ASSERT_EQ(read_segment(packet, true, segment), Drop::none);
  EXPECT_EQ(segment.key.local, (Endpoint{ipv4(0xac100a0c), 80}));
  EXPECT_EQ(segment.key.remote, (Endpoint{ipv4(0xac100a63), 0x9e1a}));
  EXPECT_EQ(segment.flags, flag::syn);
  EXPECT_EQ(segment.sequence, Sequence(0x2d5c8a10));
  EXPECT_EQ(segment.window, 64240);
  EXPECT_EQ(segment.length(), 1u);
  EXPECT_EQ(segment.options.mss, 1460);
  EXPECT_EQ(segment.options.window_scale, 7);
  EXPECT_TRUE(segment.options.sack_permitted);
  EXPECT_EQ(segment.options.timestamps, (Timestamps{0x1d749a10, 0}));
}

TEST(Segment, ShowsItsTrafficClassBesideTheBitsOfEcn) {
  std::vector<std::byte> header(ipv4_header_bytes);
  IpPacket written{.source = ipv4(0x0a000001), .target = ipv4(0x0a000002), .protocol = protocol_tcp};
  written.traffic_class = 0xb8;
  written.ecn = Ecn::capable_0;
  write_ip_header(written, 0, header.data());
  EXPECT_EQ(header[1], std::byte{0xba});
  IpPacket read;
  ASSERT_EQ(read_ipv4(header, read), Drop::none);
  EXPECT_EQ(read.traffic_class, 0xb8);
  EXPECT_EQ(read.ecn, Ecn::capable_0);
}

TEST(Segment, WithAnyOptionsIsReadAsItWasWritten) {
  std::mt19937 random(2);
  for (int round = 0; round < 500; ++round) {
    Segment segment;
    segment.key = round % 2 == 0 ? FlowKey{{ipv4(0x0a000001), 1000}, {ipv4(0x0a000002), 2000}}
                                 : FlowKey{{ip_address("2001:db8::1").value(), 1000}, {all_nodes, 2000}};
    segment.sequence = Sequence(static_cast<std::uint32_t>(random()));
    segment.acknowledgement = Sequence(static_cast<std::uint32_t>(random()));
    segment.flags = static_cast<std::uint8_t>(random() | flag::ack);
    segment.window = static_cast<std::uint16_t>(random());
    if (random() % 2) segment.options.mss = static_cast<std::uint16_t>(random());
    if (random() % 2) segment.options.window_scale = random() % 15;
    segment.options.sack_permitted = random() % 2;
    if (random() % 2) segment.options.timestamps = Timestamps{static_cast<std::uint32_t>(random()), 5};
    segment.options.sack_count = segment.options.mss || segment.options.sack_permitted ? 0 : random() % 4;
    for (std::size_t i = 0; i < segment.options.sack_count; ++i)
      segment.options.sack[i] = {Sequence(static_cast<std::uint32_t>(random())),
                                 Sequence(static_cast<std::uint32_t>(random()))};
    if (segment.options.sack_count == 3) segment.options.window_scale.reset();
    std::vector<std::byte> bytes(tcp_header_bytes_max + 5, std::byte{0x77});
    const std::size_t header =
        write_segment_header(segment, std::span<std::byte, tcp_header_bytes_max>(bytes.data(), tcp_header_bytes_max));
    bytes.resize(header + 5);
    std::fill(bytes.end() - 5, bytes.end(), std::byte{0x77});
    Checksum checksum;
    checksum.add_pseudo_header(segment.key.local.address, segment.key.remote.address, protocol_tcp,
                               static_cast<std::uint32_t>(bytes.size()));
    checksum.add(bytes);
    store_be16(&bytes[tcp_checksum_offset], checksum.finish());
    Segment read;
    ASSERT_EQ(read_segment({.source = segment.key.local.address,
                            .target = segment.key.remote.address,
                            .protocol = protocol_tcp,
                            .payload = bytes},
                           false, read),
              Drop::none);
    EXPECT_EQ(read.key.local, segment.key.remote);
    EXPECT_EQ(read.sequence, segment.sequence);
    EXPECT_EQ(read.acknowledgement, segment.acknowledgement);
    EXPECT_EQ(read.flags, segment.flags);
    EXPECT_EQ(read.options, segment.options);
    EXPECT_EQ(read.payload.size(), 5u);
  }
}

TEST(Segment, OptionsThatCannotBeAreNotRead) {
  EXPECT_EQ(read_tcp_options(bytes_from({2, 4, 5})), TcpOptions{});                      // truncated
  EXPECT_EQ(read_tcp_options(bytes_from({2, 0, 5, 0xb4})), TcpOptions{});                // must not loop for ever
  EXPECT_EQ(read_tcp_options(bytes_from({2, 3, 5, 4, 2})).sack_permitted, true);         // invalid length: skipped
  EXPECT_EQ(read_tcp_options(bytes_from({3, 3, 200})).window_scale, 14);                 // RFC 7323, 2.3
  EXPECT_EQ(read_tcp_options(bytes_from({0, 4, 2})), TcpOptions{});                      // behind the end of options
  EXPECT_EQ(read_tcp_options(bytes_from({99, 4, 1, 1, 1, 4, 2})).sack_permitted, true);  // unknown
  EXPECT_EQ(read_tcp_options(bytes_from({5, 10, 0, 0, 0, 1, 0, 0, 0, 9})).sack[0],
            (SequenceRange{Sequence(1), Sequence(9)}));
}

// RFC 9768, 3.2.3: two orders; of another length, as many fields as fit.
TEST(Segment, CountsOfMarkedBytesAreReadInBothOrders) {
  const auto read = [](std::initializer_list<int> bytes) { return read_tcp_options(bytes_from(bytes)).ecn_bytes; };
  const EcnBytes all{.capable_0 = 1, .congested = 0x020304, .capable_1 = 5};
  EXPECT_EQ(read({172, 11, 0, 0, 1, 2, 3, 4, 0, 0, 5}), all);
  EXPECT_EQ(read({174, 11, 0, 0, 5, 2, 3, 4, 0, 0, 1}), all);
  EXPECT_EQ(read({172, 8, 0, 0, 1, 2, 3, 4}), (EcnBytes{.capable_0 = 1, .congested = 0x020304}));
  EXPECT_EQ(read({174, 5, 0, 0, 5}), EcnBytes{.capable_1 = 5});
  EXPECT_EQ(read({172, 7, 0, 0, 1, 2, 3}), EcnBytes{.capable_0 = 1});
  EXPECT_EQ(read({172, 13, 0, 0, 1, 2, 3, 4, 0, 0, 5, 9, 9}), all);
  EXPECT_EQ(read({172, 2}), EcnBytes{});
  EXPECT_EQ(read({172, 12, 0, 0, 1}), std::nullopt);
  for (const EcnBytes& told : {all, EcnBytes{.capable_0 = 7, .congested = 8}, EcnBytes{.congested = 9, .capable_1 = 6},
                               EcnBytes{.capable_0 = 3}, EcnBytes{}}) {
    std::array<std::byte, tcp_options_bytes_max> written{};
    const std::size_t bytes = write_tcp_options({.ecn_bytes = told}, written);
    EXPECT_EQ(bytes % 4, 0u);
    EXPECT_LE(bytes, std::max<std::size_t>(ecn_option_bytes(told), 4));
    EXPECT_EQ(read_tcp_options(Bytes(written).first(bytes)).ecn_bytes, told);
  }
}

TEST(Ipv4, WhatCannotBeIsNamed) {
  const auto verdict = [](std::size_t at, int value) {
    auto bytes = syn_of_linux;
    bytes[at] = static_cast<std::byte>(value);
    IpPacket packet;
    return read_ipv4(bytes, packet);
  };
  EXPECT_EQ(verdict(0, 0x65), Drop::bad_ip_header);
  EXPECT_EQ(verdict(0, 0x44), Drop::bad_ip_header);
  EXPECT_EQ(verdict(2, 0x10), Drop::truncated);
  EXPECT_EQ(verdict(3, 10), Drop::bad_ip_header);
  EXPECT_EQ(verdict(8, 0x41), Drop::bad_ip_checksum);
  IpPacket packet;
  EXPECT_EQ(read_ipv4(Bytes(syn_of_linux).first(19), packet), Drop::truncated);
  auto fragment = syn_of_linux;
  fragment[6] = std::byte{0x20};
  store_be16(&fragment[10], 0);
  Checksum checksum;
  checksum.add(Bytes(fragment).first(20));
  store_be16(&fragment[10], checksum.finish());
  EXPECT_EQ(read_ipv4(fragment, packet), Drop::fragment);
}

TEST(Icmp, NamesTheFlowItIsAbout) {
  std::vector<std::byte> bytes(8);
  bytes.insert(bytes.end(), syn_of_linux.begin(), syn_of_linux.begin() + 28);
  bytes[0] = std::byte{3};
  bytes[1] = std::byte{icmp_fragmentation_needed};
  store_be16(&bytes[6], 1400);
  Checksum checksum;
  checksum.add(bytes);
  store_be16(&bytes[2], checksum.finish());
  IpPacket packet{.source = ipv4(0xac100a01), .target = ipv4(0xac100a63), .protocol = protocol_icmp, .payload = bytes};
  const auto read = read_icmp_unreachable(packet);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->why, IcmpUnreachable::Why::too_big);
  EXPECT_EQ(read->mtu, 1400);
  EXPECT_EQ(read->key, (FlowKey{{ipv4(0xac100a63), 0x9e1a}, {ipv4(0xac100a0c), 80}}));
  EXPECT_EQ(read->sequence, Sequence(0x2d5c8a10));
  packet.target = ipv4(0xac100a64);
  EXPECT_FALSE(read_icmp_unreachable(packet));  // quotes another address's segment
  packet.target = ipv4(0xac100a63);
  bytes[20] = std::byte{1};
  EXPECT_FALSE(read_icmp_unreachable(packet));
}

}  // namespace
}  // namespace offpath::tcp
