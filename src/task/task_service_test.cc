// When tasks begin and end: order, dependencies, deadlines, and programs that cancel or leave.
#include "task/task_service.h"

#include <gtest/gtest.h>

#include <optional>

#include "testing/task/task_service_fixture.h"

namespace offpath::task {
namespace {

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
  EXPECT_EQ(code_of(task(session, {input(), input("a"), input()})), Error::exists);
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
