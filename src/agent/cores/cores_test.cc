// How connections are spread over cores and handed to them, and what settings a core gets.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "agent/cores/core_loads.h"
#include "agent/cores/core_processes.h"
#include "agent/cores/core_settings.h"
#include "agent/cores/hand_over.h"

namespace offpath::agent {
namespace {

TEST(CoreSpread, TheCoreWithTheFewestConnectionsGetsTheNext) {
  std::array<CoreChoice, 3> cores{{{true, 2, 9}, {true, 1, 9}, {true, 1, 7}}};
  EXPECT_EQ(least_loaded(cores), 2u) << "of two with as many the one that was given fewer";
  cores[2].connections = 3;
  EXPECT_EQ(least_loaded(cores), 1u);
  cores[1].serves = false;
  EXPECT_EQ(least_loaded(cores), 0u);
  for (CoreChoice& each : cores) each.serves = false;
  EXPECT_EQ(least_loaded(cores), std::nullopt);
}

TEST(CoreSpread, ProgramsThatComeAndGoAreSpreadEvenly) {
  std::array<CoreChoice, 4> cores;
  for (CoreChoice& each : cores) each.serves = true;
  for (int program = 0; program < 100; ++program) {  // each ends before the next one comes
    CoreChoice& chosen = cores[*least_loaded(cores)];
    ++chosen.given;
  }
  for (const CoreChoice& each : cores) EXPECT_EQ(each.given, 25u);
  for (int program = 0; program < 10; ++program) {
    CoreChoice& chosen = cores[*least_loaded(cores)];
    ++chosen.given;
    ++chosen.connections;
  }
  for (const CoreChoice& each : cores) EXPECT_LE(each.connections, 3u);
}

TEST(CoreLoads, AreSeenByTheProcessThatSpreadsConnections) {
  auto loads = CoreLoads::make();
  ASSERT_TRUE(loads);
  const pid_t core = fork();
  ASSERT_GE(core, 0);
  if (core == 0) {
    for (int i = 0; i < 3; ++i) loads->took(1);
    loads->ended(1);
    _exit(0);
  }
  waitpid(core, nullptr, 0);
  EXPECT_EQ(loads->of(1).taken, 3u);
  EXPECT_EQ(loads->of(1).open, 2u);
  EXPECT_EQ(loads->of(0).taken, 0u);
  loads->begin_anew(1);
  EXPECT_EQ(loads->of(1).open, 0u);
}

TEST(HandOver, AConnectionArrivesOnceAndAnEndedCoreTakesNone) {
  auto pair = make_hand_over();
  ASSERT_TRUE(pair);
  auto none = take_over(pair->taking.get());
  ASSERT_TRUE(none);
  EXPECT_FALSE(*none);
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const Fd program(ends[0]);
  Fd connection(ends[1]);
  const auto given = hand_over(pair->giving.get(), connection.get());
  ASSERT_TRUE(given && *given);
  connection.reset();
  const auto taken = take_over(pair->taking.get());
  ASSERT_TRUE(taken && *taken);
  EXPECT_EQ(fcntl(taken->get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  ASSERT_EQ(write(taken->get(), "x", 1), 1);
  char got = 0;
  EXPECT_EQ(read(program.get(), &got, 1), 1);
  EXPECT_FALSE(*take_over(pair->taking.get()));
  pair->giving.reset();
  EXPECT_EQ(take_over(pair->taking.get()).error().code, Error::peer_lost);
  auto other = make_hand_over();
  other->taking.reset();
  EXPECT_EQ(hand_over(other->giving.get(), program.get()).error().code, Error::peer_lost);
}

TEST(HandOver, ACoreThatTakesNothingIsFullAtSomeTime) {
  auto pair = make_hand_over();
  ASSERT_TRUE(pair);
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const Fd one(ends[0]), other(ends[1]);
  Result<bool> given = true;
  int count = 0;
  for (; given && *given && count < 100'000; ++count) given = hand_over(pair->giving.get(), one.get());
  ASSERT_TRUE(given);
  EXPECT_FALSE(*given) << "after " << count;
}

TEST(Restarts, AreMadeAtOnceThenAfterAPauseAndNotForEver) {
  Restarts restarts;
  TimeNs now = 100 * second_ns;
  EXPECT_EQ(restarts.after_end(now), now);
  for (std::size_t i = 1; i < Restarts::deaths_max; ++i) EXPECT_EQ(restarts.after_end(now), now + Restarts::pause_ns);
  EXPECT_EQ(restarts.after_end(now), std::nullopt);
  now += Restarts::counted_ns;
  EXPECT_EQ(restarts.after_end(now), now) << "that was long ago";
}

AgentSettings two_cores() {
  AgentSettings agent;
  agent.name = "node7";
  agent.cores = 2;
  agent.pins = {4, 6};
  for (const char* address : {"unix:/run/offpath/agent.sock", "tcp:127.0.0.1:7700", "tls:127.0.0.1:0"})
    agent.listen.push_back(*link::Address::parse(address));
  agent.dispatcher.mover.memory_bytes_max = 1 << 30;
  agent.dispatcher.mover.user_bytes_max = 1 << 29;
  agent.dispatcher.buffers.cached_bytes_max = 1 << 28;
  agent.spill_directory = "/var/spill";
  agent.flight.emplace();
  pool::TriggerOptions periodic;
  periodic.every_ns = second_ns;
  agent.dispatcher.computes.triggers = {periodic, {}};
  return agent;
}

TEST(CoreSettings, CoresAreMembersWithAddressesOfTheirOwnAndSharesOfTheMemory) {
  const AgentSettings agent = two_cores();
  const AgentSettings first = settings_of_core(agent, 0), second = settings_of_core(agent, 1);
  EXPECT_EQ(first.name, "node7");
  EXPECT_EQ(second.name, "node7+1");
  EXPECT_EQ(second.listen[0].text(), "unix:/run/offpath/agent+1.sock");
  EXPECT_EQ(second.listen[1].text(), "tcp:127.0.0.1:7702");
  EXPECT_EQ(second.listen[2].port, 0);
  EXPECT_EQ(first.pin, 4u);
  EXPECT_EQ(second.pin, 6u);
  for (const AgentSettings* core : {&first, &second}) {
    EXPECT_EQ(core->dispatcher.mover.memory_bytes_max, 1u << 29);
    EXPECT_EQ(core->dispatcher.mover.user_bytes_max, 1u << 28);
    EXPECT_EQ(core->dispatcher.buffers.cached_bytes_max, 1u << 27);
    EXPECT_EQ(core->dispatcher.cores, (std::vector<std::string>{"node7", "node7+1"}));
  }
  EXPECT_EQ(first.group.membership.seeds, std::vector<std::string>{"unix:/run/offpath/agent+1.sock"});
  EXPECT_EQ(second.group.membership.seeds, std::vector<std::string>{"unix:/run/offpath/agent+0.sock"});
}

TEST(CoreSettings, WhatAnAgentHasOnceBelongsToTheFirstCore) {
  const AgentSettings agent = two_cores();
  const AgentSettings first = settings_of_core(agent, 0), second = settings_of_core(agent, 1);
  EXPECT_TRUE(first.flight);
  EXPECT_FALSE(second.flight);
  EXPECT_EQ(first.spill_directory, "/var/spill") << "as with one core";
  EXPECT_EQ(second.spill_directory, "/var/spill+1");
  EXPECT_EQ(first.dispatcher.computes.triggers.size(), 2u);
  EXPECT_EQ(second.dispatcher.computes.triggers.size(), 1u) << "periodic calls are made once";
}

}  // namespace
}  // namespace offpath::agent
