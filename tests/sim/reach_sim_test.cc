// Two agents that ask each other for things at once, over links that answer late. In virtual time, in which a wait for
// another process on an agent's loop is an assertion failure (LoopbackFabric::run_until).
#include "group/reach.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>

#include "base/log.h"
#include "channel/agent_end.h"
#include "testing/cpu_time.h"
#include "testing/link/loopback_link.h"
#include "wire/messages/replies.h"

namespace offpath::group {
namespace {

constexpr wire::ChannelLayout layout{.request_slots = 64, .reply_slots = 64, .streams_max = 4};
constexpr std::uint64_t object_bytes = 2 * Reach::copied_bytes_max;

// One agent: asks by its Reach, and serves others' requests by pulling the named memory.
class Side final : public channel::AgentEvents {
 public:
  Side(std::shared_ptr<link::LoopbackFabric> fabric, const link::LoopbackOptions& links)
      : fabric_(std::move(fabric)), links_(links) {}
  void ask_of(Side& other) {
    Reach::Surroundings all;
    all.connect = [&other](const std::string&, TimeNs) { return other.accept(); };
    all.start_job = [this](std::function<Status()> run, std::function<void(Status, TimeNs)> done) {
      jobs_.emplace_back(std::move(run), std::move(done));
    };
    all.watch = [this](int fd, std::function<void()> on_ready) -> Status {
      if (!watches) return fail(Error::unsupported, "virtual time polls");
      watched[fd] = std::move(on_ready);
      return {};
    };
    all.unwatch = [this](int fd) { watched.erase(fd); };
    reach = std::make_unique<Reach>(std::move(all), ReachOptions());
  }

  // Offers an object of these bytes; `held`: whether it still exists.
  void offer(std::byte fill) {
    auto object = std::make_shared<std::vector<std::byte>>(object_bytes, fill);
    held.push_back(object);
    Request request{.kind = wire::EntryKind::pool_get};
    request.object = *object;
    request.owner = object;
    post(std::move(request));
  }
  // The same of a few bytes, which are copied.
  void tell(std::byte fill) {
    Request request{.kind = wire::EntryKind::pool_get};
    request.body.assign(100, fill);
    post(std::move(request));
  }
  // As tables of members are posted that fit into the request.
  void beat(const std::string& address, TimeNs deadline = never) {
    post({.kind = wire::EntryKind::member_table, .deadline = deadline, .leaves_nothing = true}, address);
  }
  void post(Request request, const std::string& address = "tcp:other:1") {
    request.compose = [](const Named& named, std::vector<std::byte>& payload) {
      payload.resize(sizeof named.bytes), store(payload.data(), named.bytes);
    };
    request.answer = [this](const Result<Answer>& answer, TimeNs) {
      ++answered;
      if (!answer) failures.push_back(answer.error().message);
    };
    reach->post("other", address, std::move(request));
  }
  [[nodiscard]] std::size_t jobs_waiting() const { return jobs_.size(); }
  [[nodiscard]] std::size_t kept() const {
    return static_cast<std::size_t>(std::ranges::count_if(held, [](const auto& each) { return !each.expired(); }));
  }

  TimeNs step(TimeNs now) {
    if (!jobs_.empty() && !holds_jobs) {
      auto [run, done] = std::move(jobs_.front());
      jobs_.pop_front();
      const link::LoopbackFabric::WaitsWithinStep waits(*fabric_);  // a job has a thread of its own in life
      done(run(), now);
    }
    for (auto& [fd, on_ready] : watched) {
      pollfd look{.fd = fd, .events = POLLIN, .revents = 0};
      if (::poll(&look, 1, 0) == 1) on_ready();
    }
    bool did = reach->poll(now);
    for (auto& end : ends_) did |= end->poll(now);
    if (did) return now + microsecond_ns;
    for (auto& end : ends_) (void)end->fall_asleep(now);
    return now + 20 * microsecond_ns;
  }

  bool watches = false, holds_jobs = false;
  std::map<int, std::function<void()>> watched;  // by descriptor; Reach's end unwatches
  std::unique_ptr<Reach> reach;
  std::vector<std::weak_ptr<const void>> held;
  std::size_t answered = 0;
  std::vector<std::string> failures;
  std::vector<std::byte> seen;               // the first byte of each object that was pulled
  std::shared_ptr<link::LoopbackFate> fate;  // of the link to it

 private:
  Result<std::unique_ptr<channel::HostEnd>> accept() {
    OFP_ASSIGN(link::LoopbackPair pair, link::make_loopback(fabric_, links_, layout));
    fate = pair.fate;
    ends_.push_back(std::make_unique<channel::AgentEnd>(1, "other", std::move(pair.agent), layout, *this));
    return std::make_unique<channel::HostEnd>(std::move(pair.host), layout, link::LoopbackFabric::clock, fabric_.get());
  }
  void on_request(channel::AgentEnd& end, const channel::Entry& request, TimeNs) override {
    const auto named = load<wire::BufferRef>(request.payload.data());
    if (named.length == 0) return end.reply(wire::ReplyKind::done, request.ticket, wire::Done{0});
    std::vector<std::byte>& bytes = pulling_[request.ticket] = std::vector<std::byte>(named.length);
    end.pull(request.ticket, {{named.region, named.generation, named.offset, bytes.data(), named.length}});
  }
  void on_transfer(channel::AgentEnd& end, std::uint64_t ticket, Status status, TimeNs) override {
    const auto pulled = pulling_.extract(ticket);
    if (!status) return end.reply_failure(ticket, wire::any_reply, status.error());
    seen.push_back(pulled.mapped().back());
    end.reply(wire::ReplyKind::done, ticket, wire::Done{0});
  }
  void on_offer(channel::AgentEnd&, std::uint64_t, Result<Fd>, TimeNs) override {}
  void on_closed(channel::AgentEnd&, const Failure&, TimeNs) override {}

  std::shared_ptr<link::LoopbackFabric> fabric_;
  link::LoopbackOptions links_;
  std::deque<std::pair<std::function<Status()>, std::function<void(Status, TimeNs)>>> jobs_;
  std::vector<std::unique_ptr<channel::AgentEnd>> ends_;
  std::map<std::uint64_t, std::vector<std::byte>> pulling_;
};

class BothWays : public testing::Test {
 protected:
  BothWays() {
    one.ask_of(two);
    two.ask_of(one);
    fabric->set_stepper([this](TimeNs now) { return std::min(one.step(now), two.step(now)); });
  }
  ~BothWays() override { fabric->set_stepper({}); }
  static link::LoopbackOptions late() {
    link::LoopbackOptions options;
    options.mapped = false;
    options.withdrawal_ns = 900 * millisecond_ns;
    return options;
  }
  bool answered(std::size_t each, TimeNs within) {
    return fabric->run_until(fabric->now() + within, [&] { return one.answered == each && two.answered == each; });
  }

  std::shared_ptr<link::LoopbackFabric> fabric = std::make_shared<link::LoopbackFabric>(3);
  Side one{fabric, late()}, two{fabric, late()};
};

constexpr std::size_t objects = 100;

TEST_F(BothWays, ObjectsGoWhileNobodyConfirmsThatTheOnesBeforeAreWithdrawn) {
  for (std::size_t i = 0; i < objects; ++i) {
    one.offer(static_cast<std::byte>(i));
    two.offer(static_cast<std::byte>(i + 1));
  }
  ASSERT_TRUE(answered(objects, 500 * millisecond_ns))
      << one.answered << " and " << two.answered << ": one after another waits for the other's loop";
  EXPECT_TRUE(one.failures.empty() && two.failures.empty());
  for (std::size_t i = 0; i < objects; ++i) {
    ASSERT_EQ(two.seen[i], static_cast<std::byte>(i));
    ASSERT_EQ(one.seen[i], static_cast<std::byte>(i + 1));
  }
  EXPECT_EQ(one.kept(), objects) << "the other one's card may read them until it says that it does not";
  EXPECT_EQ(two.kept(), objects);
  fabric->run_until(fabric->now() + second_ns, [] { return false; });
  EXPECT_EQ(one.kept() + two.kept(), 0u);
  // And numbers are used again.
  one.answered = two.answered = 0;
  one.offer(std::byte{7});
  two.offer(std::byte{8});
  ASSERT_TRUE(answered(1, 500 * millisecond_ns));
  EXPECT_TRUE(one.failures.empty() && two.failures.empty());
}

TEST_F(BothWays, WhatWasNotConfirmedGoesWithTheChannel) {
  one.offer(std::byte{1});
  two.offer(std::byte{2});
  ASSERT_TRUE(answered(1, 500 * millisecond_ns));
  ASSERT_EQ(one.kept(), 1u);
  two.fate->kill_agent();
  fabric->run_until(fabric->now() + 10 * millisecond_ns, [] { return false; });
  EXPECT_EQ(one.kept(), 0u);
  EXPECT_EQ(two.kept(), 1u) << "the channel that goes the other way is there";
}

TEST_F(BothWays, OnlyAConfirmationHasReachAskWhatIsWithdrawn) {
  one.watches = two.watches = true;
  one.offer(std::byte{1});
  two.offer(std::byte{2});
  ASSERT_TRUE(answered(1, 500 * millisecond_ns));
  fabric->run_until(fabric->now() + millisecond_ns, [] { return false; });  // the range's end is announced
  const std::uint64_t asked = two.fate->withdrawal_asks();
  fabric->run_until(fabric->now() + 500 * millisecond_ns, [] { return false; });
  EXPECT_EQ(two.fate->withdrawal_asks(), asked);
  EXPECT_EQ(one.kept(), 1u);
  fabric->run_until(fabric->now() + second_ns, [] { return false; });
  EXPECT_EQ(one.kept() + two.kept(), 0u);
}

// 4 MiB that a card would pin: only a member with copied bytes has them, for a limited time.
TEST_F(BothWays, AMemberHasAnOutboxWhileItIsUsed) {
  one.watches = two.watches = true;
  const auto give_back = [this](TimeNs within) {  // as the next requests do, which members post with each beat
    fabric->run_until(fabric->now() + within, [] { return false; });
    EXPECT_TRUE(one.reach->fall_asleep(fabric->now()) && two.reach->fall_asleep(fabric->now()));
    for (Side* side : {&one, &two}) side->offer(std::byte{0});
    fabric->run_until(fabric->now() + second_ns, [] { return false; });
    EXPECT_TRUE(one.reach->fall_asleep(fabric->now()) && two.reach->fall_asleep(fabric->now()));
  };
  one.offer(std::byte{1});
  two.offer(std::byte{1});
  ASSERT_TRUE(answered(1, 500 * millisecond_ns));
  EXPECT_EQ(one.reach->counters().outboxes + two.reach->counters().outboxes, 0u);
  for (std::size_t i = 2; i < 60; ++i) {  // in the order of posting, with those that need none
    i % 3 == 0 ? one.offer(static_cast<std::byte>(i)) : one.tell(static_cast<std::byte>(i));
    two.tell(static_cast<std::byte>(i));
  }
  ASSERT_TRUE(answered(59, 500 * millisecond_ns));
  for (std::size_t i = 1; i < 60; ++i) EXPECT_EQ(one.seen[i - 1], static_cast<std::byte>(i)) << "told by two";
  EXPECT_EQ(one.reach->counters().outboxes, 1u);
  EXPECT_EQ(two.reach->counters().outboxes, 1u);
  const TimeNs idle = ReachOptions().outbox_idle_ns;
  fabric->run_until(fabric->now() + idle / 2, [] { return false; });
  one.tell(std::byte{70});
  give_back(idle * 3 / 4);
  EXPECT_EQ(one.reach->counters().outboxes, 1u) << "used meanwhile";
  EXPECT_EQ(two.reach->counters().outboxes, 0u);
  give_back(idle);
  EXPECT_EQ(one.reach->counters().outboxes, 0u);
  one.tell(std::byte{71});
  two.tell(std::byte{72});
  ASSERT_TRUE(fabric->run_until(fabric->now() + second_ns, [&] { return one.answered + two.answered == 63 + 62; }));
  EXPECT_EQ(two.seen.back(), std::byte{71});
  EXPECT_EQ(one.seen.back(), std::byte{72});
  EXPECT_TRUE(one.failures.empty() && two.failures.empty());
  EXPECT_EQ(one.reach->counters().connects + two.reach->counters().connects, 2u) << "the channels stayed";
  EXPECT_EQ(one.reach->counters().channels + two.reach->counters().channels, 2u);
}

// While a group forms, every member tells most others something.
TEST_F(BothWays, AChannelOfTablesAloneEndsWhenItIsIdle) {
  one.watches = two.watches = true;
  const auto look_after = [this](TimeNs time) {  // the next table, for another member
    fabric->run_until(fabric->now() + time, [] { return false; });
    for (Side* side : {&one, &two}) side->beat("tcp:third:1");
    fabric->run_until(fabric->now() + 10 * millisecond_ns, [] { return false; });
  };
  for (Side* side : {&one, &two}) side->beat("tcp:other:1");
  two.tell(std::byte{1});  // after which the member may keep something
  ASSERT_TRUE(fabric->run_until(fabric->now() + second_ns, [&] { return one.answered == 1 && two.answered == 2; }));
  const TimeNs idle = ReachOptions().channel_idle_ns;
  look_after(idle / 2);
  EXPECT_EQ(one.reach->counters().channels, 2u);
  look_after(idle * 3 / 4);
  EXPECT_EQ(one.reach->counters().channels, 1u);
  EXPECT_EQ(two.reach->counters().channels, 2u);
  one.beat("tcp:other:1");
  ASSERT_TRUE(fabric->run_until(fabric->now() + second_ns, [&] { return one.answered == 4; }));
  EXPECT_EQ(one.reach->counters().connects, 3u);
  EXPECT_EQ(one.reach->counters().lost, 0u) << "nobody is suspected";
  EXPECT_TRUE(one.failures.empty() && two.failures.empty());
}

// As on a machine that is busy with the start of many agents: they never slept again.
TEST_F(BothWays, AConnectionThatComesTooLateForItsRequestKeepsNobodyAwake) {
  one.watches = one.holds_jobs = true;
  one.beat("tcp:other:1", fabric->now() + 10 * millisecond_ns);
  ASSERT_TRUE(fabric->run_until(fabric->now() + second_ns, [&] { return one.answered == 1; }));
  EXPECT_EQ(one.failures.size(), 1u);
  one.holds_jobs = false;
  ASSERT_TRUE(fabric->run_until(fabric->now() + second_ns, [&] { return one.reach->counters().channels == 1; }));
  fabric->run_until(fabric->now() + millisecond_ns, [] { return false; });
  EXPECT_TRUE(one.reach->fall_asleep(fabric->now()));
}

// A member that does not take the outbox: the requests that need it end, and those that were asked before do not.
TEST_F(BothWays, AMemberThatDoesNotTakeItsOutboxFailsTheRequestThatNeedsIt) {
  one.watches = two.watches = true;
  one.offer(std::byte{1});
  two.offer(std::byte{1});
  ASSERT_TRUE(answered(1, 500 * millisecond_ns));
  two.fate->stop_agent();
  one.offer(std::byte{2});
  one.tell(std::byte{3});
  one.offer(std::byte{4});
  fabric->run_until(fabric->now() + 2 * ReachOptions().connect_wait_ns, [&] { return one.answered == 2; });
  ASSERT_EQ(one.failures.size(), 1u);
  EXPECT_NE(one.failures[0].find("member other at tcp:other:1"), std::string::npos) << one.failures[0];
  two.fate->continue_agent();
  ASSERT_TRUE(fabric->run_until(fabric->now() + second_ns, [&] { return one.answered == 4; }));
  EXPECT_EQ(two.seen.back(), std::byte{4});
  EXPECT_EQ(one.failures.size(), 1u);
  one.tell(std::byte{5});
  ASSERT_TRUE(fabric->run_until(fabric->now() + second_ns, [&] { return one.answered == 5; }));
  EXPECT_EQ(two.seen.back(), std::byte{5}) << one.failures.back();
  EXPECT_EQ(one.reach->counters().lost, 0u);
}

TEST_F(BothWays, AMemberMayBeDroppedWhileAJobMakesItsOutbox) {
  one.watches = two.watches = true;
  one.offer(std::byte{1});
  two.offer(std::byte{1});
  ASSERT_TRUE(answered(1, 500 * millisecond_ns));
  one.tell(std::byte{2});
  ASSERT_TRUE(fabric->run_until(fabric->now() + second_ns, [&] { return one.jobs_waiting() == 1; }));
  EXPECT_EQ(one.reach->counters().channels, 1u);
  one.reach->drop("tcp:other:1", {Error::peer_lost, "it is dead"});
  EXPECT_EQ(one.reach->counters().channels, 0u);
  ASSERT_TRUE(fabric->run_until(fabric->now() + second_ns, [&] { return one.answered == 2; }));
  ASSERT_EQ(one.failures.size(), 1u);
  EXPECT_NE(one.failures[0].find("it is dead"), std::string::npos) << one.failures[0];
  one.tell(std::byte{3});  // by a new channel
  ASSERT_TRUE(fabric->run_until(fabric->now() + second_ns, [&] { return one.answered == 3; }));
  EXPECT_EQ(two.seen.back(), std::byte{3});
  EXPECT_EQ(one.reach->counters().outboxes, 1u);
  EXPECT_EQ(one.reach->counters().connects, 2u);
}

// An unreachable member: requests for it end at their deadlines, and rounds take as long with many of them as with a
// few.
TEST(ReachQueue, WhatWaitsForAMemberIsBoundedAndSlowsNobodyDown) {
  Reach::Surroundings all;
  all.connect = [](const std::string&, TimeNs) -> Result<std::unique_ptr<channel::HostEnd>> {
    return fail(Error::peer_lost, "it is away");
  };
  all.start_job = [](const std::function<Status()>&, const std::function<void(Status, TimeNs)>&) {};  // never over
  all.watch = [](int, const std::function<void()>&) -> Status { return {}; };
  all.unwatch = [](int) {};
  ReachOptions options;
  options.queued_max = 50'000;
  Reach reach(std::move(all), options);
  std::vector<std::string> failures;
  std::size_t posted = 0;
  const auto post = [&] {
    Request request{.kind = wire::EntryKind::pool_get};
    request.deadline = second_ns + static_cast<TimeNs>(posted++);
    request.answer = [&](const Result<Answer>& answer, TimeNs) { failures.push_back(answer.error().message); };
    reach.post("b", "tcp:b:1", std::move(request));
  };
  std::vector<TimeNs> took;
  const auto rounds_take = [&] {
    took.push_back(least_cpu_ns([&] {
      for (int i = 0; i < 100; ++i) {
        reach.poll(1);
        EXPECT_EQ(reach.next_deadline(), second_ns) << "the first one's";
      }
    }));
  };
  while (posted < 10) post();
  rounds_take();
  while (posted < options.queued_max) post();
  rounds_take();
  EXPECT_LT(took[1], 20 * took[0]) << "of 100 rounds, with 50,000 that wait and with 10";
  EXPECT_TRUE(failures.empty());
  post();
  reach.poll(1);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures.front(), "member b at tcp:b:1: 50000 requests wait for it, which is the limit");
  reach.poll(second_ns + 99);
  EXPECT_EQ(failures.size(), 101u);
  EXPECT_EQ(reach.next_deadline(), second_ns + 100);
}

// A wrong key does not mend itself: the log names the member and the reason, once for each reason.
TEST(ReachLog, AMemberThatRefusesIsNamedOnceForEachReason) {
  Failure refusal{Error::denied, "the agent at tcp:b:1 refuses: it has another key"};
  std::vector<std::string> lines;
  set_log(
      LogLevel::warning,
      [](LogLevel, std::string_view line, void* to) { static_cast<std::vector<std::string>*>(to)->emplace_back(line); },
      &lines);
  Reach::Surroundings all;
  all.connect = [&](const std::string&, TimeNs) -> Result<std::unique_ptr<channel::HostEnd>> {
    return tl::unexpected(refusal);
  };
  TimeNs now = 0;
  all.start_job = [&](const std::function<Status()>& run, const std::function<void(Status, TimeNs)>& done) {
    done(run(), now);
  };
  all.watch = [](int, const std::function<void()>&) -> Status { return {}; };
  all.unwatch = [](int) {};
  Reach reach(std::move(all), ReachOptions());
  const auto attempts = [&](int count) {
    for (int i = 0; i < count; ++i) {
      reach.poll(now);
      now += second_ns;
    }
  };
  reach.post("", "tcp:b:1", Request{.kind = wire::EntryKind::member_table});
  attempts(5);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("tcp:b:1"), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("another key"), std::string::npos) << lines[0];
  refusal = {Error::peer_lost, "no agent listens at tcp:b:1"};  // it is started again
  attempts(3);
  EXPECT_EQ(lines.size(), 1u) << "usual";
  refusal = {Error::denied, "connect: the agent's certificate is refused: it has expired"};
  attempts(3);
  EXPECT_EQ(lines.size(), 2u);
  EXPECT_NE(lines.back().find("tcp:b:1"), std::string::npos) << lines.back();
  EXPECT_EQ(reach.counters().connect_failures, 11u);
  set_log(LogLevel::warning, nullptr, nullptr);
}

}  // namespace
}  // namespace offpath::group
