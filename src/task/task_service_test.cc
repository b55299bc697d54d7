// The service with pulls, pushes and calls that the test answers.
#include "task/task_service.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "plugin/output_memory.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"
#include "wire/region.h"

namespace offpath::task {
namespace {

using wire::EntryKind;

constexpr service::ChannelNumber program = 1, stranger = 2;
constexpr wire::RegionId segment = wire::segment_flag | 1;

void open_channel(TaskService& service, service::ChannelNumber channel, uid_t user, std::optional<gid_t> group = {}) {
  service.on_opened({.number = channel, .client = {.program = "test", .user = user, .group = group}});
}
void send_request(TaskService& service, service::ChannelNumber channel, const channel::Entry& entry, TimeNs now,
                  service::Effects& effects) {
  static const std::string name = "test";
  service.on_request({.channel = channel, .entry = entry, .program = name}, now, effects);
}

class TaskServiceTest : public ::testing::Test {
 protected:
  TaskServiceTest() {
    open_channel(service_, program, 1000);
    open_channel(service_, stranger, 1001);
  }
  template <class Message>
  std::uint64_t post(EntryKind kind, const Message& message, service::ChannelNumber channel = program) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    send_request(service_, channel, {++ticket_, static_cast<std::uint8_t>(kind), payload}, now_, effects_);
    return ticket_;
  }
  std::uint64_t open(std::uint32_t lane = wire::task_any_lane, std::uint32_t lanes = 0) {
    post(EntryKind::task_open,
         wire::TaskOpen{lane, lanes, {.region = segment, .generation = 0, .offset = 0, .length = 64 * 64}});
    const auto done = take<service::ReplyEffect>();
    return done ? std::get<wire::Done>(done->message).value : 0;
  }
  static wire::TaskInput input(std::string_view name = "x", std::uint64_t bytes = 8, std::uint64_t version = 0) {
    return {{.region = 1, .generation = 1, .offset = 64, .length = bytes}, bytes, version, 0, 0, 0, name};
  }
  static wire::TaskOutput output(std::string_view name = "y", std::uint64_t bytes = 8) {
    return {{.region = segment, .generation = 0, .offset = 8192, .length = bytes}, bytes, 0, name};
  }
  static wire::TaskRun task(std::uint64_t session, std::vector<wire::TaskInput> inputs = {input()},
                            std::vector<wire::TaskOutput> outputs = {output()}) {
    return {session, 3, 0, "p", "f", {}, std::move(inputs), std::move(outputs), {}};
  }
  // Removes and returns the oldest effect of this kind.
  template <class Effect>
  std::optional<Effect> take() {
    const auto at = std::ranges::find_if(
        effects_, [](const service::Effect& each) { return std::holds_alternative<Effect>(each); });
    if (at == effects_.end()) return std::nullopt;
    Effect taken = std::move(std::get<Effect>(*at));
    effects_.erase(at);
    return taken;
  }
  // Answers the oldest pull, with bytes of this value.
  bool pull(std::byte value = std::byte{7}, const Status& status = {}) {
    auto pull = take<service::PullEffect>();
    if (!pull) return false;
    if (status)
      for (const link::ReadPiece& piece : pull->pieces) std::memset(piece.to, static_cast<int>(value), piece.length);
    pulled_ = pull->pieces;
    service_.on_transfer(pull->token, status, now_, effects_);
    return true;
  }
  // The line word of the newest notified task.
  std::optional<std::uint64_t> told() {
    auto push = take<service::PushEffect>();
    if (!push || push->pieces.size() != 1 || push->pieces[0].length != 8) return std::nullopt;
    const auto word = load<std::uint64_t>(push->pieces[0].from);
    service_.on_transfer(push->token, {}, now_, effects_);
    return word;
  }
  struct Called {
    std::uint64_t token;
    std::shared_ptr<plugin::Call> call;
  };
  std::optional<Called> called() {
    auto call = take<service::CallEffect>();
    if (!call) return std::nullopt;
    return Called{call->token, call->call};
  }
  static plugin::Output made(const std::string& name, const std::string& bytes) {
    auto memory = plugin::OutputMemory::make(bytes.size());
    EXPECT_TRUE(memory);
    std::memcpy(memory->data(), bytes.data(), bytes.size());
    return {name, false, bytes.size(), *memory->seal()};
  }
  void returns(const Called& call, plugin::Outputs outputs) {
    service_.on_called(call.token, std::move(outputs), now_, effects_);
  }
  std::optional<service::FailEffect> failed() { return take<service::FailEffect>(); }
  std::optional<wire::TaskDone> done() {
    auto reply = take<service::ReplyEffect>();
    if (!reply || !std::holds_alternative<wire::TaskDone>(reply->message)) return std::nullopt;
    return std::get<wire::TaskDone>(reply->message);
  }

  std::shared_ptr<service::BufferCache> cache_ = service::BufferCache::make({.huge_pages = false});
  bool room_ = true;
  TaskService service_{{.ahead_max = 2, .resident_bytes_max = 64}, cache_, [this](std::uint64_t) { return room_; }};
  service::Effects effects_;
  std::vector<link::ReadPiece> pulled_;
  TimeNs now_ = 1000;
  std::uint64_t ticket_ = 0;
};

TEST_F(TaskServiceTest, ALaneOfATeamIsFreeAgainWhenItsSessionOrItsProgramEnds) {
  const auto claim = [this](service::ChannelNumber channel) {
    const wire::BufferRef lines{.region = segment, .generation = 0, .offset = 0, .length = 64};
    post(EntryKind::task_open, wire::TaskOpen{1, 2, lines, {}, "job"}, channel);
    const auto done = take<service::ReplyEffect>();
    return done ? std::get<wire::Done>(done->message).value : 0;
  };
  open_channel(service_, 3, 1000);  // another program of the first one's user
  const std::uint64_t session = claim(program);
  EXPECT_NE(session, 0u);
  EXPECT_NE(claim(stranger), 0u);  // another user's team
  EXPECT_EQ(claim(3), 0u);
  const auto refused = failed();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->failure.code, Error::exists);
  EXPECT_NE(refused->failure.message.find("lane 1 of 2"), std::string::npos);
  post(EntryKind::task_close, wire::TaskClose{session});
  EXPECT_TRUE(take<service::ReplyEffect>());
  EXPECT_NE(claim(3), 0u);
  service_.on_closed(3, true, now_, effects_);
  EXPECT_NE(claim(program), 0u);
  EXPECT_EQ(service_.messages().counters().lanes, 2u);
}

TEST_F(TaskServiceTest, PullsRunsAndPushes) {
  const std::uint64_t session = open();
  const std::uint64_t ticket = post(EntryKind::task_run, task(session));
  now_ += 100;
  ASSERT_TRUE(pull());
  ASSERT_EQ(pulled_.size(), 1u);
  EXPECT_EQ(pulled_[0].region, 1u);
  EXPECT_EQ(pulled_[0].offset, 64u);
  EXPECT_EQ(told(), ticket);
  const auto call = called();
  ASSERT_TRUE(call);
  EXPECT_EQ(call->call->plugin, "p");
  EXPECT_EQ(call->call->function, "f");
  ASSERT_EQ(call->call->inputs.size(), 1u);
  EXPECT_EQ(call->call->inputs[0].column, "x");
  EXPECT_EQ(call->call->inputs[0].bytes, 8u);
  now_ += 1000;
  plugin::Outputs outputs;
  outputs.push_back(made("y", "12345"));
  returns(*call, std::move(outputs));
  auto push = take<service::PushEffect>();
  ASSERT_TRUE(push);
  ASSERT_EQ(push->pieces.size(), 1u);
  EXPECT_EQ(push->pieces[0].segment, segment);
  EXPECT_EQ(push->pieces[0].offset, 8192u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(push->pieces[0].from), push->pieces[0].length), "12345");
  EXPECT_FALSE(done());
  now_ += 10;
  service_.on_transfer(push->token, {}, now_, effects_);
  const auto over = done();
  ASSERT_TRUE(over);
  EXPECT_EQ(over->output_bytes, std::vector<std::uint64_t>{5});
  EXPECT_EQ(over->pulled_bytes, 8u);
  EXPECT_EQ(over->pulled_ns, 100);
  EXPECT_EQ(over->ran_ns, 1000);
  EXPECT_EQ(over->pushed_ns, 10);
  EXPECT_EQ(service_.counters().waiting + service_.counters().running, 0u);
}

TEST_F(TaskServiceTest, AFunctionTakesAsLongAsItsWorkerSaysEvenWithinOneRound) {
  const std::uint64_t session = open();
  post(EntryKind::task_run, task(session));
  ASSERT_TRUE(pull());
  (void)told();
  const auto call = called();
  ASSERT_TRUE(call);
  *call->call->report = {1, now_ + 20, now_ + 70};
  plugin::Outputs outputs;
  outputs.push_back(made("y", "12345"));
  returns(*call, std::move(outputs));
  const auto push = take<service::PushEffect>();
  ASSERT_TRUE(push);
  service_.on_transfer(push->token, {}, now_, effects_);
  const auto over = done();
  ASSERT_TRUE(over);
  EXPECT_EQ(over->queued_ns, 20);
  EXPECT_EQ(over->ran_ns, 50);
  EXPECT_EQ(over->pushed_ns, 0);
}

TEST_F(TaskServiceTest, WhatIsHereIsNotPulledAgainAndAPartAlone) {
  const std::uint64_t session = open();
  const auto run = [&](wire::TaskInput input) {
    post(EntryKind::task_run, task(session, {input}, {}));
    const bool pulled = pull(std::byte{1});
    (void)told();
    auto call = called();
    if (call) returns(*call, {});
    return std::pair(pulled, done().has_value());
  };
  const std::pair pulled{true, true}, here{false, true};
  EXPECT_EQ(run(input("x", 16, 5)), pulled);
  EXPECT_TRUE(pulled_[0].unshared);
  EXPECT_EQ(run(input("x", 16, 5)), here);
  wire::TaskInput part = input("x", 16, 6);
  part.changed_from = 5;
  part.changed_at = 8;
  part.changed_bytes = 4;
  EXPECT_EQ(run(part), pulled);
  ASSERT_EQ(pulled_.size(), 1u);
  EXPECT_EQ(pulled_[0].length, 4u);
  EXPECT_EQ(pulled_[0].offset, 64u + 8);
  EXPECT_FALSE(pulled_[0].unshared) << "a worker has it mapped";
  EXPECT_EQ(run(input("x", 16, 6)), here);
  // From an unknown version: the whole input.
  part.version = 7;
  EXPECT_EQ(run(part), pulled);
  EXPECT_EQ(pulled_[0].length, 16u);
  EXPECT_EQ(service_.counters().resident_hits, 2u);
  EXPECT_EQ(service_.counters().resident_parts, 1u);
  EXPECT_EQ(service_.counters().resident_bytes, 16u);
  // Without memory it has to be on the agent.
  wire::TaskInput named = input("x", 16, 8);
  named.source = {};
  EXPECT_EQ(run(named), std::pair(false, false));
  const auto missing = failed();
  ASSERT_TRUE(missing);
  EXPECT_EQ(missing->failure.code, Error::not_found);
  // More than a session may keep.
  EXPECT_EQ(run(input("y", 60, 1)), std::pair(false, false));
  EXPECT_EQ(failed()->failure.code, Error::too_large);
  post(EntryKind::task_close, wire::TaskClose{session});
  EXPECT_EQ(service_.counters().resident_bytes, 0u);
}

TEST_F(TaskServiceTest, APartIsNotPulledOntoWhatAnotherTaskUses) {
  const std::uint64_t session = open();
  post(EntryKind::task_run, task(session, {input("x", 16, 1)}, {}));
  ASSERT_TRUE(pull());
  (void)told();
  const auto first = called();
  wire::TaskInput part = input("x", 16, 2);
  part.changed_from = 1;
  part.changed_bytes = 8;
  post(EntryKind::task_run, task(session, {part}, {}));
  EXPECT_FALSE(pull());
  // has memory of its own
  const std::uint64_t whole = post(EntryKind::task_run, task(session, {input("x", 16, 3)}, {}));
  EXPECT_TRUE(pull());
  EXPECT_EQ(told(), whole);
  ASSERT_TRUE(first);
  returns(*first, {});
  EXPECT_TRUE(done());
}

TEST_F(TaskServiceTest, AnOutputThatStaysIsAnInputOfTheNext) {
  const std::uint64_t session = open();
  wire::TaskOutput kept = output("list", 32);
  kept.target = {};
  kept.version = 9;
  post(EntryKind::task_run, task(session, {}, {kept}));
  auto call = called();
  ASSERT_TRUE(call);
  ASSERT_EQ(call->call->rooms.size(), 1u);
  EXPECT_EQ(call->call->rooms[0].kept, 0u);
  plugin::Outputs outputs;
  outputs.push_back(made("list", "0123456789"));
  returns(*call, std::move(outputs));
  EXPECT_EQ(done()->output_bytes, std::vector<std::uint64_t>{10});
  wire::TaskInput again = input("list", 10, 9);
  again.source = {};
  post(EntryKind::task_run, task(session, {again}, {}));
  EXPECT_FALSE(pull());
  call = called();
  ASSERT_TRUE(call);
  EXPECT_EQ(call->call->inputs[0].bytes, 10u);
  EXPECT_GE(call->call->inputs[0].fd, 0);
}

TEST_F(TaskServiceTest, TasksOfALaneGoInOrderAndOthersOvertake) {
  for (const bool ordered : {true, false}) {
    const std::uint64_t session = ordered ? open(1, 4) : open();
    const std::uint64_t first = post(EntryKind::task_run, task(session, {input()}, {}));
    const std::uint64_t second = post(EntryKind::task_run, task(session, {}, {}));  // has no inputs to pull
    auto call = called();
    EXPECT_EQ(call.has_value(), !ordered) << second;
    ASSERT_TRUE(pull());
    EXPECT_EQ(told(), first);
    if (ordered) {
      call = called();
      ASSERT_TRUE(call);
      EXPECT_EQ(call->call->inputs.size(), 1u);
      EXPECT_EQ(call->call->lane, 1u);
      EXPECT_EQ(call->call->lanes, 4u);
    }
    EXPECT_TRUE(called());
    effects_.clear();
    post(EntryKind::task_close, wire::TaskClose{session});
    effects_.clear();
  }
}

TEST_F(TaskServiceTest, NoMoreThanAFewArePulledAhead) {
  const std::uint64_t session = open(0, 1);
  for (int i = 0; i < 5; ++i) post(EntryKind::task_run, task(session));
  EXPECT_TRUE(pull());
  EXPECT_TRUE(pull());
  EXPECT_FALSE(pull()) << "two are with the plug-in";
  const auto call = called();
  ASSERT_TRUE(call);
  returns(*call, {});
  EXPECT_TRUE(done());
  EXPECT_TRUE(pull());
  EXPECT_FALSE(pull());
}

TEST_F(TaskServiceTest, WhatComesAfterAFailedTaskFails) {
  const std::uint64_t session = open();
  const std::uint64_t first = post(EntryKind::task_run, task(session, {}, {}));
  wire::TaskRun second = task(session, {input()}, {});
  second.after = {first};
  const std::uint64_t second_ticket = post(EntryKind::task_run, second);
  wire::TaskRun third = task(session, {}, {});
  third.after = {second_ticket};
  const std::uint64_t third_ticket = post(EntryKind::task_run, third);
  const auto call = called();
  ASSERT_TRUE(call);
  EXPECT_FALSE(called());
  EXPECT_FALSE(pull()) << "it is begun when the other one has ended";
  service_.on_called(call->token, fail(Error::function_failed, "no particles"), now_, effects_);
  EXPECT_EQ(failed()->ticket, first);
  const auto why = failed();
  ASSERT_TRUE(why);
  EXPECT_EQ(why->ticket, second_ticket);
  EXPECT_EQ(why->failure.code, Error::cancelled);
  EXPECT_NE(why->failure.message.find("no particles"), std::string::npos) << why->failure.message;
  EXPECT_EQ(failed()->ticket, third_ticket);
  // Also a task that is submitted later; dependencies that have already succeeded do not delay it.
  second.after = {first};
  post(EntryKind::task_run, second);
  EXPECT_EQ(failed()->failure.code, Error::cancelled);
  second.after = {12345};
  post(EntryKind::task_run, second);
  EXPECT_TRUE(pull());
}

TEST_F(TaskServiceTest, WhatComesAfterAnotherBeginsWhenItHasEnded) {
  const std::uint64_t session = open(), other = open(0, 2);
  const std::uint64_t first = post(EntryKind::task_run, task(session, {}, {}));
  wire::TaskRun second = task(other, {input()}, {});
  second.after = {first};
  post(EntryKind::task_run, second);
  const auto call = called();
  ASSERT_TRUE(call);
  EXPECT_FALSE(pull());
  returns(*call, {});
  EXPECT_TRUE(done());
  EXPECT_TRUE(pull());
}

TEST_F(TaskServiceTest, CancelledInEveryState) {
  const std::uint64_t session = open();
  // Pulling: the memory stays until the pull has ended.
  const std::uint64_t pulling = post(EntryKind::task_run, task(session));
  post(EntryKind::task_cancel, wire::TaskCancel{pulling});
  EXPECT_EQ(failed()->failure.code, Error::cancelled);
  EXPECT_TRUE(pull());
  EXPECT_FALSE(called());
  // Called: the worker is notified.
  const std::uint64_t calling = post(EntryKind::task_run, task(session, {}, {}));
  const auto call = called();
  post(EntryKind::task_cancel, wire::TaskCancel{calling});
  const auto cancelled = take<service::CancelCallEffect>();
  ASSERT_TRUE(cancelled);
  EXPECT_EQ(cancelled->token, call->token);
  EXPECT_EQ(failed()->failure.code, Error::cancelled);
  returns(*call, {});  // too late
  EXPECT_TRUE(effects_.empty());
  // Pushing: it succeeds.
  const std::uint64_t pushing = post(EntryKind::task_run, task(session, {}));
  const auto second = called();
  plugin::Outputs outputs;
  outputs.push_back(made("y", "123"));
  returns(*second, std::move(outputs));
  const auto push = take<service::PushEffect>();
  ASSERT_TRUE(push);
  post(EntryKind::task_cancel, wire::TaskCancel{pushing});
  EXPECT_FALSE(failed());
  service_.on_transfer(push->token, {}, now_, effects_);
  EXPECT_TRUE(done());
  EXPECT_EQ(service_.counters().cancelled, 2u);
  // Tasks of another program cannot be cancelled.
  const std::uint64_t own = post(EntryKind::task_run, task(session, {}, {}));
  post(EntryKind::task_cancel, wire::TaskCancel{own}, stranger);
  EXPECT_FALSE(take<service::CancelCallEffect>());
  post(EntryKind::task_run, task(session), stranger);
  EXPECT_EQ(failed()->failure.code, Error::not_found);
}

TEST_F(TaskServiceTest, WhatIsBeingPushedIsThereUntilItIsPushedWhateverEnds) {
  const std::uint64_t session = open();
  post(EntryKind::task_run, task(session, {}));
  const auto call = called();
  ASSERT_TRUE(call);
  ASSERT_EQ(call->call->rooms.size(), 1u);
  ASSERT_EQ(pwrite(call->call->rooms[0].fd, "12345678", 8, 0), 8);
  plugin::Output output;
  output.name = "y";
  output.bytes = 8;
  output.in_room = true;
  plugin::Outputs outputs;
  outputs.push_back(std::move(output));
  returns(*call, std::move(outputs));
  call->call->rooms.clear();  // the worker has finished with it
  const auto push = take<service::PushEffect>();
  ASSERT_TRUE(push);
  post(EntryKind::task_close, wire::TaskClose{session});
  EXPECT_EQ(failed()->failure.code, Error::cancelled);
  EXPECT_GT(service_.counters().target_bytes, 0u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(push->pieces[0].from), 8), "12345678");
  service_.on_transfer(push->token, {}, now_, effects_);
  EXPECT_EQ(service_.counters().target_bytes, 0u);
}

TEST_F(TaskServiceTest, ItsTimeIsOver) {
  const std::uint64_t session = open();
  wire::TaskRun run = task(session);
  run.wait_ns = 500;
  post(EntryKind::task_run, run);
  EXPECT_EQ(service_.next_deadline(), now_ + 500);
  now_ += 499;
  service_.on_time(now_, effects_);
  EXPECT_FALSE(failed());
  now_ += 1;
  service_.on_time(now_, effects_);
  EXPECT_EQ(failed()->failure.code, Error::timeout);
  EXPECT_EQ(service_.next_deadline(), never);
  EXPECT_TRUE(pull()) << "into memory that is still there";
  EXPECT_FALSE(called());
}

TEST_F(TaskServiceTest, MemoryThatCannotBeReadFailsAllWhoWaitForIt) {
  const std::uint64_t session = open();
  post(EntryKind::task_run, task(session, {input("x", 8, 1)}, {}));
  post(EntryKind::task_run, task(session, {input("x", 8, 1)}, {}));
  ASSERT_TRUE(pull(std::byte{}, fail(Error::unreadable, "it is gone")));
  const auto why = failed();
  ASSERT_TRUE(why);
  EXPECT_EQ(why->failure.code, Error::unreadable);
  EXPECT_NE(why->failure.message.find("\"x\""), std::string::npos) << why->failure.message;
  EXPECT_EQ(failed()->failure.code, Error::unreadable);
  EXPECT_EQ(service_.counters().resident_bytes, 0u);
  post(EntryKind::task_run, task(session, {input("x", 8, 1)}, {}));
  EXPECT_TRUE(pull()) << "it is no version of anything";
}

TEST_F(TaskServiceTest, WhatAFunctionMakesHasToFit) {
  const std::uint64_t session = open();
  const auto made_of = [&](const std::string& name, const std::string& bytes) {
    post(EntryKind::task_run, task(session, {}));
    const auto call = called();
    plugin::Outputs outputs;
    outputs.push_back(made(name, bytes));
    returns(*call, std::move(outputs));
    return failed()->failure.code;
  };
  EXPECT_EQ(made_of("z", "1"), Error::invalid);
  EXPECT_EQ(made_of("y", "123456789"), Error::too_large);
  EXPECT_FALSE(take<service::PushEffect>());
}

TEST_F(TaskServiceTest, AProgramThatGoesCancelsItsCalls) {
  const std::uint64_t session = open();
  post(EntryKind::task_run, task(session, {}, {}));
  const auto call = called();
  post(EntryKind::task_run, task(session));
  ASSERT_TRUE(pull());
  service_.on_closed(program, true, now_, effects_);
  EXPECT_EQ(take<service::CancelCallEffect>()->token, call->token);
  effects_.clear();
  returns(*call, {});
  EXPECT_TRUE(effects_.empty());
  EXPECT_EQ(service_.counters().sessions, 0u);
  EXPECT_EQ(service_.counters().waiting + service_.counters().running, 0u);
}

TEST_F(TaskServiceTest, WaitingForInputsIsAnsweredWhenTheyArePulledOrTheTaskHasEnded) {
  const std::uint64_t session = open();
  const std::uint64_t first = post(EntryKind::task_run, task(session));
  const std::uint64_t question = post(EntryKind::task_wait, wire::TaskWait{first});
  EXPECT_FALSE(take<service::ReplyEffect>());
  ASSERT_TRUE(pull());
  const auto answer = take<service::ReplyEffect>();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->ticket, question);
  const std::uint64_t second = post(EntryKind::task_run, task(session));
  const std::uint64_t again = post(EntryKind::task_wait, wire::TaskWait{second});
  post(EntryKind::task_cancel, wire::TaskCancel{second});
  EXPECT_EQ(take<service::ReplyEffect>()->ticket, again);
}

TEST_F(TaskServiceTest, WaitsForOneTasksInputsAreBounded) {
  const std::uint64_t first = post(EntryKind::task_run, task(open()));
  for (int i = 0; i < 64; ++i) {
    post(EntryKind::task_wait, wire::TaskWait{first});
    ASSERT_FALSE(failed()) << i;
  }
  const std::uint64_t last = post(EntryKind::task_wait, wire::TaskWait{first});
  const auto refused = failed();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->ticket, last);
  EXPECT_EQ(refused->failure.code, Error::too_large);
}

TEST_F(TaskServiceTest, ALongChainOfTasksFailsWithItsFirst) {
  constexpr int many = 1000;
  const std::uint64_t session = open();
  const std::uint64_t first = post(EntryKind::task_run, task(session, {}, {}));
  for (int i = 1; i < many; ++i) {
    wire::TaskRun next = task(session, {}, {});
    next.after = {ticket_};
    post(EntryKind::task_run, next);
  }
  const auto call = called();
  ASSERT_TRUE(call);
  EXPECT_FALSE(called());
  service_.on_called(call->token, fail(Error::function_failed, "no particles"), now_, effects_);
  EXPECT_EQ(failed()->ticket, first);
  for (int i = 1; i < many; ++i) {
    const auto why = failed();
    ASSERT_TRUE(why);
    EXPECT_EQ(why->ticket, first + static_cast<std::uint64_t>(i));
    EXPECT_EQ(why->failure.message, fmt::format("p/f depends on task {}, which failed: no particles", first));
  }
  EXPECT_TRUE(effects_.empty());
  EXPECT_EQ(service_.counters().waiting + service_.counters().running, 0u);
}

TEST_F(TaskServiceTest, WithoutRoomATaskWaitsForIt) {
  const std::uint64_t session = open();
  room_ = false;
  const std::uint64_t first = post(EntryKind::task_run, task(session));
  wire::TaskRun hasty = task(session, {});
  hasty.wait_ns = 500;
  post(EntryKind::task_run, hasty);
  post(EntryKind::task_run, task(session, {}, {}));
  EXPECT_TRUE(called()) << "it needs none";
  EXPECT_TRUE(service_.waits_for_memory());
  EXPECT_EQ(service_.memory_wanted(), 16u);
  now_ += 500;
  service_.on_time(now_, effects_);
  const auto over = failed();
  ASSERT_TRUE(over);
  EXPECT_EQ(over->failure.code, Error::timeout);
  EXPECT_NE(over->failure.message.find("room for 8 bytes"), std::string::npos) << over->failure.message;
  EXPECT_FALSE(pull());
  room_ = true;
  service_.on_memory_freed(now_, effects_);
  EXPECT_FALSE(service_.waits_for_memory());
  EXPECT_TRUE(pull());
  EXPECT_EQ(told(), first);
  EXPECT_TRUE(called());
}

TEST_F(TaskServiceTest, RoomComesWholeAndToTheOldestFirst) {
  std::uint64_t free_bytes = 20;
  TaskService service({}, cache_, [&](std::uint64_t bytes) { return bytes <= free_bytes; });
  service.set_memory_max([] { return 100; });
  open_channel(service, program, 1000);
  const auto ask = [&](EntryKind kind, const auto& message) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    send_request(service, program, {++ticket_, static_cast<std::uint8_t>(kind), payload}, now_, effects_);
  };
  ask(EntryKind::task_open,
      wire::TaskOpen{wire::task_any_lane, 0, {.region = segment, .generation = 0, .offset = 0, .length = 64 * 64}});
  ask(EntryKind::task_run, task(1, {input("x", 16)}, {output("y", 24)}));
  ask(EntryKind::task_run, task(1, {input("x", 8)}, {}));
  EXPECT_FALSE(pull()) << "room for one of the first one's is not enough, and the second one comes later";
  ask(EntryKind::task_run, task(1, {input("x", 60)}, {output("y", 41)}));
  const auto never_fits = failed();
  ASSERT_TRUE(never_fits);
  EXPECT_EQ(never_fits->failure.code, Error::too_large);
  free_bytes = 8192;  // outputs take whole pages
  service.on_memory_freed(now_, effects_);
  EXPECT_EQ(
      std::ranges::count_if(
          effects_, [](const service::Effect& each) { return std::holds_alternative<service::PullEffect>(each); }),
      2);
  service.on_closed(program, true, now_, effects_);
  EXPECT_EQ(cache_->used_bytes(), 0u);
}

TEST_F(TaskServiceTest, RoomThatATaskGivesBackIsTheNextOnes) {
  const std::uint64_t session = open(), other = open();
  post(EntryKind::task_run, task(session));
  ASSERT_TRUE(pull());
  (void)told();
  const auto call = called();
  ASSERT_TRUE(call);
  room_ = false;
  post(EntryKind::task_run, task(other));
  EXPECT_FALSE(pull());
  room_ = true;
  returns(*call, {});
  EXPECT_TRUE(pull()) << "what ended gives room, and nobody else says so";
}

TEST_F(TaskServiceTest, APlugInOfTheProgramsGoesWithItsCallsAsLongAsItsSession) {
  constexpr service::ChannelNumber known = 8, unknown = 9;
  TaskService service({.user_plugins = {.permitted = true, .agent = 1000}}, cache_, [](std::uint64_t) { return true; });
  open_channel(service, known, 1000, 100);
  open_channel(service, unknown, 1000);
  std::vector<std::shared_ptr<plugin::Call>> calls;
  for (const service::ChannelNumber channel : {known, unknown}) {
    const auto ask = [&](EntryKind kind, const auto& message) {
      std::vector<std::byte> payload;
      wire::encode(message, payload);
      send_request(service, channel, {++ticket_, static_cast<std::uint8_t>(kind), payload}, now_, effects_);
    };
    ask(EntryKind::task_open,
        wire::TaskOpen{
            wire::task_any_lane, 0, {.region = segment, .generation = 0, .offset = 0, .length = 64}, {{"p", "/a.so"}}});
    wire::TaskRun run = task(std::get<wire::Done>(take<service::ReplyEffect>()->message).value, {}, {});
    run.line = 0;
    ask(EntryKind::task_run, run);
    const auto call = called();
    ASSERT_TRUE(call);
    calls.push_back(call->call);
  }
  ASSERT_TRUE(calls[0]->own);
  EXPECT_EQ(calls[0]->own->path, "/a.so");
  EXPECT_EQ(calls[0]->own->group, 100u);
  EXPECT_FALSE(calls[1]->own);
  EXPECT_NE(calls[1]->own_refused.find("Unix socket"), std::string::npos);
  const std::weak_ptr<const plugin::PluginOptions> owned = calls[0]->own;
  calls.clear();
  EXPECT_FALSE(owned.expired());
  service.on_closed(known, true, now_, effects_);
  EXPECT_TRUE(owned.expired());
}

TEST_F(TaskServiceTest, RequestsThatMakeNoSenseAreRefused) {
  const std::uint64_t session = open();
  const auto code_of = [&](const wire::TaskRun& run) {
    post(EntryKind::task_run, run);
    const auto failure = failed();
    return failure ? std::optional(failure->failure.code) : std::nullopt;
  };
  wire::TaskRun run = task(session);
  run.line = 64;
  EXPECT_EQ(code_of(run), Error::protocol);
  EXPECT_EQ(code_of(task(session, {input(), input()})), Error::exists);
  EXPECT_EQ(code_of(task(session, {}, {output(), output()})), Error::exists);
  wire::TaskOutput elsewhere = output();
  elsewhere.target.region = 1;  // a range: the agent never writes there
  EXPECT_EQ(code_of(task(session, {}, {elsewhere})), Error::denied);
  wire::TaskInput part = input("x", 8, 2);
  part.changed_at = 4;
  part.changed_bytes = 5;
  EXPECT_EQ(code_of(task(session, {part})), Error::invalid);
  EXPECT_EQ(code_of(task(session + 1)), Error::not_found);
}

// A program chooses its tickets. Otherwise the first task's end would hide the second one, which its channel's end
// would then leave behind.
TEST_F(TaskServiceTest, ATicketOfATaskThatIsUnderWayIsRefused) {
  const std::uint64_t session = open();
  wire::TaskRun asked = task(session);
  asked.wait_ns = 500;
  const std::uint64_t ticket = post(EntryKind::task_run, asked);
  ticket_ = ticket - 1;
  EXPECT_EQ(post(EntryKind::task_run, asked), ticket);
  const auto refused = failed();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->failure.code, Error::protocol);
  EXPECT_EQ(service_.counters().waiting, 1u);
  post(EntryKind::task_cancel, wire::TaskCancel{ticket});
  service_.on_closed(program, true, now_, effects_);
  now_ += 1000;
  service_.on_time(now_, effects_);
  EXPECT_EQ(service_.counters().waiting, 0u);
}

}  // namespace
}  // namespace offpath::task
