#include "testing/link/fault_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <array>
#include <map>
#include <vector>

#include "testing/link/emulated.h"
#include "testing/link/loopback_link.h"
#include "wire/region.h"

namespace offpath::link {
namespace {

using Kind = LinkEvent::Kind;
using ::testing::HasSubstr;

const wire::ChannelLayout small_layout{.request_slots = 64, .reply_slots = 64, .streams_max = 4};
constexpr RegionId channel = wire::channel_segment;

struct World {
  explicit World(const AgentFaults& agent_faults, const HostFaults& host_faults = {}, std::uint64_t seed = 1)
      : fabric(std::make_shared<LoopbackFabric>(seed)) {
    LoopbackOptions options;
    options.mapped = false;
    auto made = make_loopback(fabric, options, small_layout);
    EXPECT_TRUE(made);
    fate = made->fate;
    agent = std::make_unique<FaultAgentLink>(std::move(made->agent), agent_faults, seed);
    host = std::make_unique<FaultHostLink>(std::move(made->host), host_faults, seed);
  }
  void read(std::uint64_t token) {
    const ReadPiece piece{channel, 0, 0, to.data(), to.size()};
    agent->read(token, std::span(&piece, 1));
  }
  void write(std::uint64_t token) {
    const WritePiece piece{channel, 0, to.data(), to.size()};
    agent->write(token, std::span(&piece, 1));
  }
  std::vector<LinkEvent> poll() {
    std::vector<LinkEvent> all;
    std::array<LinkEvent, 8> some;
    while (const std::size_t count = agent->poll(fabric->now(), some))
      std::move(some.begin(), some.begin() + static_cast<std::ptrdiff_t>(count), std::back_inserter(all));
    return all;
  }
  // Every event of the next `time`, looked for each microsecond.
  std::vector<LinkEvent> run(TimeNs time) {
    std::vector<LinkEvent> all;
    for (const TimeNs end = fabric->now() + time; fabric->now() < end;) {
      fabric->advance_to(fabric->now() + 1'000);
      for (LinkEvent& event : poll()) all.push_back(std::move(event));
    }
    return all;
  }

  std::shared_ptr<LoopbackFabric> fabric;
  std::shared_ptr<LoopbackFate> fate;
  std::unique_ptr<FaultAgentLink> agent;
  std::unique_ptr<FaultHostLink> host;
  std::array<std::byte, 64> to{};
};

TEST(FaultAgentLink, WithoutFaultsItChangesNothing) {
  World world({});
  world.host->channel_memory()[5] = std::byte{9};
  world.read(1);
  world.host->wake();
  const auto events = world.run(100'000);
  EXPECT_EQ(events.size(), 2u);
  EXPECT_EQ(world.to[5], std::byte{9});
  EXPECT_EQ(world.agent->next_event(), never);
  EXPECT_EQ(world.agent->traits().name, "loopback");
}

TEST(FaultAgentLink, EachFaultOfAnOperationHasItsErrorAndCounter) {
  const struct {
    AgentFaults faults;
    Error read, write;
    bool write_fails;
    std::uint64_t FaultCounters::* counter;
  } cases[] = {
      {{.read_fails = 1}, Error::io, Error::io, false, &FaultCounters::reads_failed},
      {{.read_unreadable = 1}, Error::unreadable, Error::io, false, &FaultCounters::reads_unreadable},
  };
  for (const auto& one : cases) {
    World world(one.faults);
    world.host->channel_memory()[5] = std::byte{9};
    world.read(1);
    world.write(2);
    std::map<std::uint64_t, Status> seen;
    for (LinkEvent& event : world.run(100'000)) seen.emplace(event.token, std::move(event.status));
    ASSERT_EQ(seen.size(), 2u);
    ASSERT_FALSE(seen.at(1));
    EXPECT_EQ(seen.at(1).error().code, one.read);
    EXPECT_THAT(seen.at(1).error().message, HasSubstr("injected by fault_link"));
    EXPECT_TRUE(seen.at(2));
    EXPECT_EQ(world.to[5], std::byte{0}) << "nothing was read";
    EXPECT_EQ(world.agent->counters().*one.counter, 1u);
  }
}

TEST(FaultAgentLink, AFailedWriteWritesNothing) {
  World world({.write_fails = 1});
  world.to.fill(std::byte{3});
  world.write(2);
  const auto events = world.run(100'000);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_FALSE(events[0].status);
  EXPECT_EQ(world.host->channel_memory()[0], std::byte{0});
  EXPECT_EQ(world.agent->counters().writes_failed, 1u);
}

TEST(FaultAgentLink, ADelayedCompletionComesLateButComes) {
  World world({.completion_delayed = 1, .delay_max_ns = 500'000});
  for (std::uint64_t token = 0; token < 20; ++token) world.read(token);
  const auto early = world.run(10'000);  // longer than any read takes
  EXPECT_LT(early.size(), 20u);
  EXPECT_LT(world.agent->next_event(), 600'000);
  EXPECT_GT(world.agent->next_event(), world.fabric->now());
  const auto late = world.run(600'000);
  EXPECT_EQ(early.size() + late.size(), 20u);
  EXPECT_EQ(world.agent->counters().completions_delayed, 20u);
}

TEST(FaultAgentLink, CompletionsOfOneMomentChangePlaces) {
  World world({.completion_reordered = 0.5});
  for (std::uint64_t token = 0; token < 30; ++token) world.read(token);
  world.fabric->advance_to(millisecond_ns);
  std::vector<std::uint64_t> tokens;
  for (const LinkEvent& event : world.poll()) tokens.push_back(event.token);
  EXPECT_GT(world.agent->counters().completions_reordered, 0u);
  std::vector<std::uint64_t> sorted = tokens;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_NE(tokens, sorted);
  ASSERT_EQ(sorted.size(), 30u);
  for (std::uint64_t token = 0; token < 30; ++token) EXPECT_EQ(sorted[token], token);
}

TEST(FaultAgentLink, WakesAreLateOrDoubleButNeverLost) {
  World late({.wake_delayed = 1, .delay_max_ns = 300'000});
  World twice({.wake_repeated = 1});
  for (World* world : {&late, &twice}) {
    world->host->wake();
    std::size_t woken = 0;
    for (const LinkEvent& event : world->run(millisecond_ns)) woken += event.kind == Kind::woken;
    EXPECT_EQ(woken, world == &late ? 1u : 2u);
    world->agent->wake();
    world->run(millisecond_ns);
    const TimeNs before = world->fabric->now();
    world->host->wait(before + second_ns);
    EXPECT_EQ(world->fabric->now(), before) << "the wake had arrived";
  }
  EXPECT_EQ(late.agent->counters().wakes_delayed, 2u);
  EXPECT_EQ(twice.agent->counters().wakes_repeated, 2u);
}

TEST(FaultAgentLink, AStallHoldsEventsBackForAWhile) {
  World world({.stall = 1, .stall_max_ns = 50'000});
  world.read(1);
  world.fabric->advance_to(10'000);
  EXPECT_TRUE(world.poll().empty());
  const TimeNs end = world.agent->next_event();
  EXPECT_GT(end, 10'000);
  EXPECT_LE(end, 60'000);
  world.agent->set_faults({});
  world.fabric->advance_to(end - 1);
  EXPECT_TRUE(world.poll().empty());
  world.fabric->advance_to(end);
  EXPECT_EQ(world.poll().size(), 1u);
  EXPECT_EQ(world.agent->counters().stalls, 1u);
}

TEST(FaultAgentLink, ABreakCompletesEverythingAndThenCloses) {
  World world({});
  world.read(1);
  world.write(2);
  world.agent->set_faults({.completion_delayed = 1, .close = 1});
  world.read(3);
  world.write(4);  // after the break, before its owner knows
  const auto events = world.run(millisecond_ns);
  ASSERT_EQ(events.size(), 5u);
  std::map<std::uint64_t, Error> seen;
  for (std::size_t i = 0; i < 4; ++i) {
    ASSERT_FALSE(events[i].status);
    seen[events[i].token] = events[i].status.error().code;
  }
  EXPECT_EQ(seen, (std::map<std::uint64_t, Error>{
                      {1, Error::peer_lost}, {2, Error::peer_lost}, {3, Error::peer_lost}, {4, Error::peer_lost}}));
  EXPECT_EQ(events[4].kind, Kind::closed);
  EXPECT_EQ(world.agent->counters().closes, 1u);
  world.read(5);
  EXPECT_TRUE(world.run(millisecond_ns).empty());
  EXPECT_FALSE(world.host->look()) << "the host learns it too";
}

TEST(FaultAgentLink, TheInnerLinksEndComesLast) {
  World world({.completion_delayed = 1, .completion_reordered = 1, .delay_max_ns = second_ns});
  for (std::uint64_t token = 0; token < 10; ++token) world.read(token);
  world.run(50'000);
  world.fate->kill_host();
  std::vector<LinkEvent> events = world.run(100'000);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().kind, Kind::closed);
}

TEST(FaultAgentLink, ABrokenLinkWhoseOwnerTakesOneEventAtATime) {
  World world({.close = 1});
  for (std::uint64_t token = 0; token < 3; ++token) world.read(token);
  std::vector<std::uint64_t> tokens;
  std::array<LinkEvent, 1> one;
  for (int i = 0; i < 2; ++i) {
    world.fabric->advance_to(world.fabric->now() + 1'000);
    ASSERT_EQ(world.agent->poll(world.fabric->now(), one), 1u);
    EXPECT_EQ(one[0].kind, Kind::read_done);
  }
  world.read(3);
  for (const Kind kind : {Kind::read_done, Kind::read_done, Kind::closed}) {
    ASSERT_EQ(world.agent->poll(world.fabric->now(), one), 1u);
    EXPECT_EQ(one[0].kind, kind);
  }
  EXPECT_EQ(world.agent->poll(world.fabric->now(), one), 0u);
}

std::vector<std::uint64_t> trace(std::uint64_t seed) {
  World world({.read_fails = 0.1,
               .read_unreadable = 0.1,
               .write_fails = 0.1,
               .completion_delayed = 0.3,
               .completion_reordered = 0.3,
               .stall = 0.05},
              {}, seed);
  for (std::uint64_t token = 0; token < 50; ++token) {
    world.read(2 * token);
    world.write(2 * token + 1);
  }
  std::vector<std::uint64_t> trace;
  for (const LinkEvent& event : world.run(20 * millisecond_ns))
    trace.push_back(event.token * 100 + (event.status ? 0 : static_cast<std::uint64_t>(event.status.error().code)));
  return trace;
}

TEST(FaultAgentLink, TheSeedDecidesAndNothingIsLost) {
  EXPECT_EQ(trace(4), trace(4));
  EXPECT_NE(trace(4), trace(5));
  EXPECT_EQ(trace(4).size(), 100u);
}

TEST(FaultHostLink, EachFaultHasItsErrorAndCounter) {
  World world({}, {.allocate_fails = 1, .announce_fails = 1, .offer_fails = 1});
  const auto allocated = world.host->allocate(4096);
  ASSERT_FALSE(allocated);
  EXPECT_EQ(allocated.error().code, Error::no_memory);
  EXPECT_THAT(allocated.error().message, HasSubstr("4096"));
  const auto range = world.host->announce_range(3, 5, world.to.data(), world.to.size());
  ASSERT_FALSE(range);
  EXPECT_THAT(range.error().message, HasSubstr("range 3 at generation 5"));
  EXPECT_FALSE(world.host->offer(1, 0));
  world.host->set_faults({.announce_fails = 1});
  auto memory = world.host->allocate(4096);
  ASSERT_TRUE(memory);
  const auto announced = world.host->announce_segment(wire::segment_flag | 1, *memory, never);
  ASSERT_FALSE(announced);
  EXPECT_EQ(announced.error().code, Error::timeout);
  EXPECT_EQ(world.host->counters().allocations_failed, 1u);
  EXPECT_EQ(world.host->counters().announcements_failed, 2u);
  EXPECT_EQ(world.host->counters().offers_failed, 1u);
}

TEST(FaultHostLink, WaitsReturnForNothing) {
  World world({}, {.wait_spurious = 1});
  world.host->wait(second_ns);
  EXPECT_EQ(world.fabric->now(), 0);
  EXPECT_EQ(world.host->counters().waits_spurious, 1u);
  world.host->set_faults({});
  world.host->wait(second_ns);
  EXPECT_EQ(world.fabric->now(), second_ns);
}

TEST(FaultHostLink, ABreakIsSeenByBothEnds) {
  World world({}, {.close = 1});
  const auto looked = world.host->look();
  ASSERT_FALSE(looked);
  EXPECT_EQ(looked.error().code, Error::peer_lost);
  EXPECT_FALSE(world.host->look());
  EXPECT_FALSE(world.host->announce_range(1, 1, world.to.data(), 8));
  const auto events = world.run(millisecond_ns);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, Kind::closed);
  EXPECT_EQ(world.host->counters().closes, 1u);
}

bool readable(int fd, int wait_ms) {
  pollfd one{fd, POLLIN, 0};
  return ::poll(&one, 1, wait_ms) == 1;
}

TEST(DueFd, IsReadableWhenTheInnerOneIsOrATimeHasCome) {
  Fd inner(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  DueFd due(inner.get());
  ASSERT_GE(due.fd(), 0);
  EXPECT_FALSE(readable(due.fd(), 0));
  ::eventfd_write(inner.get(), 1);
  EXPECT_TRUE(readable(due.fd(), 0));
  eventfd_t count;
  ::eventfd_read(inner.get(), &count);
  EXPECT_FALSE(readable(due.fd(), 0));
  due.arm(monotonic_ns() + millisecond_ns);
  EXPECT_TRUE(readable(due.fd(), patience_ms()));
  due.arm(never);
  EXPECT_FALSE(readable(due.fd(), 0));
  due.arm(monotonic_ns() - 1);  // already past
  EXPECT_TRUE(readable(due.fd(), patience_ms()));
}

TEST(DueFd, IsNoneWhereTheInnerLinkHasNone) {
  DueFd due(-1);
  EXPECT_EQ(due.fd(), -1);
  due.arm(5);
  EXPECT_EQ(due.fd(), -1);
}

TEST(HeldEvents, ComeOutByTimeThenRankThenOrder) {
  HeldEvents held;
  const auto event = [](std::uint64_t token) { return LinkEvent{Kind::read_done, token, {}, {}}; };
  held.hold(event(1), 20, 1);
  held.hold(event(2), 20, 0);
  held.hold(event(3), 10, 5);
  held.hold(event(4), 20, 1);
  EXPECT_EQ(held.next_due(), 10);
  std::array<LinkEvent, 2> two;
  EXPECT_EQ(held.release(15, two), 1u);
  EXPECT_EQ(two[0].token, 3u);
  held.make_all_due(15);
  ASSERT_EQ(held.release(15, two), 2u);
  EXPECT_EQ(two[0].token, 2u);
  EXPECT_EQ(two[1].token, 1u);
  ASSERT_EQ(held.release(15, two), 1u);
  EXPECT_EQ(two[0].token, 4u);
  EXPECT_EQ(held.next_due(), never);
}

}  // namespace
}  // namespace offpath::link
