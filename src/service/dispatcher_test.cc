// Which service gets which event, with services that record their events.
#include "service/dispatcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "channel/ring.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/pool_messages.h"

static std::size_t allocations = 0;

// Counts the program's allocations, for the test of a warm dispatcher. Not inlined, or GCC reports a mismatched free.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace offpath::service {
namespace {

using wire::EntryKind;

constexpr wire::ChannelLayout layout{.request_slots = 64, .reply_slots = 64, .streams_max = 4};
constexpr uid_t owner = 1000, other_user = 2000;

// A program's memory, and the reason for which its channel was ended.
struct Program {
  std::vector<std::byte> memory = std::vector<std::byte>(layout.total_bytes());
  channel::RingWriter requests{memory.data() + wire::ChannelLayout::request_ring, layout.request_slots};
  std::uint64_t tickets = 0;
  std::vector<Failure> refusals;
  std::uint64_t polls = 0, wakes = 0;  // of the link; wakes of this program
  bool woken = false, gone = false;    // the next poll of the link says so

  [[nodiscard]] std::uint64_t word(std::uint64_t offset) const {
    std::uint64_t value = 0;
    std::memcpy(&value, memory.data() + offset, sizeof value);
    return value;
  }
  [[nodiscard]] bool agent_sleeps() const {
    return word(wire::ChannelLayout::agent_line + offsetof(wire::AgentLine, asleep)) != 0;
  }
  [[nodiscard]] std::uint64_t replies() const { return word(wire::ChannelLayout::reply_tail_line); }

  void ask(std::uint8_t kind, std::span<const std::byte> payload = {}) {
    requests.write(kind, ++tickets, payload);
    const std::uint64_t tail = requests.position();
    std::memcpy(memory.data() + wire::ChannelLayout::tail_line, &tail, sizeof tail);
  }
  void ask(EntryKind kind, std::span<const std::byte> payload = {}) { ask(static_cast<std::uint8_t>(kind), payload); }
};

class MappedLink final : public link::AgentLink {
 public:
  explicit MappedLink(Program& program) : program_(program) {}
  [[nodiscard]] const link::LinkTraits& traits() const override { return traits_; }
  Status attach_range(link::RegionId, std::uint32_t, std::uint64_t, std::uint64_t, std::uint32_t) override {
    return {};
  }
  Status detach_range(link::RegionId, std::uint32_t) override { return {}; }
  [[nodiscard]] MutableBytes mapped(link::RegionId) override { return program_.memory; }
  void read(std::uint64_t, std::span<const link::ReadPiece>) override {}
  void write(std::uint64_t, std::span<const link::WritePiece>) override {}
  void wake() override { ++program_.wakes; }
  std::size_t poll(TimeNs, std::span<link::LinkEvent> events) override {
    ++program_.polls;
    if (std::exchange(program_.woken, false)) {
      events[0] = {link::LinkEvent::Kind::woken, 0, {}, Fd()};
      return 1;
    }
    if (!std::exchange(program_.gone, false)) return 0;
    events[0] = {link::LinkEvent::Kind::closed, 0, {}, Fd()};
    return 1;
  }
  [[nodiscard]] int event_fd() const override { return -1; }
  void refuse(const Failure& why) override { program_.refusals.push_back(why); }
  void close() override {}

 private:
  Program& program_;
  link::LinkTraits traits_{.name = "test", .one_sided = true, .reason = {}};
};

// Records its events, and acts as the test sets.
class Recorder final : public Service {
 public:
  Recorder(std::string name, std::vector<std::string>& told) : name_(std::move(name)), told_(told) {}

  void on_opened(const OpenedChannel&) override { note("opened"); }
  void on_closed(ChannelNumber, bool, TimeNs, Effects&) override { note("closed"); }
  void on_request(const Request& asked, TimeNs, Effects& effects) override {
    note(row_of(asked.entry.kind)->name);
    was_member = asked.is_member;
    for (Effect& each : on_next_request) effects.emplace_back(std::move(each));
    on_next_request.clear();
    if (answers) answer(effects, asked.channel, asked.entry.ticket, 7);
  }
  void on_transfer(std::uint64_t token, Status, TimeNs, Effects&) override { note("transfer", token); }
  void on_descriptor(ChannelNumber, std::uint64_t number, Result<Fd>&, TimeNs, Effects&) override {
    note("descriptor", number);
  }
  bool is_full(ChannelNumber) const override { return full; }
  void on_job(std::uint64_t token, Status, TimeNs, Effects&) override { note("job", token); }
  void on_answer(std::uint64_t token, Result<Answer>, TimeNs, Effects&) override { note("answer", token); }
  void on_called(std::uint64_t token, Result<plugin::Outputs>, TimeNs, Effects&) override { note("called", token); }
  void on_stored(std::uint64_t token, Status, TimeNs, Effects&) override { note("stored", token); }
  TimeNs next_deadline() const override { return deadline; }
  void on_time(TimeNs, Effects&) override {
    note("time");
    deadline = never;
    if (at_time) at_time();
  }
  bool waits_for_memory() const override { return waits; }
  void on_memory_freed(TimeNs, Effects&) override { note("memory"); }

  bool answers = true, full = false, waits = false, was_member = false;
  TimeNs deadline = never;
  std::function<void()> at_time;
  Effects on_next_request;

 private:
  void note(std::string_view event) { told_.push_back(name_ + " " + std::string(event)); }
  void note(std::string_view event, std::uint64_t token) {
    told_.push_back(name_ + " " + std::string(event) + " " + std::to_string(number_of(token)));
  }
  std::string name_;
  std::vector<std::string>& told_;
};

using Told = std::vector<std::string>;

class DispatcherTest : public testing::Test {
 protected:
  explicit DispatcherTest(const channel::AgentEndOptions& channels = {})
      : dispatcher_(channels, nullptr,
                    [this](std::uint64_t token, const std::function<Status()>&) { jobs_.push_back(token); }) {
    dispatcher_.serve(ServiceId::pool, pool_);
    dispatcher_.serve(ServiceId::peers, pool_);
    dispatcher_.serve(ServiceId::query, query_);
    dispatcher_.serve(ServiceId::mover, mover_);
    dispatcher_.hold_by({&mover_});
  }
  std::uint64_t connect(Program& program, uid_t user = owner) {
    const std::uint64_t number =
        dispatcher_.add_channel(std::make_unique<MappedLink>(program), layout, {"test", user, 1}, now_);
    told_.clear();
    return number;
  }
  void poll(int rounds = 4) {
    for (int i = 0; i < rounds; ++i) dispatcher_.poll(++now_);
  }
  [[nodiscard]] std::uint64_t replies() const {
    std::uint64_t all = 0;
    for (const auto& each : dispatcher_.channels()) all += each.counters.replies;
    return all;
  }

  TimeNs now_ = 1;
  Told told_;
  std::vector<std::uint64_t> jobs_;
  Recorder pool_{"pool", told_}, query_{"query", told_}, mover_{"mover", told_};
  Dispatcher dispatcher_;
};

TEST_F(DispatcherTest, ARequestGoesToTheServiceOfItsRowAlone) {
  Program program;
  connect(program);
  program.ask(EntryKind::pool_list);
  program.ask(EntryKind::pool_query);
  program.ask(EntryKind::send);
  poll();
  EXPECT_EQ(told_, (Told{"pool pool_list", "query pool_query", "mover send"}));
  EXPECT_EQ(replies(), 3u);
}

TEST_F(DispatcherTest, ASecondServiceIsAskedFirst) {
  Program program;
  connect(program);
  query_.answers = false;
  program.ask(EntryKind::pool_cancel);
  poll();
  EXPECT_EQ(told_, (Told{"query pool_cancel", "pool pool_cancel"}));
  EXPECT_EQ(replies(), 1u);
}

TEST_F(DispatcherTest, AnUnknownKindEndsTheChannelAndNamesIt) {
  Program program;
  connect(program);
  program.ask(std::uint8_t{200});
  poll();
  EXPECT_TRUE(dispatcher_.channels().empty());
  ASSERT_EQ(program.refusals.size(), 1u);
  EXPECT_EQ(program.refusals[0].code, Error::protocol);
  EXPECT_EQ(program.refusals[0].message, "request 1 has the unknown kind 200");
  EXPECT_EQ(told_, (Told{"pool closed", "query closed", "mover closed"}));
}

TEST_F(DispatcherTest, AKindWithoutAServiceIsAnswered) {
  Program program;
  connect(program);
  program.ask(EntryKind::sift_info);
  poll();
  EXPECT_EQ(told_, Told{});
  EXPECT_EQ(replies(), 1u);
  EXPECT_EQ(dispatcher_.channels().size(), 1u);
  EXPECT_EQ(dispatcher_.failures().count(), 1u);
  ASSERT_EQ(dispatcher_.failures().newest_last().size(), 1u);
  EXPECT_EQ(dispatcher_.failures().newest_last().front().why.message, "this agent does not serve sift_info requests");
}

TEST_F(DispatcherTest, ARequestThatIsTooLongDoesNotReachItsService) {
  Program program;
  connect(program);
  program.ask(EntryKind::release, std::vector<std::byte>(257));
  program.ask(EntryKind::release, std::vector<std::byte>(256));
  poll();
  EXPECT_EQ(told_, Told{"pool release"});
  EXPECT_EQ(replies(), 2u);
}

TEST_F(DispatcherTest, RequestsOfMembersAreTakenFromTheOwnersChannelsAlone) {
  Program without_group, member, root, other;
  connect(without_group);
  without_group.ask(EntryKind::peer_put);
  poll();
  EXPECT_EQ(told_, Told{}) << "there is no group";
  dispatcher_.serve_members(owner, [](AskEffect) {});
  connect(other, other_user);
  other.ask(EntryKind::peer_put);
  poll();
  EXPECT_EQ(told_, Told{}) << "a program of another user";
  EXPECT_EQ(replies(), 2u);
  connect(member);
  member.ask(EntryKind::peer_put);
  poll();
  EXPECT_EQ(told_, Told{"pool peer_put"});
  EXPECT_TRUE(pool_.was_member);
  connect(root, 0);
  root.ask(EntryKind::peer_put);
  poll();
  EXPECT_EQ(told_, Told{"pool peer_put"});
}

TEST_F(DispatcherTest, CompletionsGoToTheServiceOfTheirToken) {
  dispatcher_.on_job(token_of(ServiceId::peers, 3), {}, now_);
  dispatcher_.on_job(token_of(ServiceId::mover, 4), {}, now_);
  dispatcher_.on_answer(token_of(ServiceId::query, 5), fail(Error::timeout, "late"), now_);
  EXPECT_EQ(told_, (Told{"pool job 3", "mover job 4", "query answer 5"}));
}

TEST_F(DispatcherTest, AServiceWithSeveralNumbersIsToldOnce) {
  Program program;
  const std::uint64_t number = connect(program);
  dispatcher_.close_channel(number, {Error::closed, "enough"});
  poll();
  EXPECT_EQ(told_, (Told{"pool closed", "query closed", "mover closed"}));
}

TEST_F(DispatcherTest, ServicesAreToldTheTimeWhenItHasCome) {
  query_.deadline = 100;
  EXPECT_EQ(dispatcher_.next_deadline(), 100);
  poll();
  EXPECT_EQ(told_, Told{});
  now_ = 99;
  poll(2);
  EXPECT_EQ(told_, Told{"query time"});
  EXPECT_EQ(dispatcher_.next_deadline(), never);
}

TEST_F(DispatcherTest, AChannelWaitsWhileAServiceIsFull) {
  Program program;
  connect(program);
  mover_.full = true;
  program.ask(EntryKind::send);
  poll();
  program.ask(EntryKind::send);
  poll();
  EXPECT_EQ(told_, Told{"mover send"});
}

TEST_F(DispatcherTest, FreedMemoryIsOfferedInOrderToServicesThatWait) {
  std::uint64_t free = 10;
  dispatcher_.watch_memory([&free] { return free; }, {&mover_, &pool_, &query_});
  mover_.waits = query_.waits = true;
  poll();
  told_.clear();
  free = 9;
  poll();
  EXPECT_EQ(told_, Told{});
  free = 12;
  poll();
  EXPECT_EQ(told_, (Told{"mover memory", "query memory"}));
}

TEST_F(DispatcherTest, EffectsAreCarriedOutInOrder) {
  Program program;
  connect(program);
  pool_.on_next_request.push_back(JobEffect{token_of(ServiceId::pool, 1), [] { return Status{}; }});
  pool_.on_next_request.push_back(StoredEffect{token_of(ServiceId::mover, 2), {}});
  pool_.on_next_request.push_back(JobEffect{token_of(ServiceId::pool, 3), [] { return Status{}; }});
  program.ask(EntryKind::pool_list);
  poll();
  EXPECT_EQ(jobs_, (std::vector{token_of(ServiceId::pool, 1), token_of(ServiceId::pool, 3)}));
  EXPECT_EQ(told_, (Told{"pool pool_list", "mover stored 2"}));
}

TEST_F(DispatcherTest, ACallWithoutPluginsFails) {
  Program program;
  connect(program);
  pool_.on_next_request.push_back(CallEffect{token_of(ServiceId::query, 9), std::make_shared<plugin::Call>()});
  program.ask(EntryKind::pool_list);
  poll();
  EXPECT_EQ(told_, (Told{"pool pool_list", "query called 9"}));
}

TEST_F(DispatcherTest, APartOfTheAgentAsksAsAProgramDoes) {
  const std::uint64_t own = dispatcher_.open_own(owner);
  EXPECT_EQ(told_, (Told{"pool opened", "query opened", "mover opened"}));
  told_.clear();
  std::uint64_t done = 0;
  dispatcher_.ask_own(own, EntryKind::pool_query, {}, {}, now_,
                      [&](Result<OwnChannels::Reply> reply) { done = reply ? reply->done : 0; });
  EXPECT_EQ(done, 7u);
  EXPECT_EQ(told_, Told{"query pool_query"});
  Failure why{Error::closed, ""};
  dispatcher_.ask_own(own, EntryKind::peer_put, {}, {}, now_, [&](Result<OwnChannels::Reply> reply) {
    if (!reply) why = reply.error();
  });
  EXPECT_EQ(why.code, Error::denied) << "it is no member";
  told_.clear();
  dispatcher_.close_own(own, now_);
  EXPECT_EQ(told_, (Told{"pool closed", "query closed", "mover closed"}));
}

// The loop as it runs: asleep, until a post wakes it or its deadline has come. Counts the posts that had to wake it.
class RhythmTest : public DispatcherTest {
 protected:
  static constexpr TimeNs step_ns = 20 * microsecond_ns;
  RhythmTest() {
    now_ = 100 * second_ns;
    mover_.answers = false;  // the replies are not read
    connect(program_);
  }
  // Asleep after this, or awake for a post that is expected soon.
  void pass(TimeNs duration) {
    for (const TimeNs end = now_ + duration; now_ < end; now_ = std::min(now_ + step_ns, end)) {
      if (asleep_ && now_ < dispatcher_.next_deadline()) continue;
      asleep_ = !dispatcher_.poll(now_) && dispatcher_.fall_asleep(now_);
      if (!asleep_) awake_ns_ += step_ns;
    }
  }
  void post() {
    const std::uint16_t stream = 3;
    program_.ask(EntryKind::send, std::as_bytes(std::span(&stream, 1)));
    if (program_.agent_sleeps()) ++wakes_;
    asleep_ = false;
  }

  Program program_;
  bool asleep_ = false;
  unsigned wakes_ = 0;
  TimeNs awake_ns_ = 0;
};

TEST_F(RhythmTest, APostInRhythmNeedsNoWake) {
  for (int i = 0; i < 10; ++i, pass(20 * millisecond_ns)) post();
  wakes_ = 0;
  const std::uint64_t spared = dispatcher_.look_outs().wakes_spared;
  for (int i = 0; i < 50; ++i, pass(20 * millisecond_ns + (i % 5 - 2) * 50 * microsecond_ns)) post();
  EXPECT_LE(wakes_, 2u) << "the jitter has to be learnt";
  EXPECT_GE(dispatcher_.look_outs().wakes_spared - spared, 48u);
  EXPECT_LE(dispatcher_.look_outs().looking_ns, 50 * millisecond_ns) << "5 % of one second";
}

TEST_F(RhythmTest, AnIrregularProgramIsNotLookedOutFor) {
  std::uint64_t random = 7;
  TimeNs passed = 0;
  for (int i = 0; i < 300; ++i) {
    post();
    random = random * 6364136223846793005ull + 1442695040888963407ull;
    const TimeNs pause = 3 * millisecond_ns + static_cast<TimeNs>((random >> 33) % 40'000'000);
    pass(pause);
    passed += pause;
  }
  EXPECT_LE(dispatcher_.look_outs().looking_ns, passed / 100);
  EXPECT_GE(wakes_, 290u);
}

TEST_F(RhythmTest, AProgramThatStopsPostingCostsOneWindow) {
  for (int i = 0; i < 20; ++i, pass(20 * millisecond_ns)) post();
  pass(second_ns);
  awake_ns_ = 0;
  pass(100 * second_ns);
  EXPECT_EQ(awake_ns_, 0);
  EXPECT_TRUE(asleep_);
  EXPECT_EQ(dispatcher_.next_deadline(), never);
}

TEST_F(RhythmTest, ManyProgramsShareOneBudget) {
  std::vector<std::unique_ptr<Program>> programs;
  for (int i = 0; i < 40; ++i) connect(*programs.emplace_back(std::make_unique<Program>()));
  const std::uint16_t stream = 1;
  const TimeNs began = now_;
  for (int i = 0; i < 100; ++i)  // one after another, so that their windows together are most of the time
    for (const auto& each : programs) {
      each->ask(EntryKind::send, std::as_bytes(std::span(&stream, 1)));
      asleep_ = false;
      pass(millisecond_ns);
    }
  EXPECT_GT(dispatcher_.look_outs().look_outs, 100u);
  EXPECT_LE(dispatcher_.look_outs().looking_ns, (now_ - began) / 20 + 10 * millisecond_ns);
}

TEST_F(RhythmTest, AChannelThatEndsIsNotLookedOutForAnyMore) {
  for (int i = 0; i < 10; ++i, pass(20 * millisecond_ns)) post();
  post();
  pass(10 * millisecond_ns);
  EXPECT_NE(dispatcher_.next_deadline(), never);
  dispatcher_.close_channel(1, {Error::closed, "enough"});
  poll();
  EXPECT_EQ(dispatcher_.next_deadline(), never);
}

// Many programs, of which one is busy. A program's descriptor is ready when `wake` is called.
class RestTest : public DispatcherTest {
 protected:
  RestTest() : DispatcherTest({.polled_channels = 1}) {
    now_ = 100 * second_ns;
    for (std::size_t i = 0; i < 20; ++i) {
      numbers_.push_back(connect(*programs_.emplace_back(std::make_unique<Program>())));
      dispatcher_.find(numbers_.back())->may_rest();
    }
    pass(second_ns);
  }
  // Rounds of a loop that is never idle.
  void pass(TimeNs duration, TimeNs step = 10 * millisecond_ns) {
    for (const TimeNs end = now_ + duration; now_ < end;) {
      busy().ask(EntryKind::pool_list);
      round(step);
      read_replies(busy());
    }
  }
  void round(TimeNs step = microsecond_ns) { dispatcher_.poll(now_ += step); }
  static void read_replies(Program& program) {
    const std::uint64_t tail = program.replies();
    std::memcpy(program.memory.data() + wire::ChannelLayout::tail_line + offsetof(wire::TailLine, reply_head), &tail,
                sizeof tail);
  }
  void wake(std::size_t place) {
    programs_[place]->woken = true;
    dispatcher_.find(numbers_[place])->end_rest();
  }
  // The programs whose links a round has polled.
  std::vector<std::size_t> polled_in(const std::function<void()>& round) {
    std::vector<std::uint64_t> before;
    for (const auto& each : programs_) before.push_back(each->polls);
    round();
    std::vector<std::size_t> polled;
    for (std::size_t i = 0; i < programs_.size(); ++i)
      if (programs_[i]->polls != before[i]) polled.push_back(i);
    return polled;
  }
  [[nodiscard]] bool is_polled(std::size_t place) {
    const auto polled = polled_in([this] { round(); });
    return std::ranges::find(polled, place) != polled.end();
  }
  static constexpr std::size_t resting = 7;  // any but the busy one
  Program& busy() { return *programs_.back(); }

  std::vector<std::unique_ptr<Program>> programs_;
  std::vector<std::uint64_t> numbers_;
};

TEST_F(RestTest, RoundsPollTheBusyChannelAlone) {
  EXPECT_EQ(polled_in([this] { pass(100 * microsecond_ns, microsecond_ns); }), std::vector{programs_.size() - 1});
  EXPECT_TRUE(programs_[resting]->agent_sleeps());
  EXPECT_FALSE(busy().agent_sleeps());
}

TEST_F(DispatcherTest, FewChannelsArePolledHoweverLongTheyAreIdle) {
  std::vector<std::unique_ptr<Program>> programs;
  const auto count_polled = [&] {
    for (const auto& each : programs) each->polls = 0;
    dispatcher_.poll(now_ += second_ns);
    return std::ranges::count_if(programs, [](const auto& each) { return each->polls > 0; });
  };
  for (int expected = 1; expected <= 16; ++expected) {
    dispatcher_.find(connect(*programs.emplace_back(std::make_unique<Program>())))->may_rest();
    poll();
    EXPECT_EQ(count_polled(), expected);
  }
  for (int i = 0; i < 5; ++i)
    dispatcher_.find(connect(*programs.emplace_back(std::make_unique<Program>())))->may_rest();
  poll();
  EXPECT_EQ(count_polled(), 16);
}

TEST_F(RestTest, AChannelWhoseDescriptorsNobodyWatchesIsPolled) {
  Program program;
  connect(program);
  pass(second_ns);
  const std::uint64_t before = program.polls;
  round();
  EXPECT_EQ(program.polls, before + 1);
}

TEST_F(RestTest, ANewChannelIsPolledBeforeItsFirstPost) {
  Program program;
  dispatcher_.find(connect(program))->may_rest();
  const auto polls = [&] {
    const std::uint64_t before = program.polls;
    round();
    return program.polls - before;
  };
  round();
  EXPECT_EQ(polls(), 1u);
  pass(90 * millisecond_ns);
  EXPECT_EQ(polls(), 1u);
  pass(100 * millisecond_ns);
  EXPECT_EQ(polls(), 0u);
}

TEST_F(RestTest, AProgramThatWakesTheAgentIsServedInTheSameRound) {
  Program& program = *programs_[resting];
  told_.clear();
  program.ask(EntryKind::pool_query);
  ASSERT_TRUE(program.agent_sleeps());
  round();
  EXPECT_EQ(told_, Told{}) << "its descriptor is not ready";
  wake(resting);
  round();
  EXPECT_EQ(told_, Told{"query pool_query"});
  EXPECT_EQ(program.replies(), 1u);
  EXPECT_FALSE(program.agent_sleeps());
  pass(50 * millisecond_ns, millisecond_ns);
  EXPECT_TRUE(is_polled(resting)) << "it may post again";
  read_replies(program);
  pass(200 * millisecond_ns);
  EXPECT_FALSE(is_polled(resting));
}

TEST_F(RestTest, AReplyToARestingChannelIsWrittenInTheRoundInWhichItIsGiven) {
  Program& program = *programs_[resting];
  query_.answers = false;
  program.ask(EntryKind::pool_query);
  wake(resting);
  pass(second_ns);
  ASSERT_FALSE(is_polled(resting));
  query_.on_next_request.push_back(ReplyEffect{numbers_[resting], 1, wire::Done{5}});
  query_.on_next_request.push_back(LineEffect{LineEffect::Word::stored, numbers_[resting], 3, 9});
  busy().ask(EntryKind::pool_query);
  round();
  EXPECT_EQ(program.replies(), 1u);
  EXPECT_EQ(program.word(layout.completion_line(3) + offsetof(wire::CompletionLine, stored)), 9u);
  EXPECT_TRUE(program.agent_sleeps()) << "its next post wakes";
  pass(second_ns);
  EXPECT_FALSE(is_polled(resting));
}

TEST_F(RestTest, ARestingChannelThatIsClosedEnds) {
  dispatcher_.close_channel(numbers_[resting], {Error::protocol, "enough"});
  told_.clear();
  round();
  EXPECT_EQ(told_, (Told{"pool closed", "query closed", "mover closed"}));
  EXPECT_EQ(programs_[resting]->refusals.size(), 1u);
  EXPECT_EQ(dispatcher_.find(numbers_[resting]), nullptr);
  pass(second_ns);
}

TEST_F(RestTest, AProgramThatIsGoneEndsItsRestingChannel) {
  programs_[resting]->gone = true;
  dispatcher_.find(numbers_[resting])->end_rest();
  round();
  round();
  EXPECT_EQ(dispatcher_.find(numbers_[resting]), nullptr);
  pass(second_ns);
}

// The two cases of base/sleep_flag.h: the last look finds the post, or the program sees the flag.
TEST_F(RestTest, APostBeforeTheLastLookKeepsTheChannelFromResting) {
  wake(resting);
  round();
  now_ += second_ns;
  told_.clear();
  ASSERT_FALSE(programs_[resting]->agent_sleeps());
  programs_[resting]->ask(EntryKind::pool_query);
  EXPECT_FALSE(dispatcher_.fall_asleep(now_));
  EXPECT_FALSE(programs_[resting]->agent_sleeps());
  round();
  EXPECT_EQ(told_, Told{"query pool_query"});
}

TEST_F(RestTest, APostInTheRoundInWhichItsChannelBeganToRestFindsTheFlag) {
  Program& program = *programs_[resting];
  wake(resting);
  round();
  ASSERT_FALSE(program.agent_sleeps());
  bool slept = false;
  query_.deadline = now_ + second_ns;
  query_.at_time = [&] {  // after the channels
    program.ask(EntryKind::pool_query);
    slept = program.agent_sleeps();
  };
  busy().ask(EntryKind::pool_list);
  told_.clear();
  round(second_ns);
  EXPECT_TRUE(slept);
  EXPECT_EQ(told_, (Told{"pool pool_list", "query time"}));
  wake(resting);
  round();
  EXPECT_EQ(told_.back(), "query pool_query");
}

TEST_F(RestTest, WhatIsExpectedSoonEndsTheRest) {
  Program& program = *programs_[resting];
  const std::uint16_t stream = 2;
  mover_.answers = false;
  for (int i = 0; i < 20; ++i) {
    program.ask(EntryKind::send, std::as_bytes(std::span(&stream, 1)));
    if (program.agent_sleeps()) wake(resting);
    pass(300 * millisecond_ns, 100 * microsecond_ns);
  }
  const std::uint64_t spared = dispatcher_.look_outs().wakes_spared;
  for (int i = 0; i < 10; ++i) {
    ASSERT_FALSE(program.agent_sleeps()) << i;
    program.ask(EntryKind::send, std::as_bytes(std::span(&stream, 1)));
    pass(200 * millisecond_ns, 100 * microsecond_ns);
    EXPECT_FALSE(is_polled(resting));
    EXPECT_LE(dispatcher_.next_deadline(), now_ + 100 * millisecond_ns);
    pass(100 * millisecond_ns - microsecond_ns, 100 * microsecond_ns);
  }
  EXPECT_EQ(dispatcher_.look_outs().wakes_spared, spared + 10);
}

TEST_F(RestTest, AllAreAsleepWhenTheLoopIs) {
  round(second_ns);
  EXPECT_TRUE(dispatcher_.fall_asleep(now_));
  for (const auto& each : programs_) EXPECT_TRUE(each->agent_sleeps());
  programs_[resting]->ask(EntryKind::pool_query);
  wake(resting);
  EXPECT_EQ(polled_in([this] { round(); }), (std::vector{resting, programs_.size() - 1}));
  EXPECT_EQ(told_.back(), "query pool_query");
}

struct Quiet final : Service {
  void on_request(const Request&, TimeNs, Effects&) override {}
};

TEST(Dispatcher, ARequestFindsItsServiceWithoutAnAllocation) {
  Quiet quiet;
  Dispatcher dispatcher({}, nullptr, [](std::uint64_t, const std::function<Status()>&) {});
  dispatcher.serve(ServiceId::pool, quiet);
  dispatcher.hold_by({&quiet});
  Program program;
  const std::uint64_t number =
      dispatcher.add_channel(std::make_unique<MappedLink>(program), layout, {"test", owner, 1}, 1);
  channel::AgentEnd& end = *dispatcher.find(number);
  std::vector<std::byte> drop;  // a kind that belongs to two services
  wire::encode(wire::PoolDrop{"hash:/a", "*", "*"}, drop);
  const auto ask = [&](std::uint64_t ticket, EntryKind kind) {
    dispatcher.on_request(end, {.ticket = ticket, .kind = static_cast<std::uint8_t>(kind), .payload = drop}, 2);
  };
  // The queue of requests whose time is measured grows, and keeps its memory.
  for (std::uint64_t ticket = 1; ticket <= 5; ++ticket) ask(ticket, EntryKind::pool_get);
  const std::size_t before = allocations;
  for (const EntryKind kind : {EntryKind::pool_list, EntryKind::pool_drop, EntryKind::pool_get}) ask(6, kind);
  EXPECT_EQ(allocations, before);
}

}  // namespace
}  // namespace offpath::service
