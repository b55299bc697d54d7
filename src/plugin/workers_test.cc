// The state machine with processes played by the test, in virtual time.
#include "plugin/workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>

#include "base/memory_file.h"
#include "plugin/output_memory.h"

namespace offpath::plugin {
namespace {

using testing::HasSubstr;

PluginOptions some_options(const std::string& name = "sums") {
  PluginOptions options;
  options.name = name;
  options.path = "/opt/" + name + ".so";
  options.deadline_ns = second_ns;
  options.start_deadline_ns = 2 * second_ns;
  options.waiting_max = 3;
  return options;
}

// Every effect in order, and the results of calls.
class Play {
 public:
  explicit Play(std::vector<PluginOptions> plugins) : workers(std::move(plugins)) {}

  Result<CallNumber> call(const std::string& function = "sum", TimeNs deadline_ns = never,
                          const std::string& plugin = "sums") {
    Call call;
    call.plugin = plugin;
    call.function = function;
    call.deadline_ns = deadline_ns;
    auto number = workers.call(std::move(call), now, effects);
    take();
    return number;
  }
  Result<CallNumber> call_of_lane(unsigned lane, unsigned lanes) {
    Call call;
    call.plugin = "sums";
    call.function = "sum";
    call.lane = lane;
    call.lanes = lanes;
    call.report = report;
    auto number = workers.call(std::move(call), now, effects);
    take();
    return number;
  }
  void ready(WorkerNumber worker, std::vector<FunctionInfo> functions = {{"sum", ""}, {"mean", ""}}) {
    event(worker, Ready{protocol_version, "sums", std::move(functions)});
  }
  void event(WorkerNumber worker, WorkerEvent event) {
    workers.on_event(worker, std::move(event), now, effects);
    take();
  }
  void finished(WorkerNumber worker, CallNumber call, std::int32_t status = 0, const std::string& error = "") {
    event(worker, Finished{call, status, error, {}});
  }
  void exits(WorkerNumber worker, Exit exit) {
    workers.on_exit(worker, exit, now, effects);
    take();
  }
  void start_fails(WorkerNumber worker, const Failure& failure) {
    workers.on_start_failed(worker, failure, now, effects);
    take();
  }
  void refused(WorkerNumber worker, Failure failure) {
    workers.on_refused(worker, std::move(failure), now, effects);
    take();
  }
  void garbage(WorkerNumber worker, Error code = Error::protocol) {
    workers.on_garbage(worker, {code, "nonsense"}, now, effects);
    take();
  }
  void cancel(CallNumber call) {
    EXPECT_TRUE(workers.cancel(call, now, effects));
    take();
  }
  void cancel_nothing() { take(); }  // drops the effects of the test's own calls
  void wait(TimeNs duration_ns) {
    const TimeNs end = now + duration_ns;
    while (workers.next_deadline() <= end) {
      now = std::max(now, workers.next_deadline());
      workers.on_time(now, effects);
      take();
    }
    now = end;
  }
  [[nodiscard]] std::string error_of(CallNumber call) const {
    const auto found = replies.find(call);
    if (found == replies.end()) return "no reply";
    return found->second ? ""
                         : std::string(error_name(found->second.error().code)) + ": " + found->second.error().message;
  }
  [[nodiscard]] PluginCounters counters() const { return workers.status()[0].counters; }

  Workers workers;
  Effects effects;
  TimeNs now = 1000 * second_ns;
  std::vector<WorkerNumber> started, killed;
  std::vector<std::pair<WorkerNumber, CallNumber>> sent, cancelled;
  std::map<CallNumber, Outcome> replies;
  std::vector<Operation> operations;
  std::vector<TakenEffect> taken;
  std::vector<AnswerEffect> answers;
  std::shared_ptr<CallReport> report = std::make_shared<CallReport>();

 private:
  void take() {
    for (Effect& effect : effects) {
      if (auto* ask = std::get_if<AskEffect>(&effect)) operations.push_back(std::move(ask->operation));
      if (auto* read = std::get_if<TakenEffect>(&effect)) taken.push_back(*read);
      if (auto* answer = std::get_if<AnswerEffect>(&effect)) answers.push_back(std::move(*answer));
      if (auto* start = std::get_if<StartEffect>(&effect)) started.push_back(start->worker);
      if (auto* send = std::get_if<SendEffect>(&effect)) sent.emplace_back(send->worker, send->number);
      if (auto* stop = std::get_if<CancelEffect>(&effect)) cancelled.emplace_back(stop->worker, stop->number);
      if (auto* kill = std::get_if<KillEffect>(&effect)) killed.push_back(kill->worker);
      if (auto* reply = std::get_if<ReplyEffect>(&effect)) {
        const bool first = replies.emplace(reply->number, std::move(reply->outcome)).second;
        EXPECT_TRUE(first) << "a second reply to call " << reply->number;
      }
    }
    effects.clear();
  }
};

constexpr Exit segfault{true, 11}, killed_by_us{true, 9};

// A loop that is held up sends a call and reads its result within one round, whose time is that of its beginning.
TEST(Workers, ACallTakesFromItsSendingToItsResultWhateverTheRoundSays) {
  Play play({some_options()});
  const auto call = play.call_of_lane(0, 1);
  ASSERT_TRUE(call.has_value());
  play.ready(1);
  const TimeNs round = play.now;
  play.workers.on_sent(1, *call, round + 300);
  play.workers.on_sent(1, *call + 1, round + 5000);  // another call: ignored
  play.now = round + 1000;
  play.finished(1, *call);
  EXPECT_EQ(play.report->began, round + 300);
  EXPECT_EQ(play.report->ended, round + 1000);
  EXPECT_EQ(play.counters().running_ns, 700);
  EXPECT_EQ(play.counters().waiting_ns, 300);
  // Cancelled by a request of the round in which it was sent.
  const auto cancelled = play.call_of_lane(0, 1);
  ASSERT_TRUE(cancelled.has_value());
  play.workers.on_sent(1, *cancelled, play.now + 50);
  play.cancel(*cancelled);
  EXPECT_EQ(play.report->ended, play.report->began);
  EXPECT_EQ(play.counters().running_ns, 700);
}

TEST(Workers, ACallStartsAWorkerAndGetsItsOutputs) {
  Play play({some_options()});
  const auto call = play.call();
  ASSERT_TRUE(call.has_value());
  ASSERT_EQ(play.started.size(), 1u);
  EXPECT_TRUE(play.sent.empty());
  play.ready(1);
  ASSERT_EQ(play.sent, (std::vector<std::pair<WorkerNumber, CallNumber>>{{1, *call}}));
  Outputs outputs;
  outputs.push_back({"sum", true, 8, Fd()});
  play.event(1, Finished{*call, 0, "", std::move(outputs)});
  ASSERT_TRUE(play.replies.at(*call).has_value());
  EXPECT_EQ(play.replies.at(*call)->at(0).name, "sum");
  // The next call gets the same worker.
  ASSERT_TRUE(play.call("mean").has_value());
  EXPECT_EQ(play.sent.size(), 2u);
  EXPECT_EQ(play.started.size(), 1u);
}

TEST(Workers, CallsOfALaneAllGoToTheWorkerInItsPlace) {
  PluginOptions options = some_options();
  options.workers = 2;
  options.waiting_max = 8;
  Play play({options});
  const CallNumber first = *play.call_of_lane(1, 4), second = *play.call_of_lane(3, 4),
                   other = *play.call_of_lane(0, 4);
  ASSERT_EQ(play.started.size(), 2u);  // one for each place
  play.ready(play.started[1]);
  ASSERT_EQ(play.sent.size(), 1u);
  play.ready(play.started[0]);
  ASSERT_EQ(play.sent.size(), 2u);
  const WorkerNumber of_lane_1 = play.sent[0].second == first ? play.sent[0].first : play.sent[1].first;
  play.finished(of_lane_1, first);
  ASSERT_EQ(play.sent.size(), 3u);
  EXPECT_EQ(play.sent[2], std::pair(of_lane_1, second));  // 3 modulo 2
  EXPECT_EQ(play.report->worker, of_lane_1);
  // Its worker crashes: the lane waits for a new worker in its slot, even if the other worker is idle.
  for (const auto& [worker, number] : std::vector(play.sent))
    if (number == other) play.finished(worker, other);
  const CallNumber third = *play.call_of_lane(1, 4);
  play.exits(of_lane_1, segfault);
  EXPECT_NE(play.error_of(second).find("SIGSEGV"), std::string::npos);
  EXPECT_EQ(play.sent.size(), 3u);
  ASSERT_EQ(play.started.size(), 3u);
  play.ready(play.started[2]);
  EXPECT_EQ(play.sent.back(), std::pair(play.started[2], third));
  EXPECT_EQ(play.report->worker, play.started[2]);
  EXPECT_GT(play.workers.next_deadline(), play.now);  // nothing to do until then
}

TEST(Workers, ACallersOwnPlugInRunsWhereNoneIsConfiguredAndEndsWithItsLastOwner) {
  Play play({some_options()});
  auto own = std::make_shared<PluginOptions>(some_options("/srv/a/mine.so of user 1000"));
  const auto call = [&](const std::string& plugin, const std::string& refused = {}) {
    Call asked;
    asked.plugin = plugin;
    asked.function = "sum";
    asked.own = refused.empty() ? own : nullptr;
    asked.own_refused = refused;
    return play.workers.call(std::move(asked), play.now, play.effects);
  };
  EXPECT_EQ(call("mine", "it is off").error().code, Error::denied);
  EXPECT_THAT(call("mine", "it is off").error().message, HasSubstr("it is off"));
  const auto configured = call("sums");
  ASSERT_TRUE(configured);
  EXPECT_EQ(play.workers.status().size(), 1u) << "the configured one comes first";
  play.cancel_nothing();
  play.ready(play.started.front());
  play.finished(play.started.front(), *configured);  // it also owned the other one
  const auto mine = call("mine");
  ASSERT_TRUE(mine);
  ASSERT_EQ(play.workers.status().size(), 2u);
  play.call("nothing", never, "nowhere").has_value();
  ASSERT_EQ(play.started.size(), 2u);
  const WorkerNumber worker = play.started.back();
  EXPECT_TRUE(play.workers.options(1).own);
  const auto end_unused = [&] {
    play.workers.end_unused(play.effects);
    play.cancel_nothing();
  };
  own.reset();
  end_unused();
  EXPECT_TRUE(play.killed.empty()) << "a call is waiting for it";
  play.ready(worker);
  play.finished(worker, *mine);
  EXPECT_EQ(play.error_of(*mine), "");
  end_unused();
  ASSERT_EQ(play.killed.size(), 1u);
  EXPECT_EQ(play.killed.front(), worker);
  play.exits(worker, {true, 9});
  end_unused();
  EXPECT_EQ(play.workers.status().size(), 1u);
  EXPECT_EQ(play.killed.size(), 1u);
}

TEST(Workers, AnOutputInRoomThereIsNotEndsItsWorker) {
  Play play({some_options()});
  const CallNumber call = *play.call();
  play.ready(1);
  Outputs outputs;
  outputs.push_back({"sum", false, 8, Fd(), true});
  play.event(1, Finished{call, 0, "", std::move(outputs)});
  EXPECT_NE(play.error_of(call).find("in a room that does not exist"), std::string::npos) << play.error_of(call);
  EXPECT_EQ(play.killed, std::vector<WorkerNumber>{1});
}

TEST(Workers, WhatAFunctionSendsAndReceivesIsAskedForItsSession) {
  Play play({some_options()});
  Call call;
  call.plugin = "sums";
  call.function = "sum";
  call.session = 77;
  const auto number = play.workers.call(std::move(call), play.now, play.effects);
  ASSERT_TRUE(number);
  play.cancel_nothing();
  const WorkerNumber worker = play.started.at(0);
  play.ready(worker);
  SendNotice notice{*number, 1, 3, 4, 5, true, std::vector<std::byte>(5)};
  play.event(worker, Sending{notice, {}});
  play.event(worker, ReceiveNotice{*number, 2, 6, 7, 8});
  play.event(worker, TakenNotice{*number, 2});
  ASSERT_EQ(play.operations.size(), 2u);
  EXPECT_EQ(play.operations[0].kind, Operation::Kind::send);
  EXPECT_EQ(play.operations[0].session, 77u);
  EXPECT_EQ(play.operations[0].lane, 3u);
  EXPECT_EQ(play.operations[0].enclosed.size(), 5u);
  EXPECT_EQ(play.operations[1].kind, Operation::Kind::receive);
  EXPECT_EQ(play.operations[1].worker, worker);
  EXPECT_EQ(play.operations[1].bytes, 8u);
  // A tenth of the plug-in's second per call is left to the function.
  EXPECT_EQ(play.operations[1].deadline_ns, play.now + 900 * millisecond_ns);
  ASSERT_EQ(play.taken.size(), 1u);
  EXPECT_EQ(play.taken[0].operation, 2u);
  // After the call is cancelled the worker gets the error at once, and is kept when the function returns.
  play.cancel(*number);
  play.event(worker, ReceiveNotice{*number, 3, 6, 7, 8});
  EXPECT_EQ(play.operations.size(), 2u);
  ASSERT_EQ(play.answers.size(), 1u);
  EXPECT_EQ(play.answers[0].operation, 3u);
  EXPECT_EQ(play.answers[0].why.code, Error::cancelled);
  play.finished(worker, *number, 1);
  EXPECT_TRUE(play.killed.empty());
  // Operations of an ended call, or of another call, get no answer.
  play.event(worker, ReceiveNotice{*number, 4, 6, 7, 8});
  EXPECT_EQ(play.killed, std::vector<WorkerNumber>{worker});
}

TEST(Workers, AMessageInMemoryThatItsSenderCouldChangeIsNotTaken) {
  std::vector<std::byte> packet;
  encode(SendNotice{1, 1, 0, 0, 4096, false, {}}, packet);
  const auto taken = [&](Fd memory) {
    Packet given{packet, {}};
    if (memory) given.descriptors.push_back(std::move(memory));
    return accept_packet(std::move(given));
  };
  const std::vector<std::byte> bytes(4096);
  EXPECT_TRUE(taken(*sealed_copy("test", bytes)));
  EXPECT_FALSE(taken({}));
  EXPECT_FALSE(taken(*sealed_copy("test", Bytes(bytes).first(4095))));
  auto open = memory_file("test");
  ASSERT_TRUE(open);
  ASSERT_EQ(ftruncate(open->get(), 4096), 0);
  EXPECT_FALSE(taken(std::move(*open)));
}

TEST(Workers, UnknownPluginsAndFunctionsAreNamedWithThoseThereAre) {
  Play play({some_options(), some_options("maps")});
  EXPECT_EQ(play.call("sum", never, "sumz").error().message, "there is no plug-in 'sumz'; there are sums, maps");
  const auto early = play.call("median");  // accepted before the functions are known
  play.ready(play.started[0]);
  EXPECT_EQ(play.error_of(*early),
            "not_found: plug-in 'sums', function 'median': there is no such function; there are sum, mean");
  EXPECT_EQ(play.call("median").error().message,
            "plug-in 'sums', function 'median': there is no such function; there are sum, mean");
  EXPECT_EQ(play.call("a\nb").error().code, Error::invalid);
  Play none({});
  EXPECT_EQ(none.call().error().message, "there is no plug-in 'sums'; this agent's configuration names none");
}

TEST(Workers, AtItsDeadlineACallEndsAndItsWorkerIsKilled) {
  Play play({some_options()});
  const CallNumber call = *play.call("sum", play.now + 300 * millisecond_ns);
  play.ready(1);
  play.wait(299 * millisecond_ns);
  EXPECT_EQ(play.error_of(call), "no reply");
  play.wait(millisecond_ns);
  EXPECT_EQ(
      play.error_of(call),
      "timeout: plug-in 'sums', function 'sum': the deadline of 300ms passed while it ran; its worker was killed");
  EXPECT_EQ(play.killed, std::vector<WorkerNumber>{1});
  // Its last messages are ignored, and the next call has a worker of its own.
  play.finished(1, call);
  const CallNumber next = *play.call();
  EXPECT_EQ(play.started.size(), 1u);
  play.exits(1, killed_by_us);
  ASSERT_EQ(play.started.size(), 2u);
  play.ready(2);
  play.finished(2, next);
  EXPECT_EQ(play.error_of(next), "");
  EXPECT_EQ(play.counters().timed_out, 1u);
}

TEST(Workers, ThePlugInsDeadlineIsTheLongest) {
  Play play({some_options()});
  const CallNumber call = *play.call("sum", play.now + 3600 * second_ns);
  play.ready(1);
  play.wait(second_ns);
  EXPECT_THAT(play.error_of(call), HasSubstr("the deadline of 1s passed while it ran"));
  EXPECT_EQ(play.call("sum", play.now).error().code, Error::timeout);
}

TEST(Workers, ACallMayTimeOutBeforeItRuns) {
  Play play({some_options()});
  const CallNumber runs = *play.call(), waits = *play.call("mean", play.now + millisecond_ns);
  play.ready(1);
  play.wait(2 * millisecond_ns);
  EXPECT_THAT(play.error_of(waits), HasSubstr("passed while it waited for a worker (1 of 1 are busy)"));
  EXPECT_TRUE(play.killed.empty());
  play.finished(1, runs);
  EXPECT_EQ(play.error_of(runs), "");
}

TEST(Workers, ACrashNamesTheSignalAndANewWorkerServesTheNextCall) {
  Play play({some_options()});
  const CallNumber call = *play.call(), waits = *play.call();
  play.ready(1);
  play.exits(1, segfault);
  EXPECT_EQ(play.error_of(call),
            "function_failed: plug-in 'sums', function 'sum': its worker was killed by SIGSEGV while running it");
  ASSERT_EQ(play.started.size(), 2u);
  play.ready(2);
  play.finished(2, waits);
  EXPECT_EQ(play.error_of(waits), "");
  const CallNumber third = *play.call();
  play.exits(2, {false, 3});
  EXPECT_THAT(play.error_of(third), HasSubstr("its worker exited with 3 while running it"));
}

TEST(Workers, ThoseThatKeepCrashingAreStartedLessAndLessOften) {
  Play play({some_options()});
  TimeNs previous = -1;
  for (WorkerNumber worker = 1; worker <= 14; ++worker) {
    const TimeNs asked = play.now;
    const CallNumber call = *play.call();
    while (play.started.size() < worker) play.wait(millisecond_ns / 2);
    const TimeNs waited = play.now - asked;
    play.ready(worker);
    play.exits(worker, segfault);
    ASSERT_EQ(play.started.size(), worker);  // nothing waits
    EXPECT_GE(waited, worker < 3 ? 0 : std::min(Workers::backoff_first_ns << (worker - 3), 900 * millisecond_ns))
        << worker;
    if (waited >= second_ns) break;  // longer than the call's deadline: it times out before
    EXPECT_GE(waited, previous);
    previous = waited;
    EXPECT_THAT(play.error_of(call), HasSubstr("SIGSEGV"));
    if (previous > 300 * millisecond_ns) break;
  }
  EXPECT_GT(previous, 300 * millisecond_ns);
  // After one successful call the back-off is over.
  const CallNumber good = *play.call("sum", never);
  const std::size_t before = play.started.size();
  while (play.started.size() == before && play.error_of(good) == "no reply") play.wait(millisecond_ns);
  ASSERT_GT(play.started.size(), before);
  play.ready(play.started.back());
  play.finished(play.started.back(), good);
  const CallNumber last = *play.call();
  play.exits(play.started.back(), segfault);
  EXPECT_THAT(play.error_of(last), HasSubstr("SIGSEGV"));
  const std::size_t crashed = play.started.size();
  ASSERT_TRUE(play.call().has_value());
  EXPECT_EQ(play.started.size(), crashed + 1);  // at once
}

TEST(Workers, TheQueueHasAnEnd) {
  Play play({some_options()});
  play.workers.start(play.now, play.effects);
  ASSERT_TRUE(play.call().has_value());
  play.ready(1);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(play.call().has_value());
  const auto refused = play.call();
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Error::would_block);
  EXPECT_EQ(refused.error().message,
            "plug-in 'sums', function 'sum': 3 calls are waiting, which is the limit (plugin.waiting_max)");
  play.finished(1, 1);
  EXPECT_TRUE(play.call().has_value());
  EXPECT_EQ(play.counters().refused, 1u);
}

TEST(Workers, SeveralWorkersRunSeveralCalls) {
  PluginOptions options = some_options();
  options.workers = 2;
  Play play({options});
  const CallNumber first = *play.call(), second = *play.call(), third = *play.call();
  ASSERT_EQ(play.started.size(), 2u);
  play.ready(1);
  play.ready(2);
  EXPECT_EQ(play.sent, (std::vector<std::pair<WorkerNumber, CallNumber>>{{1, first}, {2, second}}));
  play.finished(2, second);
  EXPECT_EQ(play.sent.back(), (std::pair<WorkerNumber, CallNumber>{2, third}));
  play.exits(1, segfault);  // costs only its own call
  play.finished(2, third);
  EXPECT_THAT(play.error_of(first), HasSubstr("SIGSEGV"));
  EXPECT_EQ(play.error_of(second) + play.error_of(third), "");
}

TEST(Workers, ACancelledCallIsAnsweredAtOnce) {
  Play play({some_options()});
  const CallNumber runs = *play.call(), waits = *play.call(), next = *play.call();
  play.ready(1);
  play.cancel(waits);
  play.cancel(runs);
  EXPECT_EQ(play.error_of(runs), "cancelled: plug-in 'sums', function 'sum': cancelled");
  EXPECT_EQ(play.error_of(waits), "cancelled: plug-in 'sums', function 'sum': cancelled");
  EXPECT_EQ(play.cancelled, (std::vector<std::pair<WorkerNumber, CallNumber>>{{1, runs}}));
  EXPECT_FALSE(play.workers.cancel(runs, play.now, play.effects));
  // A function that returns soon keeps its worker.
  play.wait(99 * millisecond_ns);
  play.finished(1, runs);
  EXPECT_TRUE(play.killed.empty());
  ASSERT_EQ(play.sent.back().second, next);
  // One that does not is killed.
  play.cancel(next);
  play.wait(100 * millisecond_ns);
  EXPECT_EQ(play.killed, std::vector<WorkerNumber>{1});
}

TEST(Workers, WhatFailsToStartIsNamedAndTriedAgainLater) {
  Play play({some_options()});
  const CallNumber first = *play.call(), second = *play.call();
  play.event(1, Unusable{"it has no symbol offpath_plugin"});
  const std::string said = "/opt/sums.so cannot be used: it has no symbol offpath_plugin";
  EXPECT_EQ(play.error_of(first), "function_failed: plug-in 'sums', function 'sum': " + said);
  EXPECT_EQ(play.error_of(second), play.error_of(first));
  play.exits(1, {false, 0});
  EXPECT_EQ(play.started.size(), 1u);  // nobody waits for it
  EXPECT_THAT(play.call().error().message, HasSubstr(said + "; the next attempt is in 10ms"));
  play.wait(10 * millisecond_ns);
  const CallNumber third = *play.call();
  ASSERT_EQ(play.started.size(), 2u);
  play.start_fails(2, {Error::denied, "others may write to it"});
  EXPECT_THAT(play.error_of(third), HasSubstr("others may write to it"));
}

TEST(Workers, OneThatHangsWhileItIsLoadedIsKilled) {
  Play play({some_options()});
  play.workers.start(play.now, play.effects);
  play.wait(2 * second_ns);
  EXPECT_EQ(play.killed, std::vector<WorkerNumber>{1});
  EXPECT_THAT(play.call().error().message, HasSubstr("it did not load within 2s (plugin.start_deadline)"));
  play.exits(1, killed_by_us);
  play.wait(second_ns);
  ASSERT_TRUE(play.call().has_value());
  play.exits(play.started.back(), segfault);
  EXPECT_THAT(play.error_of(1), HasSubstr("its worker was killed by SIGSEGV while loading it"));
}

TEST(Workers, GarbageKills) {
  Play play({some_options()});
  const CallNumber call = *play.call();
  play.ready(1);
  play.garbage(1);
  EXPECT_THAT(play.error_of(call), HasSubstr("its worker was killed: it sent an invalid message: nonsense"));
  EXPECT_EQ(play.killed, std::vector<WorkerNumber>{1});
  play.garbage(1);
  play.exits(1, killed_by_us);
  // Valid messages at the wrong time.
  const std::vector<std::function<WorkerEvent(CallNumber)>> wrong{
      [](CallNumber) { return Ready{protocol_version, "", {{"sum", ""}}}; },
      [](CallNumber) { return Unusable{"no"}; },
      [](CallNumber number) { return Finished{number + 1, 0, "", {}}; },
  };
  for (const auto& message : wrong) {
    const CallNumber next = *play.call();
    play.wait(200 * millisecond_ns);
    const WorkerNumber worker = play.started.back();
    play.ready(worker);
    play.event(worker, message(next));
    EXPECT_THAT(play.error_of(next), HasSubstr("an unexpected message"));
    EXPECT_EQ(play.killed.back(), worker);
    play.exits(worker, killed_by_us);
  }
}

TEST(Workers, ALogThatDoesNotEndIsGarbage) {
  Play play({some_options()});
  const CallNumber call = *play.call();
  play.ready(1);
  for (unsigned i = 0; i < lines_max; ++i) play.event(1, LogLine{LogLevel::debug, "line"});
  EXPECT_EQ(play.error_of(call), "no reply");
  play.event(1, LogLine{LogLevel::debug, "line"});
  EXPECT_THAT(play.error_of(call), HasSubstr("more log lines"));
}

TEST(Workers, OneThatClosesItsSocketIsKilledAndGetsNoCall) {
  Play play({some_options()});
  const CallNumber call = *play.call();
  play.ready(1);
  play.finished(1, call);
  play.garbage(1, Error::peer_lost);
  play.garbage(1, Error::peer_lost);
  const CallNumber next = *play.call();
  EXPECT_EQ(play.sent.size(), 1u);
  EXPECT_TRUE(play.killed.empty());  // most have ended, and their exit says more
  play.wait(Workers::exit_grace_ns);
  EXPECT_EQ(play.killed.size(), 1u);
  play.exits(1, killed_by_us);
  ASSERT_EQ(play.started.size(), 2u);
  play.ready(2);
  play.garbage(2, Error::peer_lost);
  play.exits(2, killed_by_us);  // by the kernel, before the agent did
  EXPECT_THAT(play.error_of(next), HasSubstr("its worker was killed by SIGKILL, which the agent did not send"));
}

TEST(Workers, AWorkerOfAnotherReleaseIsNamed) {
  Play play({some_options()});
  const CallNumber call = *play.call();
  play.event(1, Ready{7, "", {}});
  EXPECT_THAT(play.error_of(call),
              HasSubstr(fmt::format("offpath-worker speaks version 7, this agent {}", protocol_version)));
}

TEST(Workers, OutputsBeyondTheirLimitAreNotTaken) {
  Play play({some_options()});
  Call call;
  call.plugin = "sums";
  call.function = "sum";
  call.output_bytes_max = 100;
  const CallNumber number = *play.workers.call(std::move(call), play.now, play.effects);
  play.ready(1);
  Outputs outputs;
  outputs.push_back({"a", false, 60, Fd()});
  outputs.push_back({"b", false, 60, Fd()});
  play.event(1, Finished{number, 0, "", std::move(outputs)});
  EXPECT_EQ(play.error_of(number),
            "too_large: plug-in 'sums', function 'sum': its outputs have 120 bytes, at most 100 are allowed");
}

TEST(Workers, ACallThatCannotBeSentCostsItselfOnly) {
  Play play({some_options()});
  const CallNumber first = *play.call(), second = *play.call();
  play.ready(1);
  play.refused(1, {Error::denied, "an input whose memory is not sealed against writing"});
  play.finished(1, second);
  EXPECT_THAT(play.error_of(second), "");
  EXPECT_THAT(play.error_of(first),
              HasSubstr("denied: plug-in 'sums', function 'sum': an input whose memory is not sealed"));
}

TEST(Workers, EveryCallIsCountedOnce) {
  Play play({some_options()});
  const CallNumber a = *play.call();
  play.ready(1);
  play.wait(10 * millisecond_ns);
  play.finished(1, a);
  const CallNumber b = *play.call();
  play.finished(1, b, 5, "x is negative");
  EXPECT_EQ(play.error_of(b), "function_failed: plug-in 'sums', function 'sum': x is negative (it returned 5)");
  play.cancel(*play.call());
  play.wait(200 * millisecond_ns);
  const PluginCounters counters = play.counters();
  EXPECT_EQ(counters.calls, 3u);
  EXPECT_EQ(counters.calls, counters.done + counters.failed + counters.crashed + counters.timed_out +
                                counters.cancelled + counters.unstarted);
  EXPECT_EQ(counters.running_ns, 10 * millisecond_ns);
  EXPECT_EQ(counters.starts, 1u);
  EXPECT_EQ(counters.kills, 1u);
}

}  // namespace
}  // namespace offpath::plugin
