// Calls, and the workers that run them.
#include "plugin/workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>

#include "testing/plugin/played_workers.h"

namespace offpath::plugin {
namespace {

using testing::HasSubstr;

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

// An agent may have any of a team's lanes. Those of another team, and of another run of the same team, come and go.
TEST(Workers, LanesOfATeamHaveAWorkerEachWhicheverTheyAre) {
  PluginOptions options = some_options();
  options.workers = 4;
  options.waiting_max = 64;
  Play play({options});
  for (unsigned place = 0; place < options.workers; ++place) ASSERT_TRUE(play.call_of_lane(place, 4));
  for (const WorkerNumber worker : std::vector(play.started)) play.ready(worker);
  for (const auto& [worker, call] : std::vector(play.sent)) play.finished(worker, call);
  const auto worker_of = [&](unsigned lane, unsigned lanes, const std::shared_ptr<const std::string>& team) {
    const auto call = play.call_of_lane(lane, lanes, team);
    EXPECT_EQ(play.sent.back().second, *call);
    play.finished(play.sent.back().first, *call);
    return play.sent.back().first;
  };
  const auto lane_of = [](const char* team) { return std::make_shared<const std::string>(team); };
  std::map<unsigned, std::shared_ptr<const std::string>> one, other;
  std::map<unsigned, WorkerNumber> first;
  for (const unsigned lane : {0u, 4u, 8u}) {
    one[lane] = lane_of("one");
    first[lane] = worker_of(lane, 12, one[lane]);
  }
  EXPECT_EQ(first[0], play.started[0]);  // the usual one of lane 0
  EXPECT_EQ(std::set({first[0], first[4], first[8]}).size(), 3u);
  for (const unsigned lane : {8u, 0u, 4u}) EXPECT_EQ(worker_of(lane, 12, one[lane]), first[lane]);
  // A lane of another team gets the worker that no team has; its next ones are apart from each other.
  other[0] = lane_of("other");
  std::set others{worker_of(0, 4, other[0])};
  EXPECT_FALSE(std::set({first[0], first[4], first[8]}).contains(*others.begin()));
  for (const unsigned lane : {1u, 2u, 3u}) {
    other[lane] = lane_of("other");
    others.insert(worker_of(lane, 4, other[lane]));
  }
  EXPECT_EQ(others.size(), 4u);
  EXPECT_EQ(worker_of(3, 4, nullptr), play.started[3]);  // of no team
  // Lanes that have ended leave their places.
  one.clear();
  other.clear();
  for (const unsigned lane : {2u, 1u}) {
    one[lane] = lane_of("one");
    EXPECT_EQ(worker_of(lane, 4, one[lane]), play.started[lane]);
  }
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
