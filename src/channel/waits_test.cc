// Waiting: the wakes that a sleeping program requests from the agent, and that each of them arrives. Both ends, in
// virtual time.
#include <gtest/gtest.h>
#include <poll.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "channel/agent_end.h"
#include "channel/host_end.h"
#include "testing/link/loopback_link.h"
#include "testing/link/seeded_random.h"
#include "wire/messages/replies.h"

namespace offpath::channel {
namespace {

using wire::EntryKind;

// An agent controlled by the test.
class Waits : public testing::TestWithParam<bool>, public AgentEvents {
 protected:
  static constexpr wire::ChannelLayout layout{.request_slots = 64, .reply_slots = 64, .streams_max = 4};

  Waits() {
    link::LoopbackOptions options;
    options.mapped = GetParam();
    options.welcome.memory_bytes_max = 1 << 20;
    auto pair = link::make_loopback(fabric, options, layout);
    OFP_ASSERT(pair);
    agent = std::make_unique<AgentEnd>(1, "program", std::move(pair->agent), layout, *this);
    fabric->set_stepper([this](TimeNs now) { return step(now); });
    host = std::make_unique<HostEnd>(std::move(pair->host), layout, link::LoopbackFabric::clock, fabric.get());
    wire::OpenStream open{.stream = 0,
                          .destination = {},
                          .rows_max = 1,
                          .keep = 0,
                          .ranks = 1,
                          .rank = 0,
                          .name = "s",
                          .pool = "p",
                          .schema = {}};
    EXPECT_TRUE(host->open_stream(open, never));
    stream = open.stream;
  }
  ~Waits() override {
    host.reset();
    fabric->set_stepper({});
  }

  TimeNs step(TimeNs now) {
    bool did = false;
    for (; !plan.empty() && plan.begin()->first <= now; plan.erase(plan.begin())) {
      plan.begin()->second();
      did = true;
    }
    did |= agent->poll(now);
    const TimeNs next = plan.empty() ? never : plan.begin()->first;
    return !did && agent->fall_asleep(now) ? next : std::min(next, now + microsecond_ns);
  }
  // Schedules `happen` at the agent, that much later than now.
  void later(TimeNs after, std::function<void()> happen) { plan.emplace(fabric->now() + after, std::move(happen)); }

  void on_request(AgentEnd& channel, const Entry& request, TimeNs) override {
    const auto kind = static_cast<EntryKind>(request.kind);
    if (kind == EntryKind::open_stream) {
      channel.reset_line(0);
      channel.reply(wire::ReplyKind::opened, request.ticket, wire::Opened{0, 1});
    } else if (kind == EntryKind::close_stream) {
      channel.reply(wire::ReplyKind::done, request.ticket, wire::Done{0});
    } else if (refuses) {
      channel.reply_failure(request.ticket, 0, {Error::no_memory, "refused"});
      channel.set_pulled(0, request.ticket);
    }
    if (holds_after_one) channel.hold_requests(true);
    taken.push_back(request.ticket);
  }
  void on_transfer(AgentEnd&, std::uint64_t, Status, TimeNs) override {}
  void on_offer(AgentEnd&, std::uint64_t, Result<Fd>, TimeNs) override {}
  void on_closed(AgentEnd&, const Failure& failure, TimeNs) override { why = failure.message; }

  std::uint64_t post() {
    auto ticket = host->post(EntryKind::step_end, {}, never);
    EXPECT_TRUE(ticket);
    return ticket.value_or(0);
  }
  [[nodiscard]] TimeNs in(TimeNs time) const { return fabric->now() + time; }
  // Whether the program is notified within that time; it then looks.
  bool told_within(TimeNs time) {
    const TimeNs until = in(time);
    fabric->run_until(until, [&] { return readable(); });
    return readable();
  }
  [[nodiscard]] bool readable() const {
    pollfd event{.fd = host->event_fd(), .events = POLLIN, .revents = 0};
    return ::poll(&event, 1, 0) == 1;
  }

  std::shared_ptr<link::LoopbackFabric> fabric = std::make_shared<link::LoopbackFabric>(1);
  std::multimap<TimeNs, std::function<void()>> plan;
  std::unique_ptr<AgentEnd> agent;
  std::unique_ptr<HostEnd> host;
  std::uint32_t stream = 0;
  bool refuses = false, holds_after_one = false;
  std::uint64_t credit = 0;
  std::vector<std::uint64_t> taken;
  std::string why;
};
INSTANTIATE_TEST_SUITE_P(Links, Waits, testing::Bool(),
                         [](const auto& mapped) { return mapped.param ? "mapped" : "remote"; });

constexpr int slices = 5000;

TEST_P(Waits, OfMinutesInSlicesAskForOneWake) {
  const std::uint64_t ticket = post(), asked = host->ask(EntryKind::pool_get, {}).value();
  const std::uint64_t posted = host->counters().posted;
  for (int i = 0; i < slices; ++i) {
    ASSERT_EQ(host->wait(stream, ticket, Progress::pulled, in(millisecond_ns)).error().code, Error::timeout)
        << i << ": " << why;
    ASSERT_EQ(host->wait(stream, ticket, Progress::stored, in(millisecond_ns)).error().code, Error::timeout)
        << i << ": " << why;
    ASSERT_FALSE(host->wait_reply({&asked, 1}, in(millisecond_ns)).value()) << i << ": " << why;
    auto posting = host->begin();
    ASSERT_EQ(host->post_data(posting, EntryKind::step_end, stream, {}, 4096, 0, {}, in(millisecond_ns)).error().code,
              Error::timeout)
        << i << ": " << why;
  }
  EXPECT_LE(host->counters().posted - posted, 5u) << "a wake for each word, and one request for credit";
  later(millisecond_ns, [&] { agent->set_pulled(stream, ticket); });
  EXPECT_TRUE(host->wait(stream, ticket, Progress::pulled, in(second_ns)));
  later(millisecond_ns, [&] { agent->set_stored(stream, ticket); });
  EXPECT_TRUE(host->wait(stream, ticket, Progress::stored, in(second_ns)));
  later(millisecond_ns, [&] { agent->reply(wire::ReplyKind::done, asked, wire::Done{}); });
  EXPECT_EQ(host->wait_reply({&asked, 1}, in(second_ns)).value(), asked);
  later(millisecond_ns, [&] { agent->set_credit(stream, 4096); });
  auto posting = host->begin();
  EXPECT_TRUE(host->post_data(posting, EntryKind::step_end, stream, {}, 4096, 0, {}, in(second_ns)));
  EXPECT_EQ(why, "");
}

// As a send that may not wait: its caller may hold a lock that others need.
TEST_P(Waits, OfOneThatMayNotWaitAnnouncesNothingInAFullRing) {
  agent->hold_requests(true);
  while (host->has_room(0)) post();
  while (host->ask(EntryKind::step_end, {})) continue;
  const std::vector<std::byte> memory(100);
  std::uint32_t hint = 0;
  auto posting = host->begin();
  auto named = host->name_or_announce(posting, memory.data(), memory.size(), hint, 0);
  ASSERT_FALSE(named);
  EXPECT_EQ(named.error().code, Error::would_block) << named.error().message;
  EXPECT_EQ(host->name_memory(posting, memory.data(), memory.size(), hint).error().code, Error::unannounced);
  later(millisecond_ns, [&] { agent->hold_requests(false); });
  named = host->name_or_announce(posting, memory.data(), memory.size(), hint, never);
  EXPECT_TRUE(named) << named.error().message;
  EXPECT_EQ(why, "");
}

TEST_P(Waits, ForRoomInSlicesAskForOneWake) {
  agent->hold_requests(true);
  while (host->has_room(0)) post();
  const std::vector<std::byte> payload(20 * wire::slot_payload_bytes);
  const std::uint64_t posted = host->counters().posted;
  for (int i = 0; i < slices; ++i) {
    ASSERT_EQ(host->post(EntryKind::step_end, payload, in(millisecond_ns)).error().code, Error::timeout)
        << i << ": " << why;
    ASSERT_TRUE(host->wait_room(payload.size(), in(millisecond_ns))) << i << ": " << why;
  }
  EXPECT_LE(host->counters().posted - posted, 2u) << "one for room, one for replies";
  later(millisecond_ns, [&] { agent->hold_requests(false); });
  EXPECT_TRUE(host->post(EntryKind::step_end, payload, in(second_ns)));
  EXPECT_EQ(why, "");
}

// Each asks for another value, the largest one first; the wake for the smallest one is not the last.
TEST_P(Waits, ForDifferentValuesOfAWordAllEnd) {
  std::vector<std::uint64_t> tickets;
  for (int i = 0; i < 20; ++i) tickets.push_back(post());
  for (auto each = tickets.rbegin(); each != tickets.rend(); ++each)
    ASSERT_TRUE(host->arm(stream, *each, Progress::pulled));
  for (const std::uint64_t ticket : tickets) {
    ASSERT_FALSE(told_within(millisecond_ns)) << ticket;
    later(0, [&] { agent->set_pulled(stream, ticket); });
    ASSERT_TRUE(told_within(millisecond_ns)) << ticket << " has come, and nobody was told";
    ASSERT_TRUE(host->poll());
    ASSERT_EQ(host->pulled(stream), ticket);
  }
  EXPECT_EQ(why, "");
}

// An early wake ends the wait for the smaller value; the wait for the larger one sleeps again.
TEST_P(Waits, AWakeThatComesEarlyIsAskedForAgain) {
  const std::uint64_t first = post(), second = post();
  ASSERT_TRUE(host->arm(stream, first, Progress::stored));
  later(millisecond_ns, [&] { agent->set_stored(stream, first); });
  later(2 * millisecond_ns, [&] { agent->set_stored(stream, second); });
  const TimeNs began = fabric->now();
  ASSERT_TRUE(host->wait(stream, second, Progress::stored, in(second_ns)));
  EXPECT_LT(fabric->now() - began, 3 * millisecond_ns);
}

TEST_P(Waits, OfAStreamThatIsOpenedAgainDoNotCountOnWakesOfBefore) {
  ASSERT_TRUE(host->arm(stream, 1'000, Progress::stored));
  ASSERT_EQ(host->wait(stream, post(), Progress::stored, in(millisecond_ns)).error().code, Error::timeout);
  ASSERT_TRUE(host->close_stream(stream, never));
  wire::OpenStream open{.stream = 0,
                        .destination = {},
                        .rows_max = 1,
                        .keep = 0,
                        .ranks = 1,
                        .rank = 0,
                        .name = "s",
                        .pool = "p",
                        .schema = {}};
  ASSERT_TRUE(host->open_stream(open, never));
  ASSERT_EQ(open.stream, stream);
  const std::uint64_t ticket = post();
  later(millisecond_ns, [&] { agent->set_stored(stream, ticket); });
  const TimeNs began = fabric->now();
  ASSERT_TRUE(host->wait(stream, ticket, Progress::stored, in(second_ns)));
  EXPECT_LT(fabric->now() - began, 2 * millisecond_ns);
}

// Failures fill the reply ring, and the agent takes nothing more until they are read: waiting threads read them.
TEST_P(Waits, TakeInRepliesThatHoldUpTheAgent) {
  refuses = true;
  std::uint64_t last = 0;
  for (int i = 0; i < 5000; ++i) {
    auto ticket = host->post(EntryKind::step_end, {}, in(second_ns));
    ASSERT_TRUE(ticket) << i << ": " << ticket.error().message;
    last = *ticket;
  }
  EXPECT_EQ(host->wait(stream, last, Progress::pulled, in(second_ns)).error().code, Error::no_memory);
  EXPECT_EQ(why, "");
}

// A full ring has room for one wake request; threads that found no room ask again then.
TEST_P(Waits, WithoutRoomToAskAreWokenWhenThereIs) {
  const std::uint64_t ticket = post();
  agent->hold_requests(true);
  while (host->has_room(0)) post();
  for (std::uint64_t other = 2; other < 40; ++other)
    ASSERT_TRUE(host->arm(other % 4, 1000 - other, other % 8 < 4 ? Progress::stored : Progress::pulled));
  later(millisecond_ns, [&] { agent->hold_requests(false); });
  later(2 * millisecond_ns, [&] { agent->set_stored(stream, ticket); });
  const TimeNs began = fabric->now();
  ASSERT_TRUE(host->wait(stream, ticket, Progress::stored, in(second_ns)));
  EXPECT_LT(fabric->now() - began, 3 * millisecond_ns);
}

// The agent needs no message for it: the ring's tail shows it, and is checked.
TEST_P(Waits, ForRoomAreKnownToTheAgentWithTheTime) {
  holds_after_one = true;
  while (host->has_room(0)) post();
  EXPECT_EQ(agent->requests_full().times, 0u) << "nobody has looked";
  const TimeNs began = fabric->now();
  const std::vector<std::byte> payload(4 * wire::slot_payload_bytes);
  EXPECT_FALSE(host->post(EntryKind::step_end, payload, in(10 * millisecond_ns)));
  EXPECT_EQ(agent->requests_full().times, 1u);
  EXPECT_GE(agent->requests_full().since, began);
  EXPECT_LT(agent->requests_full().since, began + millisecond_ns);
  EXPECT_EQ(agent->why_requests_wait(), "the agent takes no more of its requests before earlier ones are done");
  holds_after_one = false;
  agent->hold_requests(false);
  EXPECT_TRUE(host->post(EntryKind::step_end, payload, in(second_ns)));
  EXPECT_EQ(agent->requests_full().since, never);
  EXPECT_EQ(why, "");
}

TEST_P(Waits, OfTheAgentForRepliesToBeReadAreKnownWithTheTime) {
  refuses = true;
  const TimeNs began = fabric->now();
  const auto pass = [&](TimeNs time) { fabric->run_until(in(time), [] { return false; }); };
  while (host->post(EntryKind::step_end, {}, 0) || fabric->now() < began + 10 * millisecond_ns)
    pass(10 * microsecond_ns);
  EXPECT_EQ(agent->replies_full().times, 1u);
  EXPECT_GE(agent->replies_full().since, began);
  EXPECT_LT(agent->replies_full().since, fabric->now());
  EXPECT_EQ(agent->requests_full().times, 1u);
  EXPECT_EQ(agent->why_requests_wait(), "the program does not read its replies");
  ASSERT_TRUE(host->post(EntryKind::step_end, {}, in(second_ns))) << "reads them while it waits";
  pass(millisecond_ns);
  EXPECT_EQ(agent->requests_full().since, never);
  EXPECT_EQ(why, "");
}

// Its failure is in the ring before the line says that it is over, also when the program has read no replies so far.
TEST_P(Waits, ForATicketReturnItsFailureThoughRepliesFoundNoRoom) {
  refuses = true;
  std::uint64_t newest = 0;
  while (agent->replies_full().times == 0) {
    newest = host->post(EntryKind::step_end, {}, 0).value_or(newest);
    fabric->run_until(in(10 * microsecond_ns), [] { return false; });
  }
  ASSERT_EQ(taken.back(), newest);
  for (std::uint64_t ticket : {newest, newest - 1})
    EXPECT_EQ(host->wait(stream, ticket, Progress::pulled, in(second_ns)).error().code, Error::no_memory) << ticket;
  EXPECT_EQ(why, "");
}

// Credit is not held back with replies, which a program need not read to send.
TEST_P(Waits, ForCreditEndThoughFailuresFoundNoRoom) {
  refuses = true;
  while (agent->replies_full().times == 0) {
    (void)host->post(EntryKind::step_end, {}, 0);
    fabric->run_until(in(10 * microsecond_ns), [] { return false; });
  }
  agent->set_credit(stream, 4096);
  fabric->run_until(in(100 * microsecond_ns), [] { return false; });
  ASSERT_NE(agent->replies_full().since, never);
  auto posting = host->begin();
  EXPECT_TRUE(host->post_data(posting, EntryKind::step_end, stream, {}, 4096, 0, {}, 0));
  EXPECT_EQ(why, "");
}

// Another thread never stops posting: the wake arrives in between.
TEST_P(Waits, AreWokenWhileOthersPost) {
  const std::uint64_t ticket = post();
  bool over = false;
  std::function<void()> busy = [&] {
    agent->set_credit(1, ++credit);
    if (!over) later(500, busy);
  };
  busy();
  later(millisecond_ns, [&] { agent->set_stored(stream, ticket); });
  const TimeNs began = fabric->now();
  EXPECT_TRUE(host->wait(stream, ticket, Progress::stored, in(100 * millisecond_ns)));
  over = true;
  EXPECT_LT(fabric->now() - began, 2 * millisecond_ns);
}

// No thread sleeps beyond the moment at which its word is reached, for any order of requests.
TEST_P(Waits, WithoutTimeSayThatTheAgentIsLost) {
  const std::uint64_t ticket = post();
  EXPECT_EQ(host->wait(stream, ticket, Progress::pulled, 0).error().code, Error::timeout);
  agent->close({Error::peer_lost, "the agent stops"}, true);
  fabric->run_until(in(millisecond_ns), [] { return false; });
  EXPECT_EQ(host->wait(stream, ticket, Progress::pulled, 0).error().code, Error::peer_lost);
}

TEST_P(Waits, EndInTimeWhateverElseIsAskedFor) {
  link::SeededRandom random(7);
  std::vector<std::uint64_t> tickets;
  for (int i = 0; i < 400; ++i) tickets.push_back(post());
  const TimeNs began = fabric->now();
  for (std::size_t i = 0; i < tickets.size(); ++i)
    later(static_cast<TimeNs>(i) * 100 * microsecond_ns, [this, ticket = tickets[i]] {
      agent->set_pulled(stream, ticket);
      agent->set_stored(stream, ticket);
    });
  for (int i = 0; i < 2000 && host->stored(stream) < tickets.back(); ++i) {
    const std::size_t at = random.below(tickets.size());
    const Progress progress = random.chance(0.5) ? Progress::pulled : Progress::stored;
    if (random.chance(0.3)) {
      ASSERT_TRUE(host->arm(stream, tickets[at], progress));
      ASSERT_TRUE(host->poll());
      continue;
    }
    const TimeNs wait = random.between(0, millisecond_ns),
                 comes = began + static_cast<TimeNs>(at) * 100 * microsecond_ns, until = in(wait);
    const Status status = host->wait(stream, tickets[at], progress, until);
    if (until > comes + 50 * microsecond_ns) {
      ASSERT_TRUE(status) << at << ": " << status.error().message;
      ASSERT_LT(fabric->now(), std::max(until - wait, comes) + 50 * microsecond_ns) << at;
    }
  }
  EXPECT_EQ(host->stored(stream), tickets.back());
  EXPECT_EQ(why, "");
}

}  // namespace
}  // namespace offpath::channel
