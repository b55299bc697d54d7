// Workers that crash, hang, send garbage or exceed a limit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "base/memory_file.h"
#include "plugin/workers.h"
#include "testing/plugin/played_workers.h"

namespace offpath::plugin {
namespace {

using testing::HasSubstr;

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

TEST(Workers, WhatFailsToStartIsNamedAndTriedAgainLater) {
  Play play({some_options()});
  const CallNumber first = *play.call(), second = *play.call();
  play.event(1, Unusable{"it has no symbol offpath_plugin"});
  const std::string said = "/opt/sums.so cannot be used: it has no symbol offpath_plugin";
  EXPECT_EQ(play.error_of(first), "function_failed: plug-in 'sums', function 'sum': " + said);
  EXPECT_EQ(play.error_of(second), play.error_of(first));
  play.exits(1, {false, 0});
  EXPECT_EQ(play.started.size(), 1u);  // without a waiting caller
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

}  // namespace
}  // namespace offpath::plugin
