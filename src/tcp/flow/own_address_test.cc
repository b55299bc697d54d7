// Neighbour discovery: its messages and their effects, duplicate addresses, and routers.
#include "tcp/flow/own_address.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tcp/congestion/congestion.h"
#include "tcp/flow/neighbours.h"
#include "tcp/flow/routes.h"
#include "tcp/segment/checksum.h"
#include "tcp/segment/ethernet.h"
#include "tcp/segment/ipv6.h"
#include "tcp/segment/multicast_listener.h"
#include "tcp/segment/neighbour_discovery.h"
#include "testing/tcp/network.h"

namespace offpath::tcp {
namespace {

const IpAddress own = ip_address("2001:db8::17").value(), other = ip_address("2001:db8::18").value(),
                router = ip_address("fe80::1").value(), far = ip_address("2001:db9::1").value();
constexpr MacAddress own_mac{2, 0, 0, 0, 0, 9}, other_mac{2, 0, 0, 0, 0, 2}, router_mac{2, 0, 0, 0, 0, 1};

std::vector<std::byte> frame_of(const NeighbourMessage& message, const MacAddress& from, const MacAddress& to) {
  FrameToSend frame;
  write_neighbour_frame(message, from, to, frame);
  return {frame.header.begin(), frame.header.begin() + frame.header_bytes};
}

std::vector<std::byte> advertisement(const IpAddress& from, const MacAddress& mac, std::uint16_t lifetime_s) {
  std::vector<std::byte> bytes(ethernet_header_bytes + ipv6_header_bytes + 16 + 8);
  write_ethernet_header({multicast_mac(all_nodes), mac, ethertype_ipv6}, bytes.data());
  std::byte* const message = &bytes[ethernet_header_bytes + ipv6_header_bytes];
  IpPacket packet{.source = from, .target = all_nodes, .protocol = protocol_icmpv6};
  packet.hop_limit = discovery_hop_limit;
  write_ip_header(packet, 24, &bytes[ethernet_header_bytes]);
  message[0] = std::byte{nd_router_advertisement};
  store_be16(message + 6, lifetime_s);
  message[16] = message[17] = std::byte{1};
  store(message + 18, mac);
  Checksum checksum;
  checksum.add_pseudo_header(from, all_nodes, protocol_icmpv6, 24);
  checksum.add(Bytes(message, 24));
  store_be16(message + 2, checksum.finish());
  return bytes;
}

// A solicitation for 2001:db8::17 by fe80::1, and an advertisement of that router with an MTU, as other stacks send
// them.
TEST(NeighbourDiscovery, OfAnotherStackIsRead) {
  const auto packet_of = [](std::initializer_list<int> values) {
    std::vector<std::byte> bytes;
    for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
    return bytes;
  };
  const auto solicitation = packet_of(
      {0x60, 0x00, 0x00, 0x00, 0x00, 0x20, 0x3a, 0xff, 0xfe, 0x80, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
       0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0xff, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01,
       0xff, 0x00, 0x00, 0x17, 0x87, 0x00, 0x4b, 0x35, 0x00, 0x00, 0x00, 0x00, 0x20, 0x01, 0x0d, 0xb8, 0x00, 0x00,
       0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x17, 0x01, 0x01, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01});
  const auto advertises = packet_of(
      {0x60, 0x00, 0x00, 0x00, 0x00, 0x20, 0x3a, 0xff, 0xfe, 0x80, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
       0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0xff, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
       0x00, 0x00, 0x00, 0x01, 0x86, 0x00, 0x27, 0x38, 0x40, 0x00, 0x07, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
       0x00, 0x00, 0x01, 0x01, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0x05, 0x01, 0x00, 0x00, 0x00, 0x00, 0x05, 0xdc});
  IpPacket packet;
  ASSERT_EQ(read_ipv6(solicitation, packet), Drop::none);
  const auto asks = read_neighbour_discovery(packet, other_mac);
  ASSERT_TRUE(asks);
  EXPECT_FALSE(asks->reply);
  EXPECT_EQ(asks->sender, router);
  EXPECT_EQ(asks->sender_mac, router_mac);
  EXPECT_EQ(asks->target, own);
  ASSERT_EQ(read_ipv6(advertises, packet), Drop::none);
  const auto tells = read_neighbour_discovery(packet, other_mac);
  ASSERT_TRUE(tells);
  EXPECT_EQ(tells->router_s, 1800);
  EXPECT_EQ(tells->sender, router);
  EXPECT_EQ(tells->sender_mac, router_mac);
}

TEST(NeighbourDiscovery, IsReadAsItWasWritten) {
  NeighbourMessage asks{false, own_mac, own, {}, other}, answers{true, own_mac, own, {}, other};
  EXPECT_EQ(read_neighbour_frame(frame_of(asks, own_mac, group_mac(other))), asks);
  EXPECT_EQ(read_neighbour_frame(frame_of(asks, own_mac, other_mac)), asks);  // of one that is known
  EXPECT_EQ(read_neighbour_frame(frame_of(answers, own_mac, other_mac)), answers);
  EXPECT_EQ(group_mac(own), (MacAddress{0x33, 0x33, 0xff, 0, 0, 0x17}));
  // Before an address is taken.
  const NeighbourMessage checks{false, {}, {}, {}, own};
  EXPECT_EQ(read_neighbour_frame(frame_of(checks, own_mac, group_mac(own))), checks);
  NeighbourMessage tells_all{true, own_mac, own, {}, {}};
  const auto read = read_neighbour_frame(frame_of(tells_all, own_mac, multicast_mac(all_nodes)));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->target, all_nodes);
  EXPECT_FALSE(read->solicited);
}

// RFC 4861, 7.1: a message is authenticated only by not having come over a router.
TEST(NeighbourDiscovery, ThatCannotBeIsNotRead) {
  const auto good = frame_of({true, own_mac, own, {}, other}, own_mac, other_mac);
  const std::size_t ip = ethernet_header_bytes, icmp = ip + ipv6_header_bytes;
  const auto spoilt = [&](std::size_t at, int value, bool checksum = true) {
    auto frame = good;
    frame[at] = static_cast<std::byte>(value);
    if (checksum) {
      store_be16(&frame[icmp + 2], 0);
      Checksum sum;
      sum.add_pseudo_header(load<IpAddress>(&frame[ip + 8]), load<IpAddress>(&frame[ip + 24]), protocol_icmpv6,
                            static_cast<std::uint32_t>(frame.size() - icmp));
      sum.add(Bytes(frame).subspan(icmp));
      store_be16(&frame[icmp + 2], sum.finish());
    }
    return read_neighbour_frame(frame).has_value();
  };
  EXPECT_TRUE(spoilt(icmp + 4, 0x20));       // not solicited
  EXPECT_FALSE(spoilt(ip + 7, 254));         // the hop limit
  EXPECT_FALSE(spoilt(icmp + 4, 0, false));  // the checksum
  EXPECT_FALSE(spoilt(icmp + 1, 1));         // the code
  EXPECT_FALSE(spoilt(icmp + 8, 0xff));      // of a group
  EXPECT_FALSE(spoilt(ip + 24, 0xff));       // solicited by all
  EXPECT_FALSE(spoilt(icmp + 25, 0));        // an option of no size
  EXPECT_FALSE(spoilt(icmp + 25, 2));        // beyond the message
  EXPECT_FALSE(spoilt(icmp, 137));           // a redirect
}

class Discovery : public testing::Test {
 protected:
  void hears(const NeighbourMessage& message, TimeNs now) { neighbours.on_message(message, now); }
  static NeighbourMessage tells(const MacAddress& mac, bool solicited, bool overrides) {
    return {true, mac, other, {}, own, {}, solicited, overrides};
  }
  bool asks_again(TimeNs now) {  // it is known, and probed
    EXPECT_NE(neighbours.find(other, 1, 0, now), nullptr);
    return neighbours.next_message().has_value();
  }
  Neighbours neighbours{{}, own, own_mac, {}};
};

TEST_F(Discovery, ASolicitationTellsWhereItsSenderIsAndNotThatItCanBeReached) {
  hears({false, other_mac, other, {}, own}, 0);
  const auto answer = neighbours.next_message();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->to, other_mac);
  EXPECT_EQ(answer->message, (NeighbourMessage{true, own_mac, own, other_mac, other}));
  EXPECT_TRUE(asks_again(0));
  hears({false, other_mac, other, {}, own}, 1);  // does not end the probe
  static_cast<void>(neighbours.next_message());
  EXPECT_EQ(neighbours.next_due(), second_ns);
  hears(tells(other_mac, true, true), 2);
  EXPECT_FALSE(asks_again(3));
}

TEST_F(Discovery, AnAdvertisementOfSomebodyWhoWasNotAskedForIsIgnored) {
  hears(tells(other_mac, true, true), 0);
  EXPECT_EQ(neighbours.size(), 0u);
}

TEST_F(Discovery, OnlyAnAnswerMakesANeighbourReachable) {
  EXPECT_EQ(neighbours.find(other, 1, 0, 0), nullptr);
  static_cast<void>(neighbours.next_message());
  hears(tells(other_mac, false, true), 1);
  EXPECT_EQ(*neighbours.known(other), other_mac);
  EXPECT_TRUE(asks_again(2));
  hears(tells({}, true, true), 3);  // says only that it is there
  EXPECT_FALSE(asks_again(4));
  EXPECT_EQ(*neighbours.known(other), other_mac);
}

TEST_F(Discovery, AnotherAddressIsBelievedIfItOverrides) {
  constexpr MacAddress third{2, 0, 0, 0, 0, 3};
  EXPECT_EQ(neighbours.find(other, 1, 0, 0), nullptr);
  hears(tells(other_mac, true, true), 0);
  while (neighbours.next_message()) {
  }
  hears(tells(third, true, false), 1);  // a proxy's: the one that is known is asked itself
  EXPECT_EQ(*neighbours.known(other), other_mac);
  EXPECT_TRUE(asks_again(2));
  hears(tells(third, true, true), 3);
  EXPECT_EQ(*neighbours.known(other), third);
}

// A node that knows this one need not send its own address.
TEST_F(Discovery, ASolicitationWithoutAnAddressIsAnsweredAndChangesNothing) {
  NeighbourMessage asks{false, {}, other, {}, own};
  asks.reply_to = other_mac;
  hears(asks, 0);
  const auto answer = neighbours.next_message();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->to, other_mac);
  EXPECT_EQ(neighbours.size(), 0u);
}

TEST_F(Discovery, WhoChecksOurAddressIsToldBeforeAll) {
  hears({false, {}, {}, {}, own}, 0);
  const auto answer = neighbours.next_message();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->to, multicast_mac(all_nodes));
  EXPECT_EQ(neighbours.size(), 0u);
}

// A stack of its own, which has an address to check.
class OwnAddresses : public testing::Test {
 protected:
  OwnAddresses() {
    options.v6 = {own, 64, {}};
    options.start.group_reports = 0;
    options.secret = {1, 2};
    stack.emplace(options, PortCapabilities{own_mac, 1500, true, 0}, *congestion, owner, now);
  }
  // The frames that it has sent until then.
  std::vector<std::vector<std::byte>> run(TimeNs duration) {
    std::vector<std::vector<std::byte>> sent;
    for (const TimeNs until = now + duration;;) {
      if (stack->next_due() <= now) stack->on_time(now);
      std::array<FrameToSend, 16> frames;
      for (std::size_t count; (count = stack->transmit(frames, now)) > 0;)
        for (std::size_t i = 0; i < count; ++i)
          sent.emplace_back(frames[i].header.begin(), frames[i].header.begin() + frames[i].header_bytes);
      while (stack->next_change()) {
      }
      if (now >= until) return sent;
      now = std::min(until, std::max(now + 1, stack->next_due()));
    }
  }
  void hear(const std::vector<std::byte>& frame) { stack->receive({frame, false}, now); }

  StackOptions options{};
  MemoryOwner owner;
  std::unique_ptr<const CongestionControl> congestion = congestion_control("cubic").value();
  std::optional<Stack> stack;
  TimeNs now = second_ns;
};

TEST_F(OwnAddresses, AreUsedWhenNobodyElseHasThem) {
  const auto sent = run(0);
  ASSERT_EQ(sent.size(), 1u);
  const auto checks = read_neighbour_frame(sent[0]);
  ASSERT_TRUE(checks);
  EXPECT_EQ(*checks, (NeighbourMessage{false, {}, {}, {}, own}));
  EXPECT_EQ(read_ethernet_header(sent[0].data()).target, group_mac(own));
  EXPECT_FALSE(stack->may_use_ipv6());
  // A connection waits, and requests for the address are not answered.
  TestFlow& flow = owner.add({}, 0, 0);
  flow.id = stack->connect(0, {other, 80}, flow.tag, 1000, now).value();
  hear(frame_of({false, other_mac, other, {}, own}, other_mac, group_mac(own)));
  EXPECT_TRUE(run(900 * millisecond_ns).empty());
  const auto then = run(200 * millisecond_ns);
  EXPECT_TRUE(stack->may_use_ipv6());
  ASSERT_GE(then.size(), 2u);  // asks for routers, and the connection begins: the peer's address is known from its
                               // request
  EXPECT_EQ(read_ethernet_header(then[0].data()).target, multicast_mac(all_routers));
  EXPECT_EQ(stack->flow(flow.id)->state, FlowState::syn_sent);
  hear(frame_of({false, other_mac, other, {}, own}, other_mac, group_mac(own)));
  EXPECT_FALSE(run(0).empty());
}

TEST_F(OwnAddresses, ThatSomebodyHasOrWantsAreNotUsed) {
  for (const bool wants : {false, true}) {
    stack.emplace(options, PortCapabilities{own_mac, 1500, true, 0}, *congestion, owner, now);
    static_cast<void>(run(0));
    TestFlow& flow = owner.add({}, 0, 0);
    flow.id = stack->connect(0, {other, 80}, flow.tag, 1000, now).value();
    static_cast<void>(run(100 * millisecond_ns));
    hear(wants ? frame_of({false, {}, {}, {}, own}, other_mac, group_mac(own))
               : frame_of({true, other_mac, own, {}, {}}, other_mac, multicast_mac(all_nodes)));
    EXPECT_TRUE(stack->is_duplicate());
    EXPECT_EQ(stack->flow(flow.id)->state, FlowState::closed);
    EXPECT_EQ(stack->flow(flow.id)->slow->error, FlowError::unreachable);
    EXPECT_TRUE(run(10 * second_ns).empty());
    EXPECT_FALSE(stack->may_use_ipv6());
    EXPECT_FALSE(stack->connect(0, {other, 80}, 0, 1000, now));
    hear(frame_of({false, other_mac, other, {}, own}, other_mac, group_mac(own)));
    EXPECT_TRUE(run(0).empty());
  }
}

// Reflected messages, messages over a router and later messages do not take the address away.
TEST_F(OwnAddresses, AreKeptWhateverElseIsSaid) {
  const auto sent = run(0);
  hear(sent[0]);
  auto over_a_router = frame_of({true, other_mac, own, {}, {}}, other_mac, multicast_mac(all_nodes));
  over_a_router[ethernet_header_bytes + 7] = std::byte{254};
  hear(over_a_router);
  static_cast<void>(run(2 * second_ns));
  EXPECT_TRUE(stack->may_use_ipv6());
  hear(frame_of({true, other_mac, own, {}, {}}, other_mac, multicast_mac(all_nodes)));
  EXPECT_TRUE(stack->may_use_ipv6());
  EXPECT_FALSE(stack->is_duplicate());
}

TEST_F(OwnAddresses, LearnTheRouterThatAdvertisesItself) {
  std::size_t asked = 0;
  for (const auto& frame : run(60 * second_ns))
    asked += read_ethernet_header(frame.data()).target == multicast_mac(all_routers);
  EXPECT_EQ(asked, 3u);
  EXPECT_FALSE(stack->connect(0, {far, 80}, 0, 1000, now));  // no route
  // One router is used, although others advertise themselves.
  for (std::uint32_t i = 0; i < 1000; ++i) {
    IpAddress liar = router;
    store_be32(reinterpret_cast<std::byte*>(&liar.bytes[8]), i);
    hear(advertisement(i == 0 ? router : liar, router_mac, 10));
  }
  EXPECT_EQ(stack->router(), router);
  EXPECT_EQ(stack->neighbours(), 1u);
  TestFlow& flow = owner.add({}, 0, 0);
  flow.id = stack->connect(0, {far, 80}, flow.tag, 1000, now).value();
  const auto sent = run(0);
  ASSERT_FALSE(sent.empty());
  EXPECT_EQ(read_ethernet_header(sent.back().data()).target, router_mac);
  const auto later = run(11 * second_ns);
  EXPECT_TRUE(stack->router().is_unspecified());  // its time is over, and routers are asked again
  EXPECT_TRUE(std::ranges::any_of(later, [](const auto& frame) {
    return read_ethernet_header(frame.data()).target == multicast_mac(all_routers);
  }));
  hear(advertisement(router, router_mac, 1000));
  EXPECT_EQ(stack->router(), router);
  hear(advertisement(router, router_mac, 0));
  EXPECT_TRUE(stack->router().is_unspecified());
  hear(advertisement(other, other_mac, 1000));  // not from a link-local address
  EXPECT_TRUE(stack->router().is_unspecified());
}

// A query by a router, behind the option "router alert".
std::vector<std::byte> query_of(const IpAddress& group, std::uint16_t within_ms, std::uint8_t hop_limit = 1) {
  constexpr std::size_t option_bytes = 8, query_bytes = 24;
  std::vector<std::byte> bytes(ethernet_header_bytes + ipv6_header_bytes + option_bytes + query_bytes);
  write_ethernet_header({multicast_mac(all_nodes), router_mac, ethertype_ipv6}, bytes.data());
  IpPacket packet{.source = router, .target = all_nodes, .protocol = 0};
  packet.hop_limit = hop_limit;
  write_ip_header(packet, option_bytes + query_bytes, &bytes[ethernet_header_bytes]);
  std::byte* const option = &bytes[ethernet_header_bytes + ipv6_header_bytes];
  std::byte* const message = option + option_bytes;
  store_be32(option, std::uint32_t{protocol_icmpv6} << 24 | 0x0502);
  store_be32(option + 4, 0x0100);
  message[0] = std::byte{mld_query};
  store_be16(message + 4, within_ms);
  store(message + 8, group);
  Checksum checksum;
  checksum.add_pseudo_header(router, all_nodes, protocol_icmpv6, query_bytes);
  checksum.add(Bytes(message, query_bytes));
  store_be16(message + 2, checksum.finish());
  return bytes;
}

TEST_F(OwnAddresses, TellSwitchesWhoListensToTheirGroup) {
  options.start = {0, 0, 2};
  stack.emplace(options, PortCapabilities{own_mac, 1500, true, 0}, *congestion, owner, now);
  const auto expect_reports = [](const std::vector<std::vector<std::byte>>& sent, std::size_t count, int record) {
    EXPECT_EQ(sent.size(), count);
    for (const auto& frame : sent) {
      EXPECT_EQ(read_ethernet_header(frame.data()).target, (MacAddress{0x33, 0x33, 0, 0, 0, 0x16}));
      IpPacket packet;
      ASSERT_EQ(read_ipv6(Bytes(frame).subspan(ethernet_header_bytes), packet), Drop::none);
      EXPECT_EQ(packet.hop_limit, 1);
      ASSERT_EQ(packet.protocol, protocol_icmpv6);
      EXPECT_EQ(packet.payload[0], std::byte{mld_report});
      EXPECT_EQ(static_cast<int>(packet.payload[8]), record);
      EXPECT_EQ(load<IpAddress>(&packet.payload[12]), solicited_node(own));
      Checksum checksum;
      checksum.add_pseudo_header(packet.source, packet.target, protocol_icmpv6,
                                 static_cast<std::uint32_t>(packet.payload.size()));
      checksum.add(packet.payload);
      EXPECT_EQ(checksum.finish(), 0);
    }
  };
  constexpr int is_exclude = 2, becomes_exclude = 4;
  expect_reports(run(10 * second_ns), 2, becomes_exclude);
  for (const IpAddress& asked : {IpAddress{}, solicited_node(own)}) {
    hear(query_of(asked, 1000));
    expect_reports(run(second_ns), 1, is_exclude);
  }
  hear(query_of(solicited_node(other), 1000));
  hear(query_of({}, 1000, 64));  // over a router
  expect_reports(run(10 * second_ns), 0, is_exclude);
  // A flood of queries is answered once in a second.
  std::size_t answers = 0;
  for (int i = 0; i < 1000; ++i) {
    hear(query_of({}, 0));
    answers += run(millisecond_ns).size();
  }
  EXPECT_LE(answers, 2u);
  EXPECT_GE(answers, 1u);
}

// Two hosts that advertise themselves; a flow to another network.
class Routers : public OwnAddresses {
 protected:
  static inline const IpAddress second = ip_address("fe80::2").value();
  Routers() { static_cast<void>(run(2 * second_ns)); }
  TestFlow& connect() {
    TestFlow& flow = owner.add({}, 0, 0);
    flow.id = stack->connect(0, {far, 80}, flow.tag, 1000, now).value();
    return flow;
  }
  [[nodiscard]] bool is_unreachable(const TestFlow& flow) {
    const Flow& of_stack = *stack->flow(flow.id);
    return of_stack.state == FlowState::closed && of_stack.slow->error == FlowError::unreachable;
  }
  // Frames of TCP to that station.
  static std::size_t segments_to(const MacAddress& mac, const std::vector<std::vector<std::byte>>& sent) {
    return static_cast<std::size_t>(std::ranges::count_if(sent, [&](const auto& frame) {
      return read_ethernet_header(frame.data()).target == mac && !read_neighbour_frame(frame);
    }));
  }
  static std::size_t questions_to_routers(const std::vector<std::vector<std::byte>>& sent) {
    return static_cast<std::size_t>(std::ranges::count_if(sent, [](const auto& frame) {
      return read_ethernet_header(frame.data()).target == multicast_mac(all_routers);
    }));
  }
  // A router's answer to a request of this stack.
  void answer(const IpAddress& from, const MacAddress& mac, bool is_router = true) {
    auto frame = frame_of({true, mac, from, {}, own}, mac, own_mac);
    constexpr std::size_t icmp = ethernet_header_bytes + ipv6_header_bytes;
    if (is_router) frame[icmp + 4] |= std::byte{0x80};
    store_be16(&frame[icmp + 2], 0);
    Checksum sum;
    sum.add_pseudo_header(from, own, protocol_icmpv6, static_cast<std::uint32_t>(frame.size() - icmp));
    sum.add(Bytes(frame).subspan(icmp));
    store_be16(&frame[icmp + 2], sum.finish());
    hear(frame);
  }
};

// A dead router is used if there is no other one, so that connecting ends as in Linux.
TEST_F(Routers, ThatAloneAreSilentLeaveConnectionsUnreachable) {
  hear(advertisement(router, router_mac, 65'535));
  TestFlow& flow = connect();
  const auto sent = run(20 * second_ns);
  EXPECT_TRUE(is_unreachable(flow));
  EXPECT_GE(questions_to_routers(sent), 3u);
  EXPECT_EQ(stack->router(), router);
  TestFlow& again = connect();
  static_cast<void>(run(2 * second_ns));
  EXPECT_FALSE(is_unreachable(again));
  static_cast<void>(run(2 * second_ns));
  EXPECT_TRUE(is_unreachable(again));
  // Another router advertises itself, and later stops being a router.
  hear(advertisement(second, other_mac, 65'535));
  EXPECT_EQ(stack->router(), second);
  answer(second, other_mac, false);
  EXPECT_EQ(stack->router(), router);
}

TEST_F(Routers, ThatAreSilentAreReplacedByOthersThatHaveAdvertisedThemselves) {
  hear(advertisement(router, router_mac, 65'535));
  hear(advertisement(second, other_mac, 65'535));
  EXPECT_EQ(stack->router(), router);
  TestFlow& flow = connect();
  EXPECT_EQ(segments_to(router_mac, run(100 * millisecond_ns)), 1u);
  static_cast<void>(run(5 * second_ns));
  EXPECT_EQ(stack->router(), second);
  answer(second, other_mac);
  EXPECT_GE(segments_to(other_mac, run(10 * second_ns)), 1u);
  EXPECT_EQ(stack->flow(flow.id)->state, FlowState::syn_sent);
  // The second one becomes silent as well, and the first one is back.
  static_cast<void>(run(100 * second_ns));
  hear(advertisement(router, router_mac, 65'535));
  EXPECT_EQ(stack->router(), router);
  TestFlow& last = connect();
  EXPECT_EQ(segments_to(router_mac, run(0)), 1u);
  answer(router, router_mac);
  static_cast<void>(run(second_ns));
  EXPECT_EQ(stack->flow(last.id)->state, FlowState::syn_sent);
}

TEST_F(Routers, ThatAreAllSilentAreTriedInTurn) {
  hear(advertisement(router, router_mac, 65'535));
  hear(advertisement(second, other_mac, 65'535));
  static_cast<void>(connect());
  static_cast<void>(run(30 * second_ns));
  std::vector<IpAddress> used;
  for (int i = 0; i < 3; ++i) {
    used.push_back(stack->router());
    TestFlow& flow = connect();
    static_cast<void>(run(4 * second_ns));
    EXPECT_TRUE(is_unreachable(flow));
  }
  EXPECT_NE(used[0], used[1]);
  EXPECT_EQ(used[0], used[2]);
  // One answers after all.
  static_cast<void>(connect());
  static_cast<void>(run(0));
  const IpAddress asked = stack->router();
  answer(asked, asked == router ? router_mac : other_mac);
  EXPECT_EQ(stack->router(), asked);
  static_cast<void>(run(second_ns));
  EXPECT_EQ(stack->router(), asked);
}

// A node that is not a router any more, and a silent one that is tried again, get no more than three requests.
TEST_F(Routers, AreAskedThreeTimesForEachOneThatIsLost) {
  std::size_t asked = 0;
  for (int i = 0; i < 10; ++i) {
    asked += questions_to_routers(run(4 * second_ns));
    hear(advertisement(router, router_mac, 0));
  }
  EXPECT_EQ(asked, 2u);  // one has left before
  hear(advertisement(router, router_mac, 65'535));
  asked = 0;
  for (int i = 0; i < 5; ++i) {
    static_cast<void>(connect());
    asked += questions_to_routers(run(20 * second_ns));
  }
  EXPECT_EQ(asked, 3u);
  hear(advertisement(router, router_mac, 65'535));
  hear(advertisement(router, router_mac, 0));
  EXPECT_EQ(questions_to_routers(run(20 * second_ns)), 3u);
}

// Its answer is fresh for a minute; a retransmission timeout raises doubt.
TEST_F(Routers, AreAskedWhenAFlowTimesOut) {
  hear(advertisement(router, router_mac, 65'535));
  hear(advertisement(second, other_mac, 65'535));
  static_cast<void>(connect());
  static_cast<void>(run(0));
  answer(router, router_mac);
  static_cast<void>(run(12 * second_ns));  // SYNs that nobody answers
  EXPECT_EQ(stack->router(), second);
}

TEST_F(Routers, AreNotAskedByFlowsThatWereAnsweredALittleBefore) {
  hear(advertisement(router, router_mac, 65'535));
  static_cast<void>(connect());
  static_cast<void>(run(0));
  answer(router, router_mac);
  for (const auto& frame : run(4 * second_ns)) EXPECT_FALSE(read_neighbour_frame(frame));
}

// A flow is in the waiting list only once, however often it has something to send.
TEST_F(OwnAddresses, AreWaitedForOnceByEachFlow) {
  StackContext context(options, PortCapabilities{own_mac, 1500, true, 0}, *congestion);
  OtherStack alone;
  FrameQueue frames(context);
  Routes routes(context, alone, frames, now);
  Flow flows[2];
  for (std::uint32_t i = 0; i < 2; ++i) {
    flows[i].slow = std::make_unique<FlowSlow>();
    flows[i].key = {{own, static_cast<std::uint16_t>(1000 + i)}, {other, 80}};
    flows[i].index = i;
  }
  for (int times = 0; times < 3; ++times)
    for (Flow& flow : flows) EXPECT_EQ(routes.await(flow, now), nullptr);
  routes.settle_own(true, now);
  for (std::uint32_t i = 0; i < 2; ++i) {
    const auto woken = routes.next_woken(now);
    ASSERT_TRUE(woken);
    EXPECT_EQ(woken->flow, i);
  }
  EXPECT_FALSE(routes.next_woken(now));
  // Nor does it wait for its neighbour more than once.
  for (int times = 0; times < 3; ++times) EXPECT_EQ(routes.await(flows[0], now), nullptr);
  routes.receive({true, other_mac, other, {}, own}, now);
  EXPECT_TRUE(routes.next_woken(now));
  EXPECT_FALSE(routes.next_woken(now));
}

// A core that does not send messages learns only from the one that does.
TEST_F(OwnAddresses, OfOtherCoresAreSettledByTheFirst) {
  options.core = 1;
  options.cores = 2;
  for (const bool usable : {true, false}) {
    stack.emplace(options, PortCapabilities{own_mac, 1500, true, 0}, *congestion, owner, now);
    stack->overhear({true, other_mac, own, {}, all_nodes}, now);
    stack->overhear({false, {}, {}, {}, own}, now);
    EXPECT_TRUE(run(10 * second_ns).empty());
    EXPECT_FALSE(stack->may_use_ipv6() || stack->is_duplicate());
    stack->settle_own(usable, now);
    EXPECT_EQ(stack->may_use_ipv6(), usable);
    EXPECT_EQ(stack->is_duplicate(), !usable);
  }
}

TEST_F(OwnAddresses, WithAGatewayHearNoRouter) {
  options.v6.gateway = other;
  stack.emplace(options, PortCapabilities{own_mac, 1500, true, 0}, *congestion, owner, now);
  for (const auto& frame : run(60 * second_ns))
    EXPECT_NE(read_ethernet_header(frame.data()).target, multicast_mac(all_routers));
  hear(advertisement(router, router_mac, 1000));
  EXPECT_TRUE(stack->router().is_unspecified());
}

}  // namespace
}  // namespace offpath::tcp
