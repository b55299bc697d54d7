// Headers of IPv6: frames of other stacks are read, what cannot be is named, and written headers are read back.
#include "tcp/segment/ipv6.h"

#include <gtest/gtest.h>

#include <vector>

#include "tcp/segment/checksum.h"
#include "tcp/segment/ethernet.h"
#include "tcp/segment/frame_writer.h"
#include "tcp/segment/icmp.h"
#include "tcp/segment/segment.h"
#include "tcp/segment/segmentation.h"

namespace offpath::tcp {
namespace {

const IpAddress one = ip_address("2001:db8::1").value(), two = ip_address("2001:db8::2").value();

std::vector<std::byte> octets(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

// A SYN from 2001:db8::1 with Linux's options, ECT(0) and the flow label 0xabcde.
const std::vector<std::byte> syn =
    octets({0x60, 0x2a, 0xbc, 0xde, 0x00, 0x28, 0x06, 0x40, 0x20, 0x01, 0x0d, 0xb8, 0x00, 0x00, 0x00, 0x00,
            0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x20, 0x01, 0x0d, 0xb8, 0x00, 0x00, 0x00, 0x00,
            0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x9e, 0x1a, 0x00, 0x50, 0x2d, 0x5c, 0x8a, 0x10,
            0x00, 0x00, 0x00, 0x00, 0xa0, 0x02, 0xfd, 0x20, 0xe2, 0x22, 0x00, 0x00, 0x02, 0x04, 0x05, 0xa0,
            0x04, 0x02, 0x08, 0x0a, 0x1d, 0x74, 0x9a, 0x10, 0x00, 0x00, 0x00, 0x00, 0x01, 0x03, 0x03, 0x07});

TEST(Ipv6, SegmentOfAnotherStackIsRead) {
  IpPacket packet;
  ASSERT_EQ(read_ipv6(syn, packet), Drop::none);
  EXPECT_EQ(packet.source, one);
  EXPECT_EQ(packet.target, two);
  EXPECT_EQ(packet.ecn, Ecn::capable_0);
  EXPECT_EQ(packet.flow_label, 0xabcdeu);
  EXPECT_EQ(packet.hop_limit, 64);
  Segment segment;
  ASSERT_EQ(read_segment(packet, false, segment), Drop::none);
  EXPECT_EQ(segment.key, (FlowKey{{two, 80}, {one, 0x9e1a}}));
  EXPECT_EQ(segment.options.mss, 1440);
  auto padded = syn;
  padded.resize(100);
  ASSERT_EQ(read_ipv6(padded, packet), Drop::none);
  EXPECT_EQ(packet.payload.size(), 40u);
  auto damaged = syn;
  damaged[79] = std::byte{8};
  ASSERT_EQ(read_ipv6(damaged, packet), Drop::none);
  EXPECT_EQ(read_segment(packet, false, segment), Drop::bad_tcp_checksum);
}

TEST(Ipv6, WhatCannotBeIsNamed) {
  const auto verdict = [](std::size_t at, int value) {
    auto bytes = syn;
    bytes[at] = static_cast<std::byte>(value);
    IpPacket packet;
    return read_ipv6(bytes, packet);
  };
  EXPECT_EQ(verdict(0, 0x40), Drop::bad_ip_header);
  EXPECT_EQ(verdict(5, 41), Drop::truncated);
  EXPECT_EQ(verdict(6, 44), Drop::fragment);
  IpPacket packet;
  EXPECT_EQ(read_ipv6(Bytes(syn).first(39), packet), Drop::truncated);
  // An IPv4 address of a flow is never one that came in an IPv6 header.
  for (const std::size_t at : {8u, 24u}) {
    auto mapped = syn;
    store(&mapped[at], ipv4(0x0a000001));
    EXPECT_EQ(read_ipv6(mapped, packet), Drop::bad_ip_header);
  }
}

// The SYN behind these headers, each of which is named by the one before it.
std::vector<std::byte> with_headers(const std::vector<std::pair<int, std::vector<std::byte>>>& headers) {
  std::vector<std::byte> bytes(syn.begin(), syn.begin() + ipv6_header_bytes);
  std::size_t names_next = 6;
  for (const auto& [kind, body] : headers) {
    bytes[names_next] = static_cast<std::byte>(kind);
    names_next = bytes.size();
    bytes.insert(bytes.end(), body.begin(), body.end());
  }
  bytes[names_next] = std::byte{protocol_tcp};
  bytes.insert(bytes.end(), syn.begin() + ipv6_header_bytes, syn.end());
  store_be16(&bytes[4], static_cast<std::uint16_t>(bytes.size() - ipv6_header_bytes));
  return bytes;
}

Drop verdict(const std::vector<std::byte>& bytes) {
  IpPacket packet;
  const Drop reason = read_ipv6(bytes, packet);
  Segment segment;
  return reason != Drop::none ? reason : read_segment(packet, false, segment);
}

TEST(Ipv6, ExtensionHeadersAreSkippedWithinABound) {
  constexpr int hop_by_hop = 0, routing = 43, options = 60;
  const auto padding = octets({0, 0, 1, 4, 0, 0, 0, 0}), single = octets({0, 0, 0, 0, 0, 0, 0, 0}),
             router_alert = octets({0, 0, 5, 2, 0, 0, 1, 0}),
             longer = octets({0, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  for (const auto& body : {padding, single, router_alert, longer})
    for (const int kind : {hop_by_hop, options}) EXPECT_EQ(verdict(with_headers({{kind, body}})), Drop::none);
  EXPECT_EQ(verdict(with_headers({{hop_by_hop, padding}, {options, longer}, {routing, single}})), Drop::none);
  EXPECT_EQ(verdict(with_headers({{options, padding}, {hop_by_hop, padding}})), Drop::bad_ip_header);  // not the first
  EXPECT_EQ(verdict(with_headers({{routing, octets({0, 0, 0, 1, 0, 0, 0, 0})}})), Drop::bad_ip_header);
  // Options of which a node that does not know them has to drop the datagram.
  for (const int type : {0x41, 0x81, 0xc2})
    EXPECT_EQ(verdict(with_headers({{options, octets({0, 0, type, 4, 0, 0, 0, 0})}})), Drop::bad_ip_header);
  EXPECT_EQ(verdict(with_headers({{options, octets({0, 0, 1, 5, 0, 0, 0, 0})}})), Drop::bad_ip_header);
  EXPECT_EQ(verdict(with_headers({{options, octets({0, 255, 0, 0, 0, 0, 0, 0})}})), Drop::truncated);
  std::vector<std::pair<int, std::vector<std::byte>>> many(extension_headers_max, {options, padding});
  EXPECT_EQ(verdict(with_headers(many)), Drop::none);
  many.emplace_back(options, padding);
  EXPECT_EQ(verdict(with_headers(many)), Drop::bad_ip_header);
  EXPECT_EQ(verdict(with_headers({{options, padding}, {44, single}})), Drop::fragment);
}

TEST(Ipv6, SentSegmentsHaveAFlowLabelThatIsTheirFlows) {
  const auto label = [](const FlowKey& key, std::uint8_t flags) {
    Segment segment;
    segment.key = key;
    segment.flags = flags;
    segment.ecn = Ecn::capable_0;
    segment.traffic_class = 0xb8;
    FrameToSend frame;
    write_segment_frame(segment, {}, 1440, {2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}, false, frame);
    const auto whole = whole_frame(frame);
    EXPECT_EQ(read_ethernet_header(whole.data()).type, ethertype_ipv6);
    IpPacket packet;
    EXPECT_EQ(read_ipv6(Bytes(whole).subspan(ethernet_header_bytes), packet), Drop::none);
    EXPECT_EQ(packet.ecn, Ecn::capable_0);
    EXPECT_EQ(packet.traffic_class, 0xb8);
    Segment read;
    EXPECT_EQ(read_segment(packet, false, read), Drop::none);
    EXPECT_EQ(read.traffic_class, 0xb8);
    EXPECT_EQ(read.key, (FlowKey{key.remote, key.local}));
    return packet.flow_label;
  };
  const FlowKey key{{one, 80}, {two, 4000}}, other{{one, 80}, {two, 4001}};
  EXPECT_EQ(label(key, flag::syn | flag::ack), label(key, flag::ack));
  EXPECT_EQ(label(key, flag::rst), label(key, flag::ack));
  EXPECT_NE(label(key, flag::ack), label(other, flag::ack));
  EXPECT_NE(label(key, flag::ack), 0u);
}

TEST(Ipv6, FramesAreCutAsACardDoes) {
  Segment segment;
  segment.key = {{one, 80}, {two, 4000}};
  segment.flags = flag::ack | flag::fin;
  std::vector<std::byte> payload(3000, std::byte{7});
  FrameToSend frame;
  write_segment_frame(segment, {Bytes(payload), Bytes()}, 1440, {}, {}, true, frame);
  EXPECT_EQ(frame.segment_bytes, 1440);
  std::size_t bytes = 0, count = 0;
  for_each_wire_frame(frame, [&](std::vector<std::byte>&& wire) {
    IpPacket packet;
    ASSERT_EQ(read_ipv6(Bytes(wire).subspan(ethernet_header_bytes), packet), Drop::none);
    EXPECT_EQ(packet.payload.size(), wire.size() - ethernet_header_bytes - ipv6_header_bytes);
    Segment read;
    ASSERT_EQ(read_segment(packet, false, read), Drop::none);
    bytes += read.payload.size();
    EXPECT_EQ(read.has(flag::fin), ++count == 3);
  });
  EXPECT_EQ(bytes, 3000u);
}

TEST(Ipv6, ARouterMarksWhatMayBeMarked) {
  for (const bool may_mark : {true, false}) {
    std::vector<std::byte> frame(ethernet_header_bytes);
    write_ethernet_header({{}, {}, ethertype_ipv6}, frame.data());
    frame.insert(frame.end(), syn.begin(), syn.end());
    if (!may_mark) frame[ethernet_header_bytes + 1] = std::byte{0x0a};
    EXPECT_EQ(mark_congestion(frame), may_mark);
    IpPacket packet;
    ASSERT_EQ(read_ipv6(Bytes(frame).subspan(ethernet_header_bytes), packet), Drop::none);
    EXPECT_EQ(packet.ecn, may_mark ? Ecn::congested : Ecn::not_capable);
    EXPECT_EQ(packet.flow_label, 0xabcdeu);
  }
}

TEST(Icmpv6, NamesTheFlowItIsAbout) {
  using Why = IcmpUnreachable::Why;
  const auto read = [](int type, int code, std::uint32_t number, const IpAddress& to = one, int spoils = 0) {
    auto bytes = octets({type, code, 0, 0, 0, 0, 0, 0});
    store_be32(&bytes[4], number);
    bytes.insert(bytes.end(), syn.begin(), syn.begin() + 48);
    IpPacket packet{.source = ip_address("2001:db8::99").value(), .target = to, .protocol = protocol_icmpv6};
    Checksum checksum;
    checksum.add_pseudo_header(packet.source, to, protocol_icmpv6, static_cast<std::uint32_t>(bytes.size()));
    checksum.add(bytes);
    store_be16(&bytes[2], checksum.finish());
    bytes[47] ^= static_cast<std::byte>(spoils);
    packet.payload = bytes;
    return read_icmp_unreachable(packet);
  };
  const auto big = read(icmpv6_too_big, 0, 1300);
  ASSERT_TRUE(big);
  EXPECT_EQ(big->why, Why::too_big);
  EXPECT_EQ(big->mtu, 1300);
  EXPECT_EQ(big->key, (FlowKey{{one, 0x9e1a}, {two, 80}}));
  EXPECT_EQ(big->sequence, Sequence(0x2d5c8a10));
  EXPECT_EQ(read(icmpv6_too_big, 0, 1u << 20)->mtu, 65'535);
  EXPECT_EQ(read(icmpv6_unreachable, 4, 0)->why, Why::refused);
  EXPECT_EQ(read(icmpv6_unreachable, 0, 0)->why, Why::unreachable);
  EXPECT_EQ(read(icmpv6_parameter_problem, 1, 40)->why, Why::refused);
  EXPECT_EQ(read(icmpv6_parameter_problem, 0, 40)->why, Why::unreachable);
  EXPECT_FALSE(read(128, 0, 0));                        // an echo
  EXPECT_FALSE(read(icmpv6_too_big, 0, 1300, two));     // quotes another address's segment
  EXPECT_FALSE(read(icmpv6_too_big, 0, 1300, one, 1));  // a wrong checksum
}

}  // namespace
}  // namespace offpath::tcp
