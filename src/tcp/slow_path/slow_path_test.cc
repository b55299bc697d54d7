// Stacks that leave the slow path to another: connections begin, carry bytes, end, and the process that does it comes
// and goes.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tcp/segment/ethernet.h"
#include "tcp/segment/frame_writer.h"
#include "tcp/segment/segmentation.h"
#include "testing/tcp/slow_path.h"

namespace offpath::tcp {
namespace {

constexpr std::uint16_t port = 80;

struct World : SlowPathNetwork {
  explicit World(bool first = true, bool second = true, const TestNetworkOptions& options = {},
                 const TestFlowPlan& served = {100'000, 65'536})
      : SlowPathNetwork(options, first, second) {
    ends[1].owner.plan = served;
    EXPECT_TRUE(ends[1].stack->listen(test_family(), port, 1, served.buffer_bytes));
  }
  // At end 1, the `number`th of many peers'.
  void receive_syn(std::uint32_t number) {
    Segment syn;
    syn.key = {{test_address(0x0a000100 - (number % 200)), static_cast<std::uint16_t>(1000 + number / 200)},
               {TestNetwork::address(1), port}};
    syn.flags = flag::syn;
    syn.options.mss = 1460;
    FrameToSend frame;
    write_segment_frame(syn, {}, 1460, MacAddress{2, 0, 0, 0, 0, 9}, ends[1].stack->port().mac, false, frame);
    ends[1].stack->receive({whole_frame(frame), false}, now);
  }
  void nothing_is_left() {
    EXPECT_TRUE(run_until([&] { return all_gone(); }, 200 * second_ns));
    run(200 * second_ns);  // TIME-WAIT
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(ends[i].stack->flows(), 0u);
      EXPECT_EQ(ends[i].stack->half_open(), 0u);
      EXPECT_FALSE(ends[i].stack->wants_to_send());
      for (const auto& [tag, flow] : ends[i].owner.flows) EXPECT_EQ(flow.wrong, 0u);
      if (!slow[i] || !slow[i]->process) continue;
      EXPECT_EQ(slow[i]->process->stack()->flows(), 0u);
      EXPECT_EQ(slow[i]->process->stack()->half_open(), 0u);
      EXPECT_FALSE(slow[i]->process->stack()->wants_to_send());
    }
  }
};

class SlowPathAt : public testing::TestWithParam<std::pair<bool, bool>> {};
INSTANTIATE_TEST_SUITE_P(Ends, SlowPathAt,
                         testing::Values(std::pair(true, false), std::pair(false, true), std::pair(true, true)));

TEST_P(SlowPathAt, CarriesBytesBothWaysAndEnds) {
  World world(GetParam().first, GetParam().second);
  TestFlow& flow = world.connect(0, port, {300'000, 65'536});
  ASSERT_TRUE(world.run_until([&] { return world.all_gone(); }, 10 * second_ns));
  EXPECT_EQ(flow.error, FlowError::none);
  EXPECT_EQ(flow.read, 100'000u);
  EXPECT_EQ(world.ends[1].owner.flows.begin()->second.read, 300'000u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(world.ends[i].stack->counters().retransmitted, 0u);
    EXPECT_EQ(world.ends[i].stack->counters().resets_out, 0u);
    // Counts each segment once, in either of the two; not other frames, nor a segment returned by the process.
    EXPECT_EQ(world.ends[i].stack->counters().segments_out, world.ends[1 - i].stack->counters().segments_in);
    if (!world.slow[i]) continue;
    EXPECT_EQ(world.slow[i]->counters.adopted, 1u);
  }
  world.nothing_is_left();
}

// Whichever of the two stacks sends them.
TEST_P(SlowPathAt, PacketsHaveTheTrafficClassOfTheirConnection) {
  for (const bool replaced : {false, true}) {
    World world(GetParam().first, GetParam().second);
    FlowOptions options;
    options.traffic_class4 = options.traffic_class6 = 0xb8;
    constexpr std::uint16_t other = port + 2;
    ASSERT_TRUE(world.ends[1].stack->listen(test_family(), other, 1, 65'536, replaced ? FlowOptions{} : options));
    if (replaced) world.ends[1].stack->retag_listener(test_family(), other, 1, options);
    std::vector<unsigned> classes[2];
    for (const std::uint32_t end : {0u, 1u})
      world.watch(end, [&seen = classes[end]](Bytes frame) {
        IpPacket packet;
        const EthernetHeader header = read_ethernet_header(frame.data());
        if (read_ip(header.type, frame.subspan(ethernet_header_bytes), packet) == Drop::none &&
            packet.protocol == protocol_tcp)
          seen.push_back(packet.traffic_class);
      });
    world.connect(0, other, {300'000, 65'536}, 0, options);
    ASSERT_TRUE(world.run_until([&] { return world.all_gone(); }, 10 * second_ns));
    for (const auto& seen : classes) {
      EXPECT_GT(seen.size(), 3u);
      EXPECT_EQ(std::ranges::count(seen, 0xb8u), std::ssize(seen));
    }
  }
}

TEST_P(SlowPathAt, IsRefusedWhereNobodyListens) {
  World world(GetParam().first, GetParam().second);
  TestFlow& flow = world.connect(0, port + 1, {10, 1000});
  ASSERT_TRUE(world.run_until([&] { return flow.closed; }, second_ns));
  EXPECT_EQ(flow.error, FlowError::refused);
  world.nothing_is_left();
}

TEST_P(SlowPathAt, GivesUpAPeerThatIsSilent) {
  World world(GetParam().first, GetParam().second);
  world.connect(0, port, {1, 1000});
  world.run(2 * second_ns);
  TestFlow& flow = world.connect(0, port, {1000, 1000});
  world.cut_off(0);
  ASSERT_TRUE(world.run_until([&] { return flow.closed; }, 400 * second_ns));
  EXPECT_EQ(flow.error, FlowError::timed_out);
}

TEST(SlowPath, SaysThatNobodyIsThere) {
  World world;
  TestFlow& flow = world.connect_to(0, {test_address(0x0a000063), 80});
  ASSERT_TRUE(world.run_until([&] { return flow.closed; }, 10 * second_ns));
  EXPECT_EQ(flow.error, FlowError::unreachable);
  world.nothing_is_left();
}

TEST(SlowPath, WhatIsAbortedBeforeItWasMadeLeavesNothingAnywhere) {
  World world;
  for (const bool early : {true, false}) {
    TestFlow& flow = world.connect(0, port, {1000, 1000});
    if (!early) world.slow[0]->poll(world.now);  // asks for its neighbour
    world.ends[0].stack->abort(flow.id, world.now);
    world.run(second_ns);
    EXPECT_TRUE(flow.gone);
  }
  for (auto& [tag, flow] : world.ends[1].owner.flows) EXPECT_EQ(flow.error, FlowError::reset);
  world.nothing_is_left();
}

// The process has completed the handshake, and the agent does not want it any more, or wants another one of the same
// numbers.
TEST(SlowPath, AConnectionOfTheSameNumbersIsNotTakenForTheOneBefore) {
  World world(true, false);
  world.connect(0, port, {1, 1000}, 5000);
  world.run(second_ns);
  TestFlow& first = world.connect(0, port, {1000, 1000}, 6000);
  TestSlowPath& slow = *world.slow[0];
  const auto made = [&] { return slow.process->stack()->counters().connected; };
  for (int i = 0; i < 20 && made() < 2; ++i) {
    ASSERT_TRUE(slow.process->poll(world.now));
    if (made() == 2) break;
    ASSERT_TRUE(slow.agent->poll(world.now));
    world.ends[0].station->poll(world.now);
    world.ends[1].station->poll(world.now);
  }
  ASSERT_EQ(made(), 2u);
  ASSERT_FALSE(first.connected);
  world.ends[0].stack->abort(first.id, world.now);
  TestFlow& second = world.connect(0, port, {2000, 1000}, 6000);
  ASSERT_TRUE(world.run_until([&] { return second.closed; }, 100 * second_ns));
  EXPECT_EQ(second.error, FlowError::none);
  EXPECT_GE(world.slow[0]->counters.declined, 1u);
  EXPECT_EQ(second.acknowledged, 2000u);
  world.nothing_is_left();
}

// The process reports neighbours to the agent; an invalid hardware address would end it.
TEST(SlowPath, ANeighboursMessageThatCannotBeCostsNobodyAnything) {
  World world(true, false);
  world.connect(0, port, {1, 1000});
  world.run(second_ns);
  const MacAddress from{2, 0, 0, 0, 0, 9};
  for (const MacAddress& mac :
       {MacAddress{}, broadcast_mac, MacAddress{1, 0, 0, 0, 0, 9}, MacAddress{3, 0, 0, 0, 0, 9}})
    for (const bool reply : {false, true})
      for (const IpAddress& sender :
           {TestNetwork::address(1), test_address(0x0a000009), IpAddress{}, TestNetwork::address(0), test_group()}) {
        FrameToSend frame;
        const IpAddress own = TestNetwork::address(0);
        write_neighbour_frame({reply, mac, sender, {}, own}, from, group_mac(own), frame);
        world.ends[0].stack->receive({whole_frame(frame), false}, world.now);
        world.run(millisecond_ns);
      }
  EXPECT_FALSE(world.slow[0]->why) << world.slow[0]->why->message;
  TestFlow& flow = world.connect(0, port, {1000, 65'536});
  ASSERT_TRUE(world.run_until([&] { return flow.gone; }, 10 * second_ns));
  EXPECT_EQ(flow.error, FlowError::none);
  EXPECT_GE(world.slow[0]->counters.adopted, 2u);
}

TEST(SlowPath, WithoutAnAcceptSlotThePeerTriesAgain) {
  World world(false, true);
  world.ends[1].owner.flows_max = 0;
  TestFlow& flow = world.connect(0, port, {1000, 65'536});
  world.run(100 * millisecond_ns);
  EXPECT_EQ(world.slow[1]->counters.adopted, 0u);
  EXPECT_GE(world.slow[1]->counters.declined, 1u);
  world.ends[1].owner.flows_max = 10;
  ASSERT_TRUE(world.run_until([&] { return flow.gone; }, 20 * second_ns));
  EXPECT_EQ(flow.error, FlowError::none);
  EXPECT_EQ(flow.read, 100'000u);
  world.nothing_is_left();
}

TEST(SlowPath, CookiesServeWhenItsTableIsFull) {
  TestNetworkOptions options;
  options.stack.half_open_max = 2;
  World world(false, true, options);
  std::vector<TestFlow*> made;
  for (int i = 0; i < 20; ++i) made.push_back(&world.connect(0, port, {1000, 65'536}));
  ASSERT_TRUE(world.run_until([&] { return world.all_gone(); }, 60 * second_ns));
  for (const TestFlow* flow : made) EXPECT_EQ(flow->error, FlowError::none);
  EXPECT_GT(world.slow[1]->process->stack()->counters().cookies_in, 0u);
  world.nothing_is_left();
}

TEST(SlowPath, TimeWaitIsTheProcesss) {
  World world(true, true);
  TestFlow& flow = world.connect(0, port, {10, 65'536});
  ASSERT_TRUE(world.run_until([&] { return world.all_gone(); }, 10 * second_ns));
  EXPECT_EQ(flow.error, FlowError::none);
  EXPECT_EQ(world.ends[0].stack->flows() + world.ends[1].stack->flows(), 0u);
  EXPECT_EQ(world.slow[0]->process->stack()->flows() + world.slow[1]->process->stack()->flows(), 1u);
  EXPECT_EQ(world.slow[0]->counters.handed_back + world.slow[1]->counters.handed_back, 1u);
  world.nothing_is_left();
}

// The same four numbers, while the connection before is in TIME-WAIT.
TEST(SlowPath, NumbersAreUsedAgainFromTimeWait) {
  World world;
  for (int i = 0; i < 3; ++i) {
    TestFlow& flow = world.connect(0, port, {1000, 65'536}, 7000);
    ASSERT_TRUE(world.run_until([&] { return flow.gone; }, 10 * second_ns)) << i;
    EXPECT_EQ(flow.error, FlowError::none) << i;
    EXPECT_EQ(flow.read, 100'000u) << i;
    world.run(10 * millisecond_ns);
  }
  world.nothing_is_left();
}

TEST(SlowPath, AFloodOfSynsStarvesNobody) {
  World world(false, true);
  TestFlow& flow = world.connect(0, port, {2'000'000, 65'536});
  world.run(millisecond_ns);
  ASSERT_EQ(world.slow[1]->counters.adopted, 1u);
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    world.receive_syn(i);  // the process is not polled meanwhile
  }
  EXPECT_GT(world.slow[1]->counters.frames_dropped, 0u);
  // Neighbours' messages are still received; otherwise established flows could not send.
  const std::uint64_t given = world.slow[1]->counters.frames_out;
  FrameToSend question;
  const IpAddress asked = TestNetwork::address(1);
  write_neighbour_frame({false, {2, 0, 0, 0, 0, 9}, test_address(0x0a000009), {}, asked}, {2, 0, 0, 0, 0, 9},
                        group_mac(asked), question);
  for (int i = 0; i < 100; ++i) world.ends[1].stack->receive({whole_frame(question), false}, world.now);
  EXPECT_EQ(world.slow[1]->counters.frames_out, given + 100);
  ASSERT_TRUE(world.run_until([&] { return flow.gone; }, 60 * second_ns));
  EXPECT_EQ(flow.error, FlowError::none);
  EXPECT_FALSE(world.slow[1]->why);
}

// While the agent takes nothing, for it has too much to say itself.
TEST(SlowPath, AProcessWhoseAnswersFindNoRoomGoesOnTaking) {
  World world(false, true);
  world.connect(0, port, {1, 65'536});
  world.run(second_ns);
  TestSlowPath& slow = *world.slow[1];
  for (std::uint32_t i = 0; i < 10'000; ++i) {
    world.receive_syn(i);
    if (i % 100 != 0) continue;
    for (int j = 0; j < 10; ++j) ASSERT_TRUE(slow.process->poll(world.now));
    ASSERT_EQ(slow.counters.frames_dropped, 0u) << "after " << i;
  }
  TestFlow& flow = world.connect(0, port, {1000, 65'536});
  ASSERT_TRUE(world.run_until([&] { return flow.gone; }, 60 * second_ns));
  EXPECT_EQ(flow.error, FlowError::none);
  EXPECT_FALSE(slow.why);
}

TEST(SlowPath, WhenTheProcessDiesTheAgentGoesOnAlone) {
  World world(true, true, {}, {3'000'000, 65'536});
  TestFlow& old = world.connect(0, port, {3'000'000, 65'536});
  world.run(millisecond_ns);
  ASSERT_TRUE(old.connected);
  TestFlow& opening = world.connect(0, port, {1000, 65'536});  // asked for, and lost with the process
  world.slow[0]->end();
  world.slow[1]->end();
  TestFlow& later = world.connect(0, port, {1000, 65'536});
  ASSERT_TRUE(world.run_until([&] { return old.gone && opening.gone && later.gone; }, 60 * second_ns));
  for (const TestFlow* flow : {&old, &opening, &later}) EXPECT_EQ(flow->error, FlowError::none);
  EXPECT_EQ(old.read, 3'000'000u);
  // Another comes.
  world.slow[0]->begin(world.now);
  world.slow[1]->begin(world.now);
  const std::uint64_t adopted = world.slow[1]->counters.adopted;
  TestFlow& again = world.connect(0, port, {1000, 65'536});
  ASSERT_TRUE(world.run_until([&] { return again.gone; }, 60 * second_ns));
  EXPECT_EQ(again.error, FlowError::none);
  EXPECT_EQ(world.slow[1]->counters.adopted, adopted + 1);
  world.nothing_is_left();
}

TEST(SlowPath, AProcessThatHangsLosesItsPart) {
  World world(false, true);
  world.connect(0, port, {1, 65'536});
  world.run(second_ns);
  world.slow[1]->stopped = true;
  TestFlow& flow = world.connect(0, port, {1000, 65'536});
  ASSERT_TRUE(world.run_until([&] { return flow.gone; }, 60 * second_ns));
  EXPECT_EQ(flow.error, FlowError::none);
  ASSERT_TRUE(world.slow[1]->why);
  EXPECT_EQ(world.slow[1]->why->code, Error::timeout);
  EXPECT_FALSE(world.slow[1]->agent);
}

TEST(SlowPath, AProcessThatHadNothingToDoForLongIsNotTakenForOneThatHangs) {
  World world;
  for (int i = 0; i < 3; ++i) {
    TestFlow& flow = world.connect(0, port, {1000, 65'536});
    ASSERT_TRUE(world.run_until([&] { return flow.gone; }, 10 * second_ns));
    world.run(500 * second_ns);
  }
  EXPECT_FALSE(world.slow[0]->why || world.slow[1]->why);
  EXPECT_EQ(world.slow[1]->counters.adopted, 3u);
}

// It has taken all messages, and no further ones are sent.
TEST(SlowPath, AProcessThatHangsWithAConnectionToBeginLosesItsPart) {
  World world(true, false);
  TestFlow& flow = world.connect(0, port, {1000, 65'536});
  ASSERT_TRUE(world.slow[0]->process->poll(world.now));
  ASSERT_FALSE(world.slow[0]->agent->next_due() == never);
  world.slow[0]->stopped = true;
  ASSERT_TRUE(world.run_until([&] { return flow.gone; }, 60 * second_ns));
  EXPECT_EQ(flow.error, FlowError::none);
  ASSERT_TRUE(world.slow[0]->why);
  EXPECT_EQ(world.slow[0]->why->code, Error::timeout);
}

// An address with a network of its own alone, as a machine behind a router may have it: everybody is behind the
// gateway.
TEST(SlowPath, AnAddressOfNoNetworkHasItsGateway) {
  const IpAddress self = test_address(0x0a000002), gateway = test_address(0x0a0000fe);
  constexpr MacAddress own{2, 0, 0, 0, 0, 2}, gateway_mac{2, 0, 0, 0, 0, 0xfe};
  const wire::TcpSlowLayout layout{wire::TcpSlowLayout::ring_bytes_min};
  std::vector<std::uint64_t> words(layout.bytes() / 8);
  const MutableBytes memory(reinterpret_cast<std::byte*>(words.data()), words.size() * 8);
  HostSlowPath process(memory, layout);
  SlowPathArea agent(SlowPathArea::Side::agent, memory, layout);
  wire::TcpSlowSetup setup{};
  setup.version = wire::tcp_slow_version;
  setup.families[static_cast<std::size_t>(test_family())] = {
      self, gateway, tests_ipv6() ? std::uint8_t{128} : std::uint8_t{32}, {}};
  setup.mtu = test_mtu(1500);
  setup.flows_max = setup.half_open_max = setup.time_wait_max = 8;
  setup.window_max = 65'536;
  std::ranges::copy(own, setup.mac);
  const auto next_frame = [&](TimeNs now) {
    const auto polled = process.poll(now);
    EXPECT_TRUE(polled) << polled.error().message;
    SlowPathArea::Record record;
    while (agent.take(record).value_or(false))
      if (record.kind == wire::TcpSlowKind::send)
        return std::vector<std::byte>(record.payload.begin() + sizeof(wire::TcpSlowSend), record.payload.end());
    return std::vector<std::byte>();
  };
  agent.post(wire::TcpSlowKind::setup, setup);
  agent.post(wire::TcpSlowKind::resolve, wire::TcpSlowNeighbour{gateway, {}, 0});
  const auto question = next_frame(second_ns);
  ASSERT_TRUE(read_neighbour_frame(question));
  EXPECT_EQ(read_neighbour_frame(question)->target, gateway);
  FrameToSend answer;
  write_neighbour_frame({true, gateway_mac, gateway, own, self}, gateway_mac, own, answer);
  agent.post(wire::TcpSlowKind::frame, wire::TcpSlowFrame{}, whole_frame(answer));
  const wire::TcpSlowKey key = slow_key({{self, 999}, {test_address(0x0a000003), port}}, 1, 65'536);
  agent.post(wire::TcpSlowKind::connect, wire::TcpSlowConnect{key, 0, 0, {}});
  const auto syn = next_frame(second_ns);
  ASSERT_GE(syn.size(), ethernet_header_bytes);
  EXPECT_EQ(read_ethernet_header(syn.data()).target, gateway_mac);
}

// ---- messages of a process

class Rubbish : public testing::Test {
 protected:
  Rubbish() {
    world.connect(0, port, {1, 65'536});
    world.run(second_ns);
    process.emplace(SlowPathArea::Side::process, memory(), wire::TcpSlowLayout{wire::TcpSlowLayout::ring_bytes_min});
    agent.emplace(*world.ends[1].stack, memory(), wire::TcpSlowLayout{wire::TcpSlowLayout::ring_bytes_min}, counters,
                  world.now);
  }
  MutableBytes memory() { return {reinterpret_cast<std::byte*>(bytes.data()), bytes.size() * 8}; }
  void expect_refused() {
    const auto polled = agent->poll(world.now);
    ASSERT_FALSE(polled);
    EXPECT_EQ(polled.error().code, Error::protocol) << polled.error().message;
  }
  wire::TcpHandedFlow good() {
    wire::TcpHandedFlow handed{};
    handed.key = slow_key({{TestNetwork::address(1), port}, {TestNetwork::address(0), 999}}, 0);
    handed.mss = 1000;
    handed.send_window = 1000;
    return handed;
  }
  World world{false, false};
  std::vector<std::uint64_t> bytes =
      std::vector<std::uint64_t>((wire::TcpSlowLayout::rings + 2 * wire::TcpSlowLayout::ring_bytes_min) / 8);
  SlowPathCounters counters;
  std::optional<SlowPathArea> process;
  std::optional<AgentSlowPath> agent;
};

TEST_F(Rubbish, AFlowThatIsAllRightIsAdopted) {
  process->post(wire::TcpSlowKind::adopt, good());
  ASSERT_TRUE(agent->poll(world.now));
  EXPECT_EQ(counters.adopted, 1u);
}

TEST_F(Rubbish, FlowsThatCannotBeEndIt) {
  using Spoil = void (*)(wire::TcpHandedFlow&);
  const Spoil ways[] = {
      [](wire::TcpHandedFlow& flow) { flow.key.local_address.bytes[15] += 1; },
      [](wire::TcpHandedFlow& flow) { flow.key.local_port = 0; },
      [](wire::TcpHandedFlow& flow) { flow.key.remote_address = test_group(); },
      [](wire::TcpHandedFlow& flow) { flow.key.remote_address = test_address(0x0b000001); },
      // of another family than the local one
      [](wire::TcpHandedFlow& flow) { flow.key.remote_address = tests_ipv6() ? ipv4(0x0a000002) : all_nodes; },
      [](wire::TcpHandedFlow& flow) { flow.key.remote_port = 0; },
      [](wire::TcpHandedFlow& flow) { flow.mss = 0; },
      [](wire::TcpHandedFlow& flow) { flow.mss = 1461; },
      [](wire::TcpHandedFlow& flow) { flow.mss = 1460, flow.flags = wire::tcp_handed_timestamps; },
      [](wire::TcpHandedFlow& flow) { flow.send_scale = 15; },
      [](wire::TcpHandedFlow& flow) { flow.receive_scale = 3; },
      [](wire::TcpHandedFlow& flow) { flow.send_window = 1u << 31; },
      [](wire::TcpHandedFlow& flow) { flow.flags = 8; },
      [](wire::TcpHandedFlow& flow) { flow.round_trip_us = 600'000'001; },
      [](wire::TcpHandedFlow& flow) { flow.next_hop_mac[0] = 1; },
      [](wire::TcpHandedFlow& flow) { std::ranges::fill(flow.next_hop_mac, std::uint8_t{0xff}); },
  };
  for (const Spoil spoil : ways) {
    agent.reset();
    std::ranges::fill(bytes, 0);
    process.emplace(SlowPathArea::Side::process, memory(), wire::TcpSlowLayout{wire::TcpSlowLayout::ring_bytes_min});
    agent.emplace(*world.ends[1].stack, memory(), wire::TcpSlowLayout{wire::TcpSlowLayout::ring_bytes_min}, counters,
                  world.now);
    wire::TcpHandedFlow flow = good();
    spoil(flow);
    process->post(wire::TcpSlowKind::adopt, flow);
    expect_refused();
  }
  EXPECT_EQ(counters.adopted, 0u);
}

TEST_F(Rubbish, FramesOfOthersAreNotSent) {
  FrameToSend frame;
  const MacAddress own = world.ends[1].stack->port().mac;
  Segment segment;
  segment.key = {{test_address(0x0a000063), port}, {TestNetwork::address(0), 999}};  // not the agent's address
  write_segment_frame(segment, {}, 1000, own, broadcast_mac, false, frame);
  process->post(wire::TcpSlowKind::send, wire::TcpSlowSend{frame.tcp_offset, 0},
                Bytes(frame.header.data(), frame.header_bytes));
  expect_refused();
}

TEST_F(Rubbish, AnUnknownKindEndsIt) {
  process->post(wire::TcpSlowKind::connect, wire::TcpSlowKey{});
  expect_refused();
}

TEST_F(Rubbish, ARecordLongerThanTheRingHasEndsIt) {
  process->post(wire::TcpSlowKind::adopt, good());
  const std::uint32_t length = 1 << 12;
  std::memcpy(memory().data() + wire::TcpSlowLayout::rings, &length, sizeof length);
  expect_refused();
}

TEST_F(Rubbish, APositionBeyondTheRingEndsIt) {
  bytes[0] = 1u << 20;
  expect_refused();
}

TEST_F(Rubbish, APositionThatTheAgentHasNotWrittenEndsIt) {
  bytes[1] = 1u << 20;  // taken
  expect_refused();
}

}  // namespace
}  // namespace offpath::tcp
