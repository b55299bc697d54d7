// Two stacks on a good network: connections are made, carry bytes, and end in every way.
#include <gtest/gtest.h>

#include "tcp/segment/checksum.h"
#include "tcp/segment/ethernet.h"
#include "tcp/segment/icmp.h"
#include "testing/tcp/network.h"

namespace offpath::tcp {
namespace {

constexpr std::uint16_t port = 80;

struct World : TestNetwork {
  explicit World(const TestNetworkOptions& options = {}, const TestFlowPlan& served = {}) : TestNetwork(options) {
    ends[1].owner.plan = served;
    EXPECT_TRUE(ends[1].stack->listen(test_family(), port, 1, served.buffer_bytes));
  }
  TestFlow& accepted() { return ends[1].owner.flows.begin()->second; }
  void nothing_is_left() {
    EXPECT_TRUE(run_until([&] { return all_gone(); }, 200 * second_ns));
    run(200 * second_ns);  // TIME-WAIT
    for (End& end : ends) {
      EXPECT_EQ(end.stack->flows(), 0u);
      EXPECT_EQ(end.stack->half_open(), 0u);
      for (const auto& [tag, flow] : end.owner.flows) EXPECT_EQ(flow.wrong, 0u);
    }
    // Only ARP's timers may be left: no other timer may run forever.
    for (End& end : ends) EXPECT_FALSE(end.stack->wants_to_send());
  }
};

TEST(Stack, CarriesBytesBothWaysAndEnds) {
  World world({}, {100'000, 65'536});
  TestFlow& flow = world.connect(0, port, {300'000, 65'536});
  ASSERT_TRUE(world.run_until([&] { return world.all_gone(); }, 10 * second_ns));
  EXPECT_TRUE(flow.connected && world.accepted().connected);
  EXPECT_EQ(flow.read, 100'000u);
  EXPECT_EQ(world.accepted().read, 300'000u);
  EXPECT_EQ(flow.error, FlowError::none);
  for (const auto& end : world.ends) EXPECT_EQ(end.stack->counters().retransmitted, 0u);
  world.nothing_is_left();
}

TEST(Stack, IsRefusedWhereNobodyListens) {
  World world;
  TestFlow& flow = world.connect(0, port + 1, {10, 1000});
  ASSERT_TRUE(world.run_until([&] { return flow.closed; }, second_ns));
  EXPECT_EQ(flow.error, FlowError::refused);
  EXPECT_EQ(world.ends[1].stack->counters().refused, 1u);
  EXPECT_EQ(world.ends[0].stack->counters().refused, 0u);
  world.nothing_is_left();
}

TEST(Stack, SaysThatNobodyIsThere) {
  World world;
  TestFlow& flow = world.connect_to(0, {test_address(0x0a000063), 80});
  ASSERT_TRUE(world.run_until([&] { return flow.closed; }, 10 * second_ns));
  EXPECT_EQ(flow.error, FlowError::unreachable);
  EXPECT_FALSE(world.ends[0].stack->connect(0, {test_address(0x0b000001), 80}, 1, 1000, world.now));  // no route
  world.nothing_is_left();
}

// A flow that waited for a neighbour was given up before that; another one has its number, and another neighbour.
TEST(Stack, DoesNotTakeOneNeighboursSilenceForAnothers) {
  World world;
  world.connect(0, port, {1, 1000});  // so that the peer's hardware address is known
  world.run(2 * second_ns);
  TestFlow& waits = world.connect_to(0, {test_address(0x0a000063), 80});
  world.run(millisecond_ns);
  world.ends[0].stack->abort(waits.id, world.now);
  world.run(millisecond_ns);
  ASSERT_TRUE(waits.gone);
  TestFlow& flow = world.connect(0, port, {1000, 1000});
  ASSERT_EQ(flow.id.index, waits.id.index);
  world.cut_off(0);
  world.run(10 * second_ns);  // the other is given up
  EXPECT_FALSE(flow.closed);
  world.cut_off(0, false);
  ASSERT_TRUE(world.run_until([&] { return flow.gone; }, 100 * second_ns));
  EXPECT_EQ(flow.error, FlowError::none);
}

TEST(Stack, GivesUpAPeerThatIsSilent) {
  World world;
  world.connect(0, port, {1, 1000});
  world.run(second_ns);
  world.run(second_ns);
  TestFlow& flow = world.connect(0, port, {1000, 1000});
  world.cut_off(0);
  ASSERT_TRUE(world.run_until([&] { return flow.closed; }, 400 * second_ns));
  EXPECT_EQ(flow.error, FlowError::timed_out);
}

// RFC 5482: it limits the wait for a silent peer and for a closed window.
TEST(Stack, GivesUpAfterTheUsersTimeout) {
  for (const bool silent : {true, false}) {
    World world({}, {0, 4096, silent});
    TestFlow& flow = world.connect(0, port, {1000, 65'536});
    flow.finish_wanted = false;
    world.run(second_ns);
    world.ends[0].stack->set_options(flow.id, {.user_timeout_ns = 5 * second_ns}, world.now);
    world.run(100 * second_ns);  // nothing waits
    ASSERT_FALSE(flow.closed);
    if (silent) world.cut_off(0);
    flow.sends = 60'000;
    world.ends[0].owner.act(*world.ends[0].stack, world.now);
    world.run(5 * second_ns - millisecond_ns);
    EXPECT_FALSE(flow.closed) << silent;
    EXPECT_TRUE(world.run_until([&] { return flow.closed; }, second_ns)) << silent;
    EXPECT_EQ(flow.error, FlowError::timed_out);
  }
}

TEST(Stack, ResetsWhatIsAborted) {
  World world({}, {0, 65'536});
  TestFlow& flow = world.connect(0, port, {1000, 65'536});
  flow.finish_wanted = false;
  world.run(second_ns);
  world.ends[0].stack->abort(flow.id, world.now);
  world.run(second_ns);
  EXPECT_TRUE(flow.gone);
  EXPECT_EQ(world.accepted().error, FlowError::reset);
  EXPECT_EQ(world.accepted().read, 1000u);
  world.nothing_is_left();
}

TEST(Stack, ResetsASenderNobodyReadsAnyMore) {
  World world({}, {1 << 20, 65'536});
  TestFlow& flow = world.connect(0, port, {10, 4096});
  flow.finish_wanted = flow.reads = false;
  world.run(100 * millisecond_ns);
  world.ends[0].stack->release(flow.id, world.now);
  flow.reads = true;
  world.run(10 * second_ns);
  EXPECT_EQ(world.accepted().error, FlowError::reset);
  world.nothing_is_left();
}

// The window is closed, so the peer only asks for room. No program will read, which the peer has to learn.
TEST(Stack, APeerThatWaitsForRoomOfAReleasedFlowIsReset) {
  World world({}, {0, 4096, false});
  TestFlow& flow = world.connect(0, port, {60'000, 65'536});
  world.run(second_ns);
  ASSERT_LT(world.accepted().received, 60'000u);
  world.ends[1].stack->release(world.accepted().id, world.now);
  world.run(10 * second_ns);
  EXPECT_EQ(flow.error, FlowError::reset);
  world.nothing_is_left();
}

// The program is gone, and the peer takes little: data arrives as long as the peer takes some.
TEST(Stack, WhatIsReleasedGoesOnAsLongAsThePeerTakesIt) {
  World world({}, {0, 4096, false});
  TestFlow& flow = world.connect(0, port, {60'000, 65'536});
  world.run(second_ns);
  world.ends[0].stack->release(flow.id, world.now);
  for (int i = 0; i < 30 && !world.accepted().finished; ++i) {
    world.accepted().reads = true;
    world.ends[1].owner.act(*world.ends[1].stack, world.now);
    world.accepted().reads = false;
    world.run(20 * second_ns);
  }
  EXPECT_EQ(world.accepted().received, 60'000u);
  EXPECT_TRUE(world.accepted().finished);
  world.accepted().reads = true;
  world.nothing_is_left();
  EXPECT_EQ(world.ends[0].stack->counters().orphans_reset, 0u);
}

TEST(Stack, HasNoMoreReleasedFlowsThanItsBound) {
  TestNetworkOptions options;
  options.stack.orphans_max = 4;
  World world(options, {0, 4096, false});
  std::vector<TestFlow*> flows;
  for (int i = 0; i < 10; ++i) flows.push_back(&world.connect(0, port, {60'000, 65'536}));
  world.run(second_ns);
  for (TestFlow* flow : flows) world.ends[0].stack->release(flow->id, world.now);
  world.run(millisecond_ns);
  for (std::size_t i = 0; i < flows.size(); ++i) EXPECT_EQ(flows[i]->gone, i < 6) << i;
  EXPECT_EQ(world.ends[0].stack->counters().orphans_reset, 6u);
  world.run(100 * second_ns);
  EXPECT_EQ(world.ends[0].stack->flows(), 0u);
}

// Ten flows of one program are released, then some of another program, at the limit.
std::vector<TestFlow*> released(World& world, std::size_t of_second) {
  world.ends[0].owner.share_of = [](std::uint64_t tag) {
    return tag <= 10 ? FlowShare{1, 1000, 4} : FlowShare{2, 1001, 100};
  };
  std::vector<TestFlow*> flows;
  for (std::size_t i = 0; i < 10 + of_second; ++i) flows.push_back(&world.connect(0, port, {60'000, 65'536}));
  world.run(second_ns);
  for (TestFlow* flow : flows) world.ends[0].stack->release(flow->id, world.now);
  world.run(millisecond_ns);
  return flows;
}

TEST(Stack, OneProgramsReleasedFlowsAreNoMoreThanItsShare) {
  World world({}, {0, 4096, false});
  const auto flows = released(world, 10);
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(flows[i]->gone, i < 6) << i;
}

TEST(Stack, OneUsersReleasedFlowsResetNobodyElses) {
  TestNetworkOptions options;
  options.stack.orphans_max = 8;
  World world(options, {0, 4096, false});
  const auto flows = released(world, 20);
  for (std::size_t i = 0; i < 30; ++i) EXPECT_EQ(flows[i]->gone, i < 6 || (i >= 10 && i < 26)) << i;
}

// Even if the peer takes a segment now and then.
TEST(Stack, WhatIsReleasedHasALifetime) {
  TestNetworkOptions options;
  options.stack.orphan_lifetime_ns = 100 * second_ns;
  World world(options, {0, 4096, false});
  TestFlow& flow = world.connect(0, port, {1 << 20, 1 << 20});
  world.run(second_ns);
  world.ends[0].stack->release(flow.id, world.now);
  const TimeNs end = world.now + 100 * second_ns;
  for (int i = 0; i < 4; ++i) {
    world.accepted().reads = true;
    world.ends[1].owner.act(*world.ends[1].stack, world.now);
    world.accepted().reads = false;
    world.run(20 * second_ns);
    EXPECT_FALSE(flow.gone) << i;
  }
  world.run(end - world.now - second_ns);
  EXPECT_FALSE(flow.gone);
  world.run(2 * second_ns);
  EXPECT_TRUE(flow.gone);
  EXPECT_EQ(world.ends[0].stack->counters().orphans_reset, 1u);
}

TEST(Stack, ReachesANeighbourWhileAnotherUserAsksForAbsentOnes) {
  TestNetworkOptions options;
  options.stack.neighbours.neighbours_max = 16;
  options.stack.neighbours.unknown_of_user_max = 8;
  World world(options);
  world.ends[0].owner.share_of = [](std::uint64_t tag) { return FlowShare{tag, tag <= 100 ? 1000u : 1001u}; };
  for (std::uint32_t i = 0; i < 100; ++i) world.connect_to(0, {test_address(0x0a000064 + i), 80});
  world.run(millisecond_ns);
  TestFlow& flow = world.connect(0, port, {10, 1000});
  world.run(500 * millisecond_ns);
  EXPECT_TRUE(flow.connected);
}

TEST(Stack, HalfCloseLeavesTheOtherDirectionOpen) {
  World world({}, {2'000'000, 10'000});
  world.ends[1].owner.plan.sends = 0;
  TestFlow& flow = world.connect(0, port, {5000, 10'000});
  world.run(second_ns);
  TestFlow& server = world.accepted();
  EXPECT_TRUE(server.finished);
  EXPECT_EQ(server.read, 5000u);
  EXPECT_TRUE(world.ends[0].stack->flow(flow.id) == nullptr || flow.gone || flow.closed);
  world.nothing_is_left();
}

TEST(Stack, WaitsForAWindowThatIsClosedForMinutes) {
  World world({}, {0, 20'000, false});
  TestFlow& flow = world.connect(0, port, {100'000, 30'000});
  world.run(600 * second_ns);
  const std::uint64_t received = world.accepted().received;  // windows are announced in multiples of their scale
  EXPECT_TRUE(received <= 20'000 && received > 19'500) << received;
  EXPECT_FALSE(flow.closed);
  EXPECT_LT(world.ends[0].stack->counters().segments_out, 100u);  // probes are seldom
  world.accepted().reads = true;
  // The owner acts when it is polled; a program would do so when it reads.
  world.ends[1].owner.act(*world.ends[1].stack, world.now);
  ASSERT_TRUE(world.run_until([&] { return world.all_gone(); }, 10 * second_ns));
  EXPECT_EQ(world.accepted().read, 100'000u);
  world.nothing_is_left();
}

// A peer that used the former window would send data that is not stored.
TEST(Stack, TellsThePeerOfASmallerWindowAfterAShut) {
  World world({}, {0, 65'536});
  TestFlow& flow = world.connect(0, port, {1000, 65'536});
  flow.finish_wanted = false;
  world.run(second_ns);
  TestFlow& server = world.accepted();
  ASSERT_EQ(server.read, 1000u);
  EXPECT_GT(world.ends[0].stack->flow(flow.id)->send_window, 60'000u);
  ASSERT_TRUE(world.ends[1].stack->shut(server.id));
  server.in.resize(4096);
  world.ends[1].owner.act(*world.ends[1].stack, world.now);
  world.run(second_ns);
  EXPECT_EQ(world.ends[0].stack->flow(flow.id)->send_window, 4096u);
  flow.sends = 60'000;
  flow.finish_wanted = true;
  world.ends[0].owner.act(*world.ends[0].stack, world.now);
  ASSERT_TRUE(world.run_until([&] { return world.all_gone(); }, 60 * second_ns));
  EXPECT_EQ(server.read, 60'000u);
  EXPECT_EQ(world.ends[0].stack->counters().retransmitted, 0u);
  world.nothing_is_left();
}

// The peer never learns of its smaller window, sends beyond it, and resets behind that.
TEST(Stack, TakesAResetOfAPeerThatDoesNotKnowThatItsWindowShrank) {
  World world({}, {0, 65'536});
  TestFlow& flow = world.connect(0, port, {1000, 65'536});
  flow.finish_wanted = false;
  world.run(second_ns);
  TestFlow& server = world.accepted();
  Impairments dead;
  dead.loss = 1;
  world.ends[1].port->set(dead, {});
  ASSERT_TRUE(world.ends[1].stack->shut(server.id));
  server.in.resize(4096);
  world.ends[1].owner.act(*world.ends[1].stack, world.now);
  world.run(second_ns);
  EXPECT_GT(world.ends[0].stack->flow(flow.id)->send_window, 60'000u);
  flow.sends = 13'000;
  world.ends[0].owner.act(*world.ends[0].stack, world.now);
  world.run(millisecond_ns);
  EXPECT_LE(server.received, 1000u + 4096u);
  world.ends[1].port->set({}, {});
  world.ends[0].stack->abort(flow.id, world.now);
  world.run(second_ns);
  EXPECT_TRUE(server.closed);
  EXPECT_TRUE(server.gone);
}

TEST(Stack, FindsThatAWindowHasOpenedAlthoughTheUpdateWasLost) {
  World world({}, {0, 20'000, false});
  world.connect(0, port, {60'000, 30'000});
  world.run(second_ns);
  ASSERT_LE(world.accepted().received, 20'000u);
  ASSERT_FALSE(world.all_gone());
  Impairments dead;
  dead.loss = 1;
  world.ends[1].port->set(dead, {});
  world.accepted().reads = true;
  world.ends[1].owner.act(*world.ends[1].stack, world.now);
  world.run(millisecond_ns);
  world.ends[1].port->set({}, {});
  EXPECT_TRUE(world.run_until([&] { return world.all_gone(); }, 60 * second_ns));
  EXPECT_EQ(world.accepted().read, 60'000u);
}

TEST(Stack, OpensFromBothSidesAtOnce) {
  TestNetworkOptions options;
  options.there.delay_ns = options.back.delay_ns = 10 * millisecond_ns;
  TestNetwork world(options);
  // ARP first, so that the SYNs cross.
  world.connect(0, 9, {});
  world.run(second_ns);
  TestFlow& one = world.connect(0, 2000, {50'000, 10'000}, 1000);
  TestFlow& two = world.connect(1, 1000, {70'000, 10'000}, 2000);
  one.send_stream = two.receive_stream = 1;
  one.receive_stream = two.send_stream = 2;
  ASSERT_TRUE(world.run_until([&] { return world.all_gone(); }, 20 * second_ns));
  EXPECT_EQ(one.read, 70'000u);
  EXPECT_EQ(two.read, 50'000u);
  EXPECT_EQ(one.wrong + two.wrong, 0u);
  EXPECT_EQ(one.error, FlowError::none);
}

TEST(Stack, ClosesFromBothSidesAtOnce) {
  TestNetworkOptions options;
  options.there.delay_ns = options.back.delay_ns = 10 * millisecond_ns;
  World world(options);
  TestFlow& flow = world.connect(0, port, {});
  flow.finish_wanted = false;
  world.ends[1].owner.plan = {0, 65'536};
  ASSERT_TRUE(world.run_until([&] { return !world.ends[1].owner.flows.empty(); }, second_ns));
  const FlowId server = world.accepted().id;
  flow.finish_wanted = true;
  world.ends[0].owner.act(*world.ends[0].stack, world.now);
  ASSERT_TRUE(world.run_until([&] { return world.all_gone(); }, 10 * second_ns));
  EXPECT_EQ(flow.error, FlowError::none);
  EXPECT_EQ(world.ends[1].stack->flow(server), nullptr);
  world.nothing_is_left();
}

TEST(Stack, EndsAFlowWhosePeerHasForgottenIt) {
  World world({}, {0, 65'536});
  TestFlow& flow = world.connect(0, port, {1000, 65'536});
  flow.finish_wanted = false;
  world.run(second_ns);
  // The peer restarts without state: it refuses segments.
  Impairments dead;
  dead.loss = 1;
  world.ends[1].port->set(dead, {});
  world.ends[1].stack->abort(world.accepted().id, world.now);
  world.run(second_ns);
  world.ends[1].port->set({}, {});
  EXPECT_FALSE(flow.closed);
  flow.sends = 2000;
  world.ends[0].owner.act(*world.ends[0].stack, world.now);
  world.run(5 * second_ns);
  EXPECT_EQ(flow.error, FlowError::reset);
}

TEST(Stack, KeepaliveEndsAFlowWhosePeerIsGone) {
  World world({}, {0, 65'536});
  TestFlow& flow = world.connect(0, port, {1000, 65'536});
  flow.finish_wanted = false;
  world.run(second_ns);
  FlowOptions options;
  options.keepalive_idle_ns = 10 * second_ns;
  options.keepalive_interval_ns = second_ns;
  options.keepalive_probes = 3;
  world.ends[0].stack->set_options(flow.id, options, world.now);
  world.run(100 * second_ns);
  EXPECT_FALSE(flow.closed);  // the peer answers
  Impairments dead;
  dead.loss = 1;
  world.ends[1].port->set(dead, {});
  world.run(30 * second_ns);
  EXPECT_EQ(flow.error, FlowError::timed_out);
}

TEST(Stack, RefusesWhatItsOwnerHasNoRoomForUntilItHas) {
  World world({}, {10, 1000});
  world.ends[1].owner.flows_max = 0;
  TestFlow& flow = world.connect(0, port, {10, 1000});
  world.run(2 * second_ns);
  EXPECT_EQ(world.ends[1].stack->flows(), 0u);
  world.ends[1].owner.flows_max = 10;
  ASSERT_TRUE(world.run_until([&] { return world.all_gone(); }, 20 * second_ns));
  EXPECT_EQ(flow.read, 10u);
}

TEST(Stack, DoesNothingWhileFlowsAreIdle) {
  World world({}, {0, 1000});
  for (int i = 0; i < 100; ++i) world.connect(0, port, {1, 1000}).finish_wanted = false;
  world.run(10 * second_ns);
  EXPECT_EQ(world.ends[1].stack->flows(), 100u);
  for (auto& end : world.ends) EXPECT_EQ(end.stack->next_due(), never);
}

TEST(Stack, EndsTheOldestTimeWaitForANewFlow) {
  TestNetworkOptions options;
  options.stack.flows_max = 8;
  World world(options, {0, 1000});
  for (int i = 0; i < 50; ++i) {
    world.connect(0, port, {10, 1000});
    ASSERT_TRUE(world.run_until([&] { return world.all_gone(); }, second_ns)) << i;
  }
  EXPECT_LE(world.ends[0].stack->flows(), 8u);
  EXPECT_EQ(world.ends[0].stack->counters().failed, 0u);
  world.nothing_is_left();
}

// A router's "fragmentation needed" or "packet too big" about the segment at `sequence`.
std::vector<std::byte> icmp_about(const Flow& flow, Sequence sequence, std::uint16_t mtu) {
  const bool is_v6 = tests_ipv6();
  const std::size_t header = ip_header_bytes(test_family()), ip = ethernet_header_bytes, icmp = ip + header,
                    quoted = icmp + 8, tcp = quoted + header;
  const IpAddress router = test_address(0x0a000063), own = flow.key.local.address;
  const std::uint8_t protocol = is_v6 ? protocol_icmpv6 : protocol_icmp;
  std::vector<std::byte> bytes(tcp + 8);
  write_ethernet_header({{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}, is_v6 ? ethertype_ipv6 : ethertype_ipv4},
                        bytes.data());
  write_ip_header({.source = router, .target = own, .protocol = protocol}, bytes.size() - icmp, &bytes[ip]);
  write_ip_header({.source = own, .target = flow.key.remote.address, .protocol = protocol_tcp}, 1480, &bytes[quoted]);
  store_be16(&bytes[tcp], flow.key.local.port);
  store_be16(&bytes[tcp + 2], flow.key.remote.port);
  store_be32(&bytes[tcp + 4], sequence.value());
  bytes[icmp] = std::byte{is_v6 ? icmpv6_too_big : icmp_unreachable};
  if (!is_v6) bytes[icmp + 1] = std::byte{icmp_fragmentation_needed};
  store_be16(&bytes[icmp + 6], mtu);
  Checksum checksum;
  if (is_v6) checksum.add_pseudo_header(router, own, protocol, static_cast<std::uint32_t>(bytes.size() - icmp));
  checksum.add(Bytes(bytes).subspan(icmp));
  store_be16(&bytes[icmp + 2], checksum.finish());
  return bytes;
}

TEST(Stack, SendsSmallerSegmentsWhereThePathIsNarrow) {
  TestNetworkOptions options;
  options.there.delay_ns = options.back.delay_ns = 5 * millisecond_ns;
  World world(options, {0, 65'536});
  TestFlow& flow = world.connect(0, port, {400'000, 65'536});
  world.run(25 * millisecond_ns);  // ARP, SYN, and data in flight
  Stack& stack = *world.ends[0].stack;
  const Flow& inside = *stack.flow(flow.id);
  ASSERT_EQ(inside.state, FlowState::established);
  const std::uint16_t before = inside.mss;
  const int headers = static_cast<int>(ip_header_bytes(test_family())) + 20 + 12;
  const std::uint16_t narrow = tests_ipv6() ? 1300 : 1000,
                      least = tests_ipv6() ? ipv6_mtu_least : stack.options().path_mtu_least;
  stack.receive({icmp_about(inside, inside.una - 5000u, narrow), false}, world.now);  // about data not in flight
  stack.receive({icmp_about(inside, inside.next, narrow), false}, world.now);
  EXPECT_EQ(inside.mss, before);
  ASSERT_LT(inside.una, inside.next);
  stack.receive({icmp_about(inside, inside.una, narrow), false}, world.now);
  EXPECT_EQ(inside.mss, narrow - headers);
  stack.receive({icmp_about(inside, inside.una, 60), false}, world.now);
  EXPECT_EQ(inside.mss, least - headers);
  stack.receive({icmp_about(inside, inside.una, 1400), false}, world.now);
  EXPECT_EQ(inside.mss, least - headers);  // it does not grow
  ASSERT_TRUE(world.run_until([&] { return world.all_gone(); }, 20 * second_ns));
  EXPECT_EQ(world.accepted().read, 400'000u);
  EXPECT_EQ(world.accepted().wrong, 0u);
}

TEST(Stack, WaitsForMoreWithNagleAndSendsAtOnceWithout) {
  for (const bool nagle : {true, false}) {
    TestNetworkOptions options;
    options.there.delay_ns = options.back.delay_ns = 5 * millisecond_ns;
    World world(options, {0, 65'536});
    TestFlow& flow = world.connect(0, port, {1, 65'536});
    flow.finish_wanted = false;
    FlowOptions own;
    own.nagle = nagle;
    world.ends[0].stack->set_options(flow.id, own, world.now);
    world.run(second_ns);
    const auto before = world.ends[0].stack->counters().payload_out;
    flow.sends = 2;
    world.ends[0].owner.act(*world.ends[0].stack, world.now);
    world.run(millisecond_ns);
    flow.sends = 3;
    world.ends[0].owner.act(*world.ends[0].stack, world.now);
    world.run(millisecond_ns);
    EXPECT_EQ(world.ends[0].stack->counters().payload_out - before, nagle ? 1u : 2u);
    world.run(second_ns);
    EXPECT_EQ(world.accepted().read, 3u);
  }
}

}  // namespace
}  // namespace offpath::tcp
