// Tasks of several programs in virtual time, under seeded faults, with functions that this test plays: each joins its
// inputs, takes a while, and fails now and then.
//
// A program has arrays of which every version differs from the one before in one part. Its tasks name versions, often
// one that the agent has, or a part; come after others; are cancelled; have too little time. What must hold whatever
// happens:
//   - a task that has ended well has pushed exactly the versions that it named
//   - every other one has ended with a reason it may have had, in its time
//   - tasks of a lane ran in their order
//   - at the end, with all programs gone, the agent holds nothing
//
// Seeds: seeds.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "testing/link/fault_link.h"
#include "tests/sim/seeds.h"
#include "tests/sim/sim_agent.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"
#include "wire/messages/task_messages.h"
#include "wire/region.h"

namespace offpath::sim {
namespace {

using link::SeededRandom;

constexpr std::uint64_t array_bytes = 2048, arrays = 3, versions = 8;
constexpr TimeNs patience_ns = 5 * second_ns;

// In the place of the plug-in: calls end some time later, unless they are cancelled.
class Functions {
 public:
  explicit Functions(std::uint64_t seed) : random_(seed) {}

  agent::CallFunctions functions() {
    return {[this](plugin::Call call, TimeNs now, agent::CallFunctions::Done done) {
              return take(std::move(call), now, std::move(done));
            },
            [this](plugin::CallNumber number, TimeNs) { calls_.erase(number); }};
  }
  // The next time at which something is to be done.
  TimeNs step(TimeNs now) {
    TimeNs next = never;
    std::vector<plugin::CallNumber> due;
    for (const auto& [number, running] : calls_) {
      if (running.ends <= now)
        due.push_back(number);
      else
        next = std::min(next, running.ends);
    }
    for (const plugin::CallNumber number : due) {
      auto node = calls_.extract(number);
      if (!node) continue;
      node.mapped().done(run(node.mapped().call, now), now);
    }
    return due.empty() ? next : now;
  }
  [[nodiscard]] std::size_t running() const noexcept { return calls_.size(); }
  std::map<std::uint64_t, std::vector<std::uint64_t>> ran;  // the argument of each call, by session
  std::set<std::uint64_t> refused, failed;                  // arguments of such calls

 private:
  struct Running {
    plugin::Call call;
    TimeNs ends;
    agent::CallFunctions::Done done;
  };

  Result<plugin::CallNumber> take(plugin::Call call, TimeNs now, agent::CallFunctions::Done done) {
    if (random_.chance(0.02)) {
      refused.insert(argument_of(call));
      return fail(Error::would_block, "too many calls wait");
    }
    TimeNs ends = now + static_cast<TimeNs>(random_.below(200 * microsecond_ns));
    if (call.lanes != 0) ends = std::max(ends, std::exchange(lane_free_[call.session], ends));  // one after the other
    if (call.lanes != 0) lane_free_[call.session] = std::max(lane_free_[call.session], ends);
    calls_.emplace(next_, Running{std::move(call), ends, std::move(done)});
    return next_++;
  }

  static std::uint64_t argument_of(const plugin::Call& call) { return load<std::uint64_t>(call.arguments.data()); }

  Result<plugin::Outputs> run(const plugin::Call& call, TimeNs now) {
    ran[call.session].push_back(argument_of(call));
    if (call.deadline_ns <= now) return fail(Error::timeout, "the function's time is over");
    if (random_.chance(0.1)) {
      failed.insert(argument_of(call));
      return fail(Error::function_failed, "no luck");
    }
    std::vector<std::byte> all;
    for (const plugin::Input& input : call.inputs) {
      const std::size_t at = all.size();
      all.resize(at + input.bytes);
      if (input.bytes == 0) continue;
      EXPECT_EQ(pread(input.fd, all.data() + at, input.bytes, static_cast<off_t>(input.offset)),
                static_cast<ssize_t>(input.bytes));
    }
    plugin::Outputs outputs;
    if (call.rooms.empty()) return outputs;
    const plugin::Room& room = call.rooms.front();
    EXPECT_LE(all.size(), room.bytes);
    EXPECT_EQ(pwrite(room.fd, all.data(), all.size(), 0), static_cast<ssize_t>(all.size()));
    plugin::Output output;
    output.name = room.name;
    output.bytes = all.size();
    output.in_room = true;
    outputs.push_back(std::move(output));
    return outputs;
  }

  SeededRandom random_;
  std::map<plugin::CallNumber, Running> calls_;
  std::map<std::uint64_t, TimeNs> lane_free_;
  plugin::CallNumber next_ = 1;
};

struct Asked {
  std::uint64_t ticket = 0, number = 0;
  std::uint32_t line = 0;
  std::vector<std::byte> expected;
  std::size_t target = 0;
  bool may_be_cancelled = false;  // or a task before it may have failed
  bool may_time_out = false;
};

struct Program {
  std::unique_ptr<channel::HostEnd> end;
  std::shared_ptr<link::LoopbackFate> fate;
  std::vector<std::byte> memory;  // arrays x versions
  channel::HostEnd::RangeName range{};
  wire::RegionId lines = 0, targets = 0;
  std::uint64_t session = 0;
  bool ordered = false, faulty = false, over = false;
  std::vector<Asked> asked;
};

// How tasks ended, of those that a program lived to see.
struct Outcomes {
  std::uint64_t good = 0, function_failed = 0, refused = 0, cancelled = 0, timed_out = 0, unreadable = 0;
  std::uint64_t killed = 0;  // programs

  [[nodiscard]] std::uint64_t all() const {
    return good + function_failed + refused + cancelled + timed_out + unreadable;
  }
};

class World {
 public:
  World(std::uint64_t seed, Outcomes& outcomes)
      : outcomes_(outcomes),
        random_(seed),
        fabric_(std::make_shared<link::LoopbackFabric>(random_.next())),
        functions_(random_.next()) {
    agent::DispatcherOptions options;
    options.mover.memory_bytes_max = 64ull << 20;
    options.tasks.ahead_max = 1 + random_.below(4);
    options.channels.pull_slice_bytes = options.channels.asked_slice_bytes = random_.chance(0.5) ? 512 : 512 * 1024;
    options.channels.idle_before_sleep_ns = 20 * microsecond_ns;
    agent_ = std::make_unique<SimAgent>(fabric_, options);
    agent_->dispatcher().serve_plugins(functions_.functions());
    fabric_->set_stepper([this](TimeNs now) {
      const TimeNs calls = functions_.step(now);
      return std::min(agent_->step(now), calls);
    });
    const std::uint64_t programs = 1 + random_.below(3);
    for (std::uint64_t i = 0; i < programs; ++i) add_program(i);
  }

  void run() {
    const std::uint64_t actions = 20 + random_.below(60);
    for (std::uint64_t i = 0; i < actions && !::testing::Test::HasFailure(); ++i)
      if (Program& program = programs_[random_.below(programs_.size())]; !program.over) act(program);
    for (Program& program : programs_) {
      while (!program.over && !program.asked.empty() && !::testing::Test::HasFailure())
        settle(program, program.asked.size() - 1);
      if (program.ordered && !program.over) check_order(program);
    }
    end();
  }

 private:
  [[nodiscard]] TimeNs deadline() const { return fabric_->now() + patience_ns; }

  void add_program(std::uint64_t index) {
    link::LoopbackOptions options;
    options.mapped = random_.chance(0.5);
    options.one_sided = random_.chance(0.7);
    if (random_.chance(0.3)) options.operation = {1'000, 100'000, 0.05, 2'000'000};
    options.welcome.memory_bytes_max = 64ull << 20;
    const wire::ChannelLayout layout{.request_slots = 256, .reply_slots = 128, .streams_max = 1};
    auto pair = link::make_loopback(fabric_, options, layout);
    ASSERT_TRUE(pair) << pair.error().message;
    Program program;
    program.faulty = random_.chance(0.4);
    std::unique_ptr<link::AgentLink> agent_link = std::move(pair->agent);
    if (program.faulty) {
      link::AgentFaults faults;
      faults.read_unreadable = random_.chance(0.5) ? 0.02 : 0;
      faults.completion_delayed = faults.completion_reordered = 0.1;
      faults.wake_delayed = 0.2;
      faults.close = random_.chance(0.2) ? 0.001 : 0;
      agent_link = std::make_unique<link::FaultAgentLink>(std::move(agent_link), faults, random_.next());
    }
    program.fate = pair->fate;
    agent_->dispatcher().add_channel(std::move(agent_link), layout, {"program" + std::to_string(index), 1000, 100},
                                     fabric_->now());
    program.end =
        std::make_unique<channel::HostEnd>(std::move(pair->host), layout, link::LoopbackFabric::clock, fabric_.get());
    program.ordered = random_.chance(0.5);
    fill(program);
    programs_.push_back(std::move(program));
    open(programs_.back());
  }

  void fill(Program& program) {
    program.memory.resize(arrays * versions * array_bytes);
    for (std::uint64_t array = 0; array < arrays; ++array) {
      std::byte* const first = program.memory.data() + array * versions * array_bytes;
      for (std::uint64_t i = 0; i < array_bytes; ++i) first[i] = static_cast<std::byte>(random_.next());
      for (std::uint64_t version = 1; version < versions; ++version) {
        std::byte* const at = first + version * array_bytes;
        std::copy_n(at - array_bytes, array_bytes, at);
        for (std::uint64_t i = 0; i < changed_bytes; ++i)
          at[changed_at(version) + i] = static_cast<std::byte>(random_.next());
      }
    }
  }
  static constexpr std::uint64_t changed_bytes = 100;
  static std::uint64_t changed_at(std::uint64_t version) { return version * 200; }

  void open(Program& program) {
    auto& end = *program.end;
    auto range = end.announce(program.memory.data(), program.memory.size());
    auto lines = end.allocate(64 * wire::task_line_bytes, deadline());
    auto targets = end.allocate(64 * arrays * array_bytes, deadline());
    if (!range || !lines || !targets)
      return lose(program, !range ? range.error() : !lines ? lines.error() : targets.error());
    program.range = *range;
    program.lines = *lines;
    program.targets = *targets;
    std::vector<std::byte> payload;
    const std::uint32_t lane = program.ordered ? 1 : wire::task_any_lane;
    wire::encode(
        wire::TaskOpen{lane, 2, {.region = *lines, .generation = 0, .offset = 0, .length = 64 * wire::task_line_bytes}},
        payload);
    auto reply = end.call(wire::EntryKind::task_open, payload, deadline());
    wire::Done done{};
    if (!reply) return lose(program, reply.error());
    ASSERT_TRUE(wire::decode(reply->payload, done));
    program.session = done.value;
  }

  void lose(Program& program, const Failure& why) {
    EXPECT_TRUE(program.faulty) << why.message;
    program.over = true;
  }

  void act(Program& program) {
    switch (random_.below(8)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return submit(program);
      case 4:
        if (!program.asked.empty()) settle(program, random_.below(program.asked.size()));
        return;
      case 5:
        return cancel(program);
      case 6:
        return agent_->run_for(static_cast<TimeNs>(random_.below(500 * microsecond_ns)));
      case 7:
        if (!random_.chance(0.05)) return;
        program.fate->kill_host();
        program.over = true;
        ++outcomes_.killed;
        return;
    }
  }

  void submit(Program& program) {
    if (program.asked.size() >= 32) return settle(program, 0);
    Asked asked;
    asked.number = next_number_++;
    asked.line = static_cast<std::uint32_t>(asked.number % 64);
    asked.target = asked.number % 64 * arrays * array_bytes;
    wire::TaskRun run{};
    run.session = program.session;
    run.line = asked.line;
    run.plugin = "p";
    run.function = "join";
    std::byte argument[8];
    store(argument, asked.number);
    run.arguments = argument;
    static const char* const names[arrays] = {"x", "y", "z"};
    const std::uint64_t inputs = random_.below(arrays + 1);
    for (std::uint64_t array = 0; array < inputs; ++array) {
      const std::uint64_t version = random_.below(versions), at = (array * versions + version) * array_bytes;
      wire::TaskInput input{
          {.region = program.range.region, .generation = program.range.generation, .offset = at, .length = array_bytes},
          array_bytes,
          random_.chance(0.7) ? version + 1 : 0,
          0,
          0,
          0,
          names[array]};
      if (input.version != 0 && version != 0 && random_.chance(0.7)) {
        input.changed_from = version;
        input.changed_at = changed_at(version);
        input.changed_bytes = changed_bytes;
      }
      run.inputs.push_back(input);
      asked.expected.insert(asked.expected.end(), program.memory.data() + at, program.memory.data() + at + array_bytes);
    }
    const std::uint64_t room = std::max<std::uint64_t>(asked.expected.size(), 1);
    run.outputs.push_back(
        {{.region = program.targets, .generation = 0, .offset = asked.target, .length = room}, room, 0, "out"});
    if (random_.chance(0.2) && !program.asked.empty()) {
      run.after.push_back(program.asked[random_.below(program.asked.size())].ticket);
      asked.may_be_cancelled = true;
    }
    if (random_.chance(0.1)) {
      run.wait_ns = 1 + static_cast<std::int64_t>(random_.below(300 * microsecond_ns));
      asked.may_time_out = true;
    }
    std::vector<std::byte> payload;
    wire::encode(run, payload);
    auto ticket = program.end->ask(wire::EntryKind::task_run, payload, deadline());
    if (!ticket) return lose(program, ticket.error());
    asked.ticket = *ticket;
    program.asked.push_back(std::move(asked));
  }

  void cancel(Program& program) {
    if (program.asked.empty()) return;
    Asked& asked = program.asked[random_.below(program.asked.size())];
    asked.may_be_cancelled = true;
    std::vector<std::byte> payload;
    wire::encode(wire::TaskCancel{asked.ticket}, payload);
    if (auto posted = program.end->post(wire::EntryKind::task_cancel, payload, deadline()); !posted)
      lose(program, posted.error());
  }

  // Waits for one of them, and checks its result.
  void settle(Program& program, std::size_t place) {
    const Asked asked = program.asked[place];
    const TimeNs until = deadline();
    std::optional<channel::Reply> reply;
    while (!reply && fabric_->now() < until) {
      auto answered = program.end->wait_reply({&asked.ticket, 1}, until);
      if (!answered) return lose(program, answered.error());
      reply = program.end->take_reply(asked.ticket);
    }
    ASSERT_TRUE(reply) << "task " << asked.number << " has not ended; " << functions_.running() << " calls run";
    program.asked.erase(program.asked.begin() + static_cast<std::ptrdiff_t>(place));
    auto outcome = channel::unfailed(std::move(*reply));
    if (!outcome) return check_failure(program, asked, outcome.error());
    wire::TaskDone done{};
    ASSERT_TRUE(wire::decode(outcome->payload, done));
    ASSERT_EQ(done.output_bytes, std::vector<std::uint64_t>{asked.expected.size()});
    const std::byte* const target = program.end->segment(program.targets).data() + asked.target;
    ASSERT_TRUE(std::equal(asked.expected.begin(), asked.expected.end(), target)) << "task " << asked.number;
    ++outcomes_.good;
  }

  void check_failure(const Program& program, const Asked& asked, const Failure& why) {
    switch (why.code) {
      case Error::function_failed:
        EXPECT_TRUE(functions_.failed.contains(asked.number)) << why.message;
        ++outcomes_.function_failed;
        return;
      case Error::would_block:
        EXPECT_TRUE(functions_.refused.contains(asked.number)) << why.message;
        ++outcomes_.refused;
        return;
      case Error::cancelled:
        EXPECT_TRUE(asked.may_be_cancelled) << why.message;
        ++outcomes_.cancelled;
        return;
      case Error::timeout:
        EXPECT_TRUE(asked.may_time_out) << why.message;
        ++outcomes_.timed_out;
        return;
      case Error::unreadable:
        EXPECT_TRUE(program.faulty) << why.message;
        ++outcomes_.unreadable;
        return;
      default:
        ADD_FAILURE() << "task " << asked.number << ": " << why.message;
    }
  }

  // Each ran at most once, in the order of requests.
  void check_order(const Program& program) {
    const auto& ran = functions_.ran[program.session];
    EXPECT_EQ(std::ranges::adjacent_find(ran, std::greater_equal()), ran.end())
        << "a lane's tasks overtook each other, or one ran twice";
  }

  void end() {
    for (Program& program : programs_) program.end->close(0);
    agent_->run_for(20 * second_ns);
    const agent::Dispatcher& dispatcher = agent_->dispatcher();
    EXPECT_TRUE(dispatcher.channels().empty());
    EXPECT_EQ(functions_.running(), 0u);
    const task::TaskCounters counters = dispatcher.tasks().counters();
    EXPECT_EQ(counters.waiting, 0u);
    EXPECT_EQ(counters.running, 0u);
    EXPECT_EQ(counters.sessions, 0u);
    EXPECT_EQ(counters.resident_bytes, 0u);
    EXPECT_EQ(counters.target_bytes, 0u);
    EXPECT_EQ(dispatcher.buffers().used_bytes(), 0u);
  }

  Outcomes& outcomes_;
  SeededRandom random_;
  std::shared_ptr<link::LoopbackFabric> fabric_;
  Functions functions_;
  std::unique_ptr<SimAgent> agent_;
  std::vector<Program> programs_;
  std::uint64_t next_number_ = 1;
};

TEST(TaskSimulation, WhatIsPushedIsWhatWasNamedWhateverHappens) {
  Outcomes outcomes;
  if (!each_seed(100, [&](std::uint64_t seed) { World(seed, outcomes).run(); })) return;
  EXPECT_GT(outcomes.good, outcomes.all() / 2);
  EXPECT_GT(outcomes.function_failed, 0u);
  EXPECT_GT(outcomes.refused, 0u);
  EXPECT_GT(outcomes.cancelled, 0u);
  EXPECT_GT(outcomes.timed_out, 0u);
  EXPECT_GT(outcomes.unreadable, 0u);
  EXPECT_GT(outcomes.killed, 0u);
}

}  // namespace
}  // namespace offpath::sim
