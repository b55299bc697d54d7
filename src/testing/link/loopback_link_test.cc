#include "testing/link/loopback_link.h"
#include "wire/region.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <numeric>
#include <vector>

namespace offpath::link {
namespace {

using Kind = LinkEvent::Kind;
using ::testing::HasSubstr;

constexpr RegionId segment(std::uint32_t number) { return wire::segment_flag | number; }
const wire::ChannelLayout small_layout{.request_slots = 64, .reply_slots = 64, .streams_max = 4};

LoopbackOptions unmapped() {
  LoopbackOptions options;
  options.mapped = false;
  return options;
}

struct World {
  explicit World(const LoopbackOptions& options = {}, std::uint64_t seed = 1)
      : fabric(std::make_shared<LoopbackFabric>(seed)) {
    auto made = make_loopback(fabric, options, small_layout);
    EXPECT_TRUE(made) << made.error().message;
    pair = std::move(*made);
  }
  void pass(TimeNs time) { fabric->advance_to(fabric->now() + time); }
  // The agent's events now.
  std::vector<LinkEvent> poll() {
    std::vector<LinkEvent> all;
    std::array<LinkEvent, 4> some;
    while (const std::size_t count = pair.agent->poll(fabric->now(), some))
      std::move(some.begin(), some.begin() + static_cast<std::ptrdiff_t>(count), std::back_inserter(all));
    return all;
  }
  // The status of the one operation under way.
  Status finish() {
    pass(second_ns);
    auto events = poll();
    EXPECT_EQ(events.size(), 1u);
    return events.empty() ? Status() : events[0].status;
  }
  void announce(RegionId range, std::uint32_t generation, const void* base, std::uint64_t length) {
    const auto key = pair.host->announce_range(range, generation, base, length);
    ASSERT_TRUE(key);
    ASSERT_TRUE(pair.agent->attach_range(range, generation, reinterpret_cast<std::uint64_t>(base), length, *key));
  }

  std::shared_ptr<LoopbackFabric> fabric;
  LoopbackPair pair;
};

std::byte* bytes(void* memory) { return static_cast<std::byte*>(memory); }

TEST(LoopbackFabric, RunsEventsInOrderOfTimeThenOfPosting) {
  LoopbackFabric fabric(1);
  std::vector<int> order;
  fabric.at(20, [&] { order.push_back(3); });
  fabric.at(10, [&] {
    order.push_back(1);
    fabric.at(5, [&] { order.push_back(2); });  // in the past: now
  });
  fabric.at(20, [&] { order.push_back(4); });
  EXPECT_EQ(fabric.next_event(), 10);
  fabric.advance_to(15);
  EXPECT_EQ(order, (std::vector{1, 2}));
  EXPECT_EQ(fabric.now(), 15);
  fabric.advance_to(20);
  EXPECT_EQ(order, (std::vector{1, 2, 3, 4}));
  EXPECT_EQ(fabric.next_event(), never);
}

TEST(LoopbackFabric, RunUntilStopsWhenDoneOrAtTheDeadline) {
  LoopbackFabric fabric(1);
  bool done = false;
  fabric.at(30, [&] { done = true; });
  EXPECT_FALSE(fabric.run_until(20, [&] { return done; }));
  EXPECT_EQ(fabric.now(), 20);
  EXPECT_TRUE(fabric.run_until(never, [&] { return done; }));
  EXPECT_EQ(fabric.now(), 30);
  EXPECT_FALSE(fabric.run_until(never, [] { return false; }));  // nothing left to happen
  EXPECT_EQ(fabric.now(), 30);
}

TEST(LoopbackFabric, RunUntilStepsTheOthersWhenTheyAskFor) {
  LoopbackFabric fabric(1);
  std::vector<TimeNs> steps;
  fabric.set_stepper([&](TimeNs now) {
    steps.push_back(now);
    return steps.size() < 3 ? now + 100 : never;
  });
  EXPECT_FALSE(fabric.run_until(1000, [] { return false; }));
  EXPECT_EQ(steps, (std::vector<TimeNs>{0, 100, 200}));
  EXPECT_EQ(fabric.now(), 1000);
}

TEST(SeededRandom, RepeatsAndStaysInBounds) {
  SeededRandom a(7), b(7), c(8);
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const auto value = a.next();
    EXPECT_EQ(value, b.next());
    differs |= value != c.next();
    const auto between = a.between(-5, 5);
    EXPECT_EQ(between, b.between(-5, 5));
    EXPECT_GE(between, -5);
    EXPECT_LE(between, 5);
  }
  EXPECT_TRUE(differs);
  EXPECT_FALSE(a.chance(0));
  EXPECT_TRUE(a.chance(1));
}

TEST(LoopbackMapped, BothEndsSeeOneSegment) {
  World world;
  const MutableBytes host = world.pair.host->channel_memory();
  const MutableBytes agent = world.pair.agent->mapped(wire::channel_segment);
  ASSERT_EQ(host.size(), small_layout.total_bytes());
  ASSERT_EQ(agent.size(), host.size());
  EXPECT_NE(agent.data(), host.data());
  host[100] = std::byte{1};
  agent[200] = std::byte{2};
  EXPECT_EQ(agent[100], std::byte{1});
  EXPECT_EQ(host[200], std::byte{2});
}

TEST(LoopbackMapped, TheAgentsViewOutlivesTheHostsMemory) {
  World world;
  {
    auto memory = world.pair.host->allocate(5000);
    ASSERT_TRUE(memory);
    ASSERT_TRUE(world.pair.host->announce_segment(segment(1), *memory, never));
    memory->data()[4999] = std::byte{9};
  }
  EXPECT_EQ(world.pair.agent->mapped(segment(1))[4999], std::byte{9});
  world.pair.host->retire_segment(segment(1));
  world.pass(second_ns);
  EXPECT_TRUE(world.pair.agent->mapped(segment(1)).empty());
}

TEST(LoopbackMapped, ASegmentAnnouncedTwiceEndsTheLink) {
  World world;
  auto memory = world.pair.host->allocate(5000);
  ASSERT_TRUE(memory);
  ASSERT_TRUE(world.pair.host->announce_segment(segment(1), *memory, never));
  const auto again = world.pair.host->announce_segment(segment(1), *memory, never);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Error::protocol);
  EXPECT_THAT(again.error().message, HasSubstr("segment 1"));
  const auto events = world.poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, Kind::closed);
}

TEST(LoopbackUnmapped, NothingIsMapped) {
  World world(unmapped());
  EXPECT_TRUE(world.pair.agent->mapped(wire::channel_segment).empty());
  EXPECT_THAT(world.pair.agent->traits().reason, HasSubstr("reached by operations"));
}

TEST(LoopbackUnmapped, AWriteTakesItsSourceWhenItBecomesVisible) {
  World world(unmapped());
  std::uint64_t source = 1;
  const WritePiece piece{wire::channel_segment, 0, bytes(&source), 8};
  world.pair.agent->write(1, std::span(&piece, 1));
  EXPECT_TRUE(world.poll().empty());
  source = 2;  // a mistake of the caller, and it shows
  ASSERT_TRUE(world.finish());
  EXPECT_EQ(load<std::uint64_t>(world.pair.host->channel_memory().data()), 2u);
}

// The host writes a slot, then the tail, while one read fetches both.
TEST(LoopbackUnmapped, AReadOfTailAndSlotTogetherIsUnordered) {
  int both_old = 0, both_new = 0, slot_only = 0, tail_only = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    World world(unmapped(), seed);
    const MutableBytes memory = world.pair.host->channel_memory();
    std::uint64_t tail = 0, slot = 0;
    const std::array<ReadPiece, 2> pieces{
        {{wire::channel_segment, 0, 0, bytes(&tail), 8}, {wire::channel_segment, 0, 4096, bytes(&slot), 8}}};
    world.pair.agent->read(1, pieces);
    world.pass(500);
    store<std::uint64_t>(memory.data() + 4096, 1);
    world.pass(200);
    store<std::uint64_t>(memory.data(), 1);
    ASSERT_TRUE(world.finish());
    both_old += tail == 0 && slot == 0;
    both_new += tail == 1 && slot == 1;
    slot_only += tail == 0 && slot == 1;
    tail_only += tail == 1 && slot == 0;
  }
  EXPECT_GT(both_old, 0);
  EXPECT_GT(both_new, 0);
  EXPECT_GT(slot_only, 0);
  EXPECT_GT(tail_only, 0);
}

// Even one contiguous piece is seen line by line.
TEST(LoopbackUnmapped, OnePieceIsSeenAtSeveralMoments) {
  int mixed = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    World world(unmapped(), seed);
    const MutableBytes memory = world.pair.host->channel_memory();
    std::array<std::byte, 1024> seen{};
    const ReadPiece piece{wire::channel_segment, 0, 0, seen.data(), seen.size()};
    world.pair.agent->read(1, std::span(&piece, 1));
    world.pass(700);
    std::fill_n(memory.data(), seen.size(), std::byte{1});
    ASSERT_TRUE(world.finish());
    const auto ones = std::count(seen.begin(), seen.end(), std::byte{1});
    mixed += ones != 0 && ones != 1024;
    for (std::size_t line = 0; line < seen.size(); line += 64)
      for (std::size_t i = 1; i < 64; ++i) ASSERT_EQ(seen[line + i], seen[line]) << "a line was torn, seed " << seed;
  }
  EXPECT_GT(mixed, 10);
}

TEST(LoopbackUnmapped, WritesBecomeVisibleInTheOrderPosted) {
  int between = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    World world(unmapped(), seed);
    const MutableBytes memory = world.pair.host->channel_memory();
    std::array<std::uint64_t, 64> payload;
    payload.fill(7);
    const std::uint64_t tail = 1;
    const WritePiece first{wire::channel_segment, 8192, bytes(payload.data()), sizeof payload};
    const WritePiece second{wire::channel_segment, 128, reinterpret_cast<const std::byte*>(&tail), 8};
    world.pair.agent->write(1, std::span(&first, 1));
    world.pair.agent->write(2, std::span(&second, 1));
    while (world.fabric->next_event() != never) {
      world.fabric->advance_to(world.fabric->next_event());
      std::uint64_t words = 0;
      for (std::size_t i = 0; i < payload.size(); ++i) words += load<std::uint64_t>(memory.data() + 8192 + 8 * i) == 7;
      const bool tail_seen = load<std::uint64_t>(memory.data() + 128) == 1;
      if (tail_seen) {
        ASSERT_EQ(words, payload.size()) << "seed " << seed;
      }
      between += !tail_seen && words == payload.size();
    }
    EXPECT_EQ(world.poll().size(), 2u);
  }
  EXPECT_GT(between, 0);
}

TEST(LoopbackUnmapped, OperationsOvertakeEachOther) {
  int overtaken = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    World world(unmapped(), seed);
    std::uint64_t a = 0, b = 0;
    const ReadPiece first{wire::channel_segment, 0, 0, bytes(&a), 8}, second{wire::channel_segment, 0, 0, bytes(&b), 8};
    world.pair.agent->read(1, std::span(&first, 1));
    world.pair.agent->read(2, std::span(&second, 1));
    world.pass(second_ns);
    const auto events = world.poll();
    ASSERT_EQ(events.size(), 2u);
    overtaken += events[0].token == 2;
  }
  EXPECT_GT(overtaken, 5);
  EXPECT_LT(overtaken, 45);
}

// The events of a short run, one number for each.
std::vector<std::int64_t> trace(std::uint64_t seed) {
  LoopbackOptions options = unmapped();
  options.operation = {.min_ns = 100, .max_ns = 5000, .slow_probability = 0.1, .slow_max_ns = 100'000};
  World world(options, seed);
  std::vector<std::byte> data(10'000), to(10'000);
  world.announce(3, 1, data.data(), data.size());
  std::vector<std::int64_t> trace;
  for (std::uint64_t token = 0; token < 20; ++token) {
    const ReadPiece piece{3, 1, token * 100, to.data() + token * 100, 100};
    world.pair.agent->read(token, std::span(&piece, 1));
    world.pair.host->wake();
  }
  while (world.fabric->next_event() != never) {
    world.fabric->advance_to(world.fabric->next_event());
    for (const LinkEvent& event : world.poll())
      trace.insert(trace.end(),
                   {world.fabric->now(), static_cast<int>(event.kind), static_cast<std::int64_t>(event.token)});
  }
  return trace;
}

TEST(Loopback, TheSeedDecidesEverything) {
  EXPECT_EQ(trace(5), trace(5));
  EXPECT_NE(trace(5), trace(6));
  EXPECT_GE(trace(5).size(), 60u);
}

TEST(LoopbackUnmapped, AKeyOpensOnlyWhatTheHostRegistered) {
  World world(unmapped());
  std::vector<std::byte> data(100), to(100);
  const auto base = reinterpret_cast<std::uint64_t>(data.data());
  const ReadPiece piece{3, 1, 0, to.data(), 100};
  ASSERT_TRUE(world.pair.agent->attach_range(3, 1, base, 100, 12345));
  world.pair.agent->read(1, std::span(&piece, 1));
  const auto never_registered = world.finish();
  ASSERT_FALSE(never_registered);
  EXPECT_EQ(never_registered.error().code, Error::stale);

  world.announce(3, 1, data.data(), 50);
  ASSERT_TRUE(world.pair.agent->attach_range(3, 1, base, 100, 12345));
  world.pair.agent->read(2, std::span(&piece, 1));
  const auto wrong_key = world.finish();
  ASSERT_FALSE(wrong_key);
  EXPECT_THAT(wrong_key.error().message, HasSubstr("0x3039"));

  world.announce(3, 2, data.data(), 100);
  const ReadPiece newer{3, 2, 0, to.data(), 100};
  world.pair.agent->read(3, std::span(&newer, 1));
  world.pair.host->retire_range(3, 2);  // while it is under way
  const auto withdrawn = world.finish();
  ASSERT_FALSE(withdrawn);
  EXPECT_EQ(withdrawn.error().code, Error::stale);
}

TEST(LoopbackLife, AKilledHostEndsWhatIsUnderWayAndThenTheLink) {
  for (const bool mapped : {true, false}) {
    LoopbackOptions options;
    options.mapped = mapped;
    World world(options);
    auto data = std::make_unique<std::array<std::byte, 1000>>();
    world.announce(3, 1, data->data(), data->size());
    std::array<std::byte, 1000> to;
    const ReadPiece piece{3, 1, 0, to.data(), to.size()};
    const WritePiece write{wire::channel_segment, 0, to.data(), 8};
    world.pair.agent->read(1, std::span(&piece, 1));
    world.pair.agent->write(2, std::span(&write, 1));
    world.pair.fate->kill_host();
    data.reset();
    world.pair.agent->read(3, std::span(&piece, 1));
    EXPECT_FALSE(world.pair.fate->host_runs());
    EXPECT_TRUE(world.poll().empty());
    world.pass(second_ns);
    world.pair.agent->read(4, std::span(&piece, 1));  // the link knows it, its owner not yet
    const auto events = world.poll();
    ASSERT_EQ(events.size(), 5u);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(events[i].token, i + 1);
      ASSERT_FALSE(events[i].status);
      EXPECT_EQ(events[i].status.error().code, Error::peer_lost);
    }
    EXPECT_EQ(events[4].kind, Kind::closed);
    ASSERT_FALSE(events[4].status);
    EXPECT_EQ(events[4].status.error().code, Error::peer_lost);
    world.pair.agent->read(5, std::span(&piece, 1));
    world.pass(second_ns);
    EXPECT_TRUE(world.poll().empty());
    EXPECT_FALSE(world.pair.host->look());
  }
}

TEST(LoopbackLife, AKilledAgentsWritesStop) {
  World world(unmapped());
  const std::uint64_t value = 5;
  const WritePiece piece{wire::channel_segment, 0, reinterpret_cast<const std::byte*>(&value), 8};
  world.pair.agent->write(1, std::span(&piece, 1));
  world.pair.fate->kill_agent();
  world.pair.host->wait(never);
  EXPECT_EQ(load<std::uint64_t>(world.pair.host->channel_memory().data()), 0u);
  const auto looked = world.pair.host->look();
  ASSERT_FALSE(looked);
  EXPECT_EQ(looked.error().code, Error::peer_lost);
  auto memory = world.pair.host->allocate(100);
  ASSERT_TRUE(memory);
  const auto announced = world.pair.host->announce_segment(segment(1), *memory, never);
  ASSERT_FALSE(announced);
  EXPECT_EQ(announced.error().code, Error::peer_lost);
}

TEST(LoopbackLife, AStoppedHostIsStillReadableOneSided) {
  for (const bool one_sided : {true, false}) {
    LoopbackOptions options = unmapped();
    options.one_sided = one_sided;
    World world(options);
    std::uint64_t seen = 0;
    world.pair.host->channel_memory()[0] = std::byte{7};
    world.pair.fate->stop_host();
    const ReadPiece piece{wire::channel_segment, 0, 0, bytes(&seen), 8};
    world.pair.agent->read(1, std::span(&piece, 1));
    world.pass(second_ns);
    EXPECT_EQ(world.poll().size(), one_sided ? 1u : 0u);
    world.pair.fate->continue_host();
    world.pass(second_ns);
    EXPECT_EQ(world.poll().size(), one_sided ? 0u : 1u);
    EXPECT_EQ(seen, 7u);
  }
}

TEST(LoopbackLife, AStoppedAgentHearsNothingUntilItContinues) {
  World world;
  world.pair.fate->stop_agent();
  world.pair.host->wake();
  auto memory = world.pair.host->allocate(100);
  ASSERT_TRUE(memory);
  const auto announced = world.pair.host->announce_segment(segment(1), *memory, world.fabric->now() + 1'000'000);
  ASSERT_FALSE(announced);
  EXPECT_EQ(announced.error().code, Error::timeout);
  EXPECT_EQ(world.fabric->now(), 1'000'000);
  EXPECT_TRUE(world.poll().empty());
  world.pair.fate->continue_agent();
  const auto events = world.poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, Kind::woken);
  EXPECT_EQ(world.pair.agent->mapped(segment(1)).size(), 100u);
}

TEST(LoopbackLife, APartitionHoldsEverythingUpInOrder) {
  for (const bool mapped : {true, false}) {
    LoopbackOptions options;
    options.mapped = mapped;
    World world(options);
    const std::array<std::uint64_t, 2> values{1, 2};
    world.pair.fate->partition();
    for (std::size_t i = 0; i < 2; ++i) {
      const WritePiece piece{wire::channel_segment, 0, reinterpret_cast<const std::byte*>(&values[i]), 8};
      world.pair.agent->write(i, std::span(&piece, 1));
    }
    world.pair.host->wake();
    world.pair.agent->wake();
    world.pass(second_ns);
    EXPECT_TRUE(world.poll().empty());
    EXPECT_EQ(load<std::uint64_t>(world.pair.host->channel_memory().data()), 0u);
    world.pair.fate->heal();
    world.pass(0);
    EXPECT_EQ(world.poll().size(), 3u);
    EXPECT_EQ(load<std::uint64_t>(world.pair.host->channel_memory().data()), 2u);
    const TimeNs before = world.fabric->now();
    world.pair.host->wait(never);
    EXPECT_EQ(world.fabric->now(), before);
    world.pass(20 * second_ns);  // beyond silence_ns: the partition is over, so nothing ends
    EXPECT_TRUE(world.poll().empty());
    EXPECT_TRUE(world.pair.host->look());
  }
}

TEST(LoopbackLife, ALongPartitionEndsTheLinkAtBothEnds) {
  LoopbackOptions options = unmapped();
  options.silence_ns = 3 * second_ns;
  World world(options);
  std::uint64_t seen = 0;
  const ReadPiece piece{wire::channel_segment, 0, 0, bytes(&seen), 8};
  world.pair.fate->partition();
  world.pair.agent->read(1, std::span(&piece, 1));
  world.pair.host->wait(never);
  EXPECT_EQ(world.fabric->now(), 3 * second_ns);
  const auto looked = world.pair.host->look();
  ASSERT_FALSE(looked);
  EXPECT_EQ(looked.error().code, Error::peer_lost);
  const auto events = world.poll();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_FALSE(events[0].status);
  EXPECT_EQ(events[1].kind, Kind::closed);
  world.pair.fate->heal();
  world.pass(second_ns);
  EXPECT_TRUE(world.poll().empty());
}

TEST(LoopbackLife, ClosingTellsTheOtherEnd) {
  World first;
  first.pair.host->close();
  first.pass(second_ns);
  const auto events = first.poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, Kind::closed);
  ASSERT_FALSE(events[0].status);
  EXPECT_EQ(events[0].status.error().code, Error::closed);

  World second;
  second.pair.agent.reset();
  second.pair.host->wait(never);
  EXPECT_FALSE(second.pair.host->look());

  World third;
  third.pair.host->abandon();
  third.pair.host.reset();
  third.pass(second_ns);
  EXPECT_TRUE(third.poll().empty());
}

TEST(LoopbackWait, SleepsInVirtualTime) {
  World world;
  world.pair.host->wait(5'000);
  EXPECT_EQ(world.fabric->now(), 5'000);
  world.pair.agent->wake();
  world.pair.host->wait(second_ns);
  EXPECT_LT(world.fabric->now(), millisecond_ns);
  EXPECT_GT(world.fabric->now(), 5'000);
  const TimeNs woken_at = world.fabric->now();
  world.pair.host->wait(second_ns);  // not looked yet: still woken
  EXPECT_EQ(world.fabric->now(), woken_at);
  EXPECT_TRUE(world.pair.host->look());
  world.pair.host->wait(second_ns);
  EXPECT_EQ(world.fabric->now(), second_ns);
}

TEST(LoopbackWait, RunsTheAgentsMeanwhile) {
  World world;
  bool answered = false;
  world.fabric->set_stepper([&](TimeNs) {
    for (const LinkEvent& event : world.poll()) {
      if (event.kind != Kind::woken) continue;
      answered = true;
      world.pair.agent->wake();
    }
    return never;
  });
  world.pair.host->wake();
  world.pair.host->wait(second_ns);
  EXPECT_TRUE(answered);
  EXPECT_LT(world.fabric->now(), millisecond_ns);
}

TEST(LoopbackStaged, HasNoRanges) {
  LoopbackOptions options;
  options.staged = true;
  World world(options);
  EXPECT_TRUE(world.pair.agent->traits().staged);
  EXPECT_EQ(world.pair.host->welcome().direct, 0);
  std::uint64_t value = 0;
  const auto announced = world.pair.host->announce_range(1, 1, &value, 8);
  ASSERT_FALSE(announced);
  EXPECT_EQ(announced.error().code, Error::unsupported);
  EXPECT_FALSE(world.pair.agent->attach_range(1, 1, reinterpret_cast<std::uint64_t>(&value), 8, 0));
}

TEST(Loopback, HundredPairsShareATime) {
  auto fabric = std::make_shared<LoopbackFabric>(3);
  std::vector<LoopbackPair> pairs;
  std::vector<std::uint64_t> values(100), seen(100);
  std::iota(values.begin(), values.end(), 1);
  for (std::size_t i = 0; i < 100; ++i) {
    auto made = make_loopback(fabric, unmapped(), small_layout);
    ASSERT_TRUE(made);
    pairs.push_back(std::move(*made));
    const auto key = pairs[i].host->announce_range(1, 1, &values[i], 8);
    ASSERT_TRUE(key);
    ASSERT_TRUE(pairs[i].agent->attach_range(1, 1, reinterpret_cast<std::uint64_t>(&values[i]), 8, *key));
    const ReadPiece piece{1, 1, 0, bytes(&seen[i]), 8};
    pairs[i].agent->read(i, std::span(&piece, 1));
  }
  pairs[50].fate->kill_host();
  fabric->advance_to(second_ns);
  for (std::size_t i = 0; i < 100; ++i) {
    std::array<LinkEvent, 4> events;
    ASSERT_EQ(pairs[i].agent->poll(second_ns, events), i == 50 ? 2u : 1u);
    EXPECT_EQ(static_cast<bool>(events[0].status), i != 50);
    EXPECT_EQ(seen[i], i == 50 ? 0 : i + 1);
  }
}

TEST(Loopback, WhatIsUnderWayDiesWithTheEnds) {
  auto fabric = std::make_shared<LoopbackFabric>(3);
  {
    auto made = make_loopback(fabric, unmapped(), small_layout);
    ASSERT_TRUE(made);
    std::uint64_t seen = 0;
    const ReadPiece piece{wire::channel_segment, 0, 0, bytes(&seen), 8};
    made->agent->read(1, std::span(&piece, 1));
    made->host->wake();
  }
  fabric->advance_to(second_ns);
  EXPECT_EQ(fabric->next_event(), never);
}

TEST(Loopback, RefusesAnImpossibleLayout) {
  const auto made = make_loopback(std::make_shared<LoopbackFabric>(1), {}, {.request_slots = 3});
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, HasSubstr("3"));
}

}  // namespace
}  // namespace offpath::link
