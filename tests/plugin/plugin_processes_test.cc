// Real workers that run real functions, good and bad ones, on the agent's loop.
#include "agent/plugin_processes.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "plugin/output_memory.h"
#include "plugin/worker_process.h"
#include "testing/link/emulated.h"

namespace offpath::agent {
namespace {

using plugin::Call;
using plugin::Input;
using plugin::Outcome;
using plugin::PluginOptions;
using testing::HasSubstr;

#ifndef __has_feature  // Clang's; GCC defines the others
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) || \
    __has_feature(thread_sanitizer)
constexpr bool sanitized = true;  // its shadow is private memory, too
#else
constexpr bool sanitized = false;
#endif

std::string built(const std::string& file) { return std::string(std::getenv("OFFPATH_BUILD_DIR")) + "/" + file; }

PluginOptions hostile() {
  PluginOptions options;
  options.name = "hostile";
  options.path = built("tests/hostile_plugin.so");
  options.memory_bytes = sanitized ? std::uint64_t{1} << 46 : 128 << 20;
  options.deadline_ns = link::patience_ns();
  return options;
}

Fd sealed_memory(std::string_view text, int seals = F_SEAL_WRITE) {
  Fd fd(memfd_create("input", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(write(fd.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

std::string text_in(const plugin::Output& output) {
  std::string text(output.bytes, '\0');
  EXPECT_EQ(pread(output.memory.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  return text;
}

class PluginProcessesTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    // Sanitizers would turn signals into exits; workers are given these words too.
    const char* options = std::getenv("ASAN_OPTIONS");
    setenv("ASAN_OPTIONS",
           (std::string(options == nullptr ? "" : options) + ":handle_segv=0:handle_sigbus=0:handle_abort=0").c_str(),
           1);
    setenv("OFFPATH_TEST_SECRET", "of the agent", 1);
  }
  void SetUp() override {
    OFP_NEEDS_KERNEL("what starting a worker takes: capset, pidfds, sealed memory in packets");
    auto made = loop::Loop::make({});
    ASSERT_TRUE(made.has_value());
    loop_ = std::move(*made);
  }
  void TearDown() override {
    if (processes_) loop_->remove(*processes_);
  }

  PluginProcesses& with(PluginOptions options) {
    processes_ =
        std::make_unique<PluginProcesses>(*loop_, std::vector{std::move(options)}, built("bin/offpath-worker"));
    loop_->add(*processes_);
    return *processes_;
  }
  // The loop's time. Slowly: a worker that ends by itself does so within its grace period, however late it gets a core.
  [[nodiscard]] TimeNs now() const {
    const TimeNs real = monotonic_ns();
    return slow_since_ == never ? real : slow_since_ + (real - slow_since_) / 32;
  }
  void pass_slowly(bool slowly) { slow_since_ = slowly ? monotonic_ns() : never; }
  template <class Condition>
  bool until(Condition condition) {
    for (const TimeNs end = link::soon(); monotonic_ns() < end;) {
      if (condition()) return true;
      const TimeNs round = now();
      if (!loop_->round(round)) loop_->sleep(round, round + 5 * millisecond_ns);
    }
    return condition();
  }
  Outcome run(Call call) {
    std::optional<Outcome> outcome;
    auto number =
        processes_->call(std::move(call), now(), [&](Outcome result, TimeNs) { outcome = std::move(result); });
    if (!number) return tl::unexpected<Failure>(number.error());
    if (!until([&] { return outcome.has_value(); })) return fail(Error::io, "no reply came");
    return std::move(*outcome);
  }
  static Call of(const std::string& function, std::string_view arguments = "", const std::string& plugin = "hostile") {
    Call call;
    call.plugin = plugin;
    call.function = function;
    call.arguments.assign(bytes_of(arguments).begin(), bytes_of(arguments).end());
    return call;
  }
  std::string error_of(Call call) {
    const Outcome outcome = run(std::move(call));
    return outcome ? "no error" : std::string(error_name(outcome.error().code)) + ": " + outcome.error().message;
  }
  // After any fault a call is served normally.
  void expect_served() {
    const Outcome outcome = run(of("echo", "still here"));
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    EXPECT_EQ(text_in(outcome->at(0)), "still here");
  }

  std::unique_ptr<loop::Loop> loop_;
  std::unique_ptr<PluginProcesses> processes_;
  TimeNs slow_since_ = never;
};

TEST_F(PluginProcessesTest, AFunctionGetsItsArgumentsAndItsResultIsSealed) {
  with(hostile());
  const Outcome outcome = run(of("echo", "arguments"));
  ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
  ASSERT_EQ(outcome->size(), 1u);
  EXPECT_EQ(outcome->at(0).name, "text");
  EXPECT_EQ(text_in(outcome->at(0)), "arguments");
  const int fd = outcome->at(0).memory.get();
  EXPECT_EQ(pwrite(fd, "x", 1, 0), -1);
  EXPECT_EQ(ftruncate(fd, 0), -1);
  EXPECT_EQ(processes_->status()[0].functions[0].doc, "Its arguments.");
}

// Every round has the same time here, as if the loop had been held up within one.
TEST_F(PluginProcessesTest, ACallTakesTimeEvenIfItEndsInTheRoundThatSentIt) {
  with(hostile());
  expect_served();
  Call call = of("echo", "quick");
  const auto report = call.report = std::make_shared<plugin::CallReport>();
  const TimeNs round = monotonic_ns(), end = round + link::patience_ns();
  bool is_over = false;
  ASSERT_TRUE(processes_->call(std::move(call), round, [&](const Outcome&, TimeNs) { is_over = true; }));
  while (!is_over && monotonic_ns() < end) loop_->round(round);
  ASSERT_TRUE(is_over);
  EXPECT_GT(report->began, round);
  EXPECT_GT(report->ended, report->began);
}

TEST_F(PluginProcessesTest, InputsArriveWithTheirKeysAndPageAligned) {
  with(hostile());
  Fd memory = sealed_memory(std::string(4096, 'a') + "second", F_SEAL_FUTURE_WRITE);  // as frames are
  Call call = of("describe");
  const std::string own = "of the agent's memory";
  call.inputs = {{"row", "x", true, memory.get(), 0, 4096, {}, {}},
                 {"row", "y", false, memory.get(), 4096, 6, {}, {}},
                 {"row", "own", false, -1, 0, 0, bytes_of(own), {}},
                 {"row", "", false, -1, 0, 0, {}, {}}};
  const Outcome outcome = run(std::move(call));
  ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
  EXPECT_EQ(text_in(outcome->at(0)),
            "row/x 4096 1 aligned aaaa\nrow/y 6 0 aligned seco\nrow/own 21 0 aligned of t\nrow/ 0 0 aligned \n");
}

TEST_F(PluginProcessesTest, ARowOfManyObjectsIsNotBoundedByOnePacket) {
  with(hostile());
  Call call = of("describe");
  std::vector<Fd> memories;
  for (int i = 0; i < 700; ++i) {
    memories.push_back(sealed_memory(std::to_string(1000 + i)));
    call.inputs.push_back({"r", std::string(300, 'c'), false, memories.back().get(), 0, 4, {}, {}});
  }
  const Outcome outcome = run(std::move(call));
  ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
  EXPECT_THAT(text_in(outcome->at(0)), HasSubstr(" 4 0 aligned 1699\n"));
}

TEST_F(PluginProcessesTest, InputsThatAWorkerCouldChangeAreNotGivenToIt) {
  with(hostile());
  expect_served();
  Fd memory = sealed_memory("text", F_SEAL_SHRINK);
  Call call = of("describe");
  call.inputs.push_back({"row", "x", false, memory.get(), 0, 4, {}, {}});
  EXPECT_EQ(error_of(std::move(call)),
            "denied: plug-in 'hostile', function 'describe': an input whose memory is not sealed against writing");
  Call crooked = of("describe");
  memory = sealed_memory("text");
  crooked.inputs.push_back({"row", "x", false, memory.get(), 1, 3, {}, {}});
  EXPECT_THAT(error_of(std::move(crooked)), HasSubstr("not a multiple of 4096"));
  Call large = of("describe");
  const std::vector<std::byte> bytes(plugin::copied_bytes_max + 1);
  large.inputs.push_back({"row", "x", false, -1, 0, 0, bytes, {}});
  EXPECT_THAT(error_of(std::move(large)),
              HasSubstr("too_large: plug-in 'hostile', function 'describe': inputs of more than 16777216 bytes"));
  expect_served();
  EXPECT_EQ(processes_->status()[0].counters.starts, 1u);
}

TEST_F(PluginProcessesTest, OutputsAreShrunkAndMayBeEmpty) {
  with(hostile());
  const Outcome outcome = run(of("shrinks"));
  ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
  ASSERT_EQ(outcome->size(), 2u);
  EXPECT_EQ(text_in(outcome->at(0)), "abc");
  EXPECT_TRUE(outcome->at(0).arrow);
  EXPECT_EQ(outcome->at(1).name, "empty");
  EXPECT_EQ(outcome->at(1).bytes, 0u);
}

TEST_F(PluginProcessesTest, AFunctionThatFailsOrThrowsSaysWhy) {
  with(hostile());
  EXPECT_EQ(error_of(of("fails")),
            "function_failed: plug-in 'hostile', function 'fails': x is negative (it returned 7)");
  EXPECT_THAT(error_of(of("throws")), HasSubstr("function 'throws': threw: no such particle"));
  EXPECT_THAT(error_of(of("throws_a_number")), HasSubstr("threw an exception that is not a std::exception"));
  expect_served();
  EXPECT_EQ(processes_->status()[0].counters.starts, 1u);  // all in one worker
  EXPECT_THAT(
      error_of(of("nothing_like_it")),
      HasSubstr("not_found: plug-in 'hostile', function 'nothing_like_it': there is no such function; there are echo"));
}

TEST_F(PluginProcessesTest, ACrashCostsItsOwnCallAndNamesTheSignal) {
  with(hostile());
  EXPECT_EQ(
      error_of(of("crashes")),
      "function_failed: plug-in 'hostile', function 'crashes': its worker was killed by SIGSEGV while running it");
  expect_served();
  EXPECT_THAT(error_of(of("exits")), HasSubstr("its worker exited with 3 while running it"));
  expect_served();
  Fd memory = sealed_memory("text");
  Call call = of("writes_to_an_input");
  call.inputs.push_back({"row", "x", false, memory.get(), 0, 4, {}, {}});
  EXPECT_THAT(error_of(std::move(call)), HasSubstr("was killed by SIGSEGV"));
  EXPECT_THAT(error_of(of("writes_too_much")), HasSubstr("was killed by SIGSEGV"));
  expect_served();
}

TEST_F(PluginProcessesTest, ALoopIsKilledAtItsDeadline) {
  with(hostile());
  expect_served();
  const TimeNs before = monotonic_ns();
  Call call = of("loops");
  call.deadline_ns = before + 50 * millisecond_ns;
  EXPECT_THAT(error_of(std::move(call)), HasSubstr("timeout: plug-in 'hostile', function 'loops': the deadline of "));
  EXPECT_GE(monotonic_ns() - before, 50 * millisecond_ns);
  expect_served();
  EXPECT_EQ(processes_->status()[0].counters.kills, 1u);
}

TEST_F(PluginProcessesTest, ACancelledFunctionThatReturnsKeepsItsWorker) {
  with(hostile());
  for (const bool returns : {true, false}) {
    std::optional<Outcome> outcome;
    const auto number = processes_->call(of(returns ? "waits_until_cancelled" : "loops"), now(),
                                         [&](Outcome result, TimeNs) { outcome = std::move(result); });
    ASSERT_TRUE(number.has_value());
    ASSERT_TRUE(until([&] { return processes_->status()[0].running == 1; }));
    const TimeNs end = monotonic_ns() + 20 * millisecond_ns;
    until([&] { return monotonic_ns() > end; });
    pass_slowly(returns);
    EXPECT_TRUE(processes_->cancel(*number, now()));
    ASSERT_TRUE(until([&] { return outcome.has_value(); }));
    EXPECT_EQ(outcome->error().code, Error::cancelled);
    expect_served();
    pass_slowly(false);
  }
  EXPECT_EQ(processes_->status()[0].counters.kills, 1u);  // the one that did not ask
}

TEST_F(PluginProcessesTest, MemoryIsLimited) {
  if (sanitized) GTEST_SKIP() << "sanitizers need memory of their own";
  with(hostile());
  EXPECT_THAT(error_of(of("allocates")), HasSubstr("threw: std::bad_alloc"));
  EXPECT_THAT(
      error_of(of("makes_a_large_output")),
      HasSubstr("output 'large' of 1099511627776 bytes: the outputs of this call may have 134217728 bytes together"));
  Call call = of("echo", "0123456789");
  call.output_bytes_max = 9;
  EXPECT_THAT(error_of(std::move(call)), HasSubstr("may have 9 bytes together"));
  expect_served();
}

TEST_F(PluginProcessesTest, StaticVariablesLiveAsLongAsTheWorker) {
  with(hostile());
  EXPECT_EQ(text_in(run(of("counts_calls"))->at(0)), "1");
  EXPECT_EQ(text_in(run(of("counts_calls"))->at(0)), "2");
  error_of(of("exits"));
  EXPECT_EQ(text_in(run(of("counts_calls"))->at(0)), "1");
}

TEST_F(PluginProcessesTest, WhatAWorkerForgesIsRefused) {
  const struct {
    const char *function, *said;
  } forgeries[] = {
      {"answers_unsealed", "it needs"},
      {"answers_short", "its memory has 100 bytes, but 4096 were announced"},
      {"answers_without", "with 0 descriptors"},
      {"answers_with_a_file", "cannot be sealed"},
      {"answers_garbage", "a message of kind"},
      {"answers_at_length", "a packet of more than"},
      {"closes_its_socket", "closed its socket"},
  };
  for (const auto& [function, said] : forgeries) {
    with(hostile());  // a new object, so that there is no back-off, and the first call is number 1
    const std::string error = error_of(of(function, "1"));
    EXPECT_THAT(error, HasSubstr("function_failed: plug-in 'hostile'")) << function;
    EXPECT_THAT(error, HasSubstr(said)) << function;
    expect_served();
    loop_->remove(*processes_);
    processes_.reset();
  }
  with(hostile());  // any sealed memory of the announced length is taken, whichever process made it
  const Outcome outcome = run(of("answers_sealed", "1"));
  ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
  EXPECT_EQ(outcome->at(0).bytes, 4096u);
}

TEST_F(PluginProcessesTest, AWorkerHasGivenUpWhatItDoesNotNeed) {
  const Fd leaked(open("/dev/null", O_RDONLY));  // not close-on-exec
  with(hostile());
  const Outcome outcome = run(of("rights"));
  ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
  const std::string text = text_in(outcome->at(0));
  EXPECT_THAT(text, HasSubstr("fds: 0 1 2 3 4\n"));
  EXPECT_THAT(text, HasSubstr("dumpable: 0\nno_new_privs: 1\ncore: 0\n"));
  EXPECT_THAT(text, HasSubstr("group: own\n"));
  EXPECT_THAT(text, HasSubstr("secret: none\n"));
  EXPECT_THAT(text, HasSubstr("CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n"));
}

TEST_F(PluginProcessesTest, ACallThatNoFunctionNeedsIsRefusedAndTheWorkerGoesOn) {
  if (sanitized) GTEST_SKIP() << "sanitizers need some of them";
  const auto tried = [this](plugin::Sandbox sandbox) {
    PluginOptions options = hostile();
    options.sandbox = sandbox;
    if (processes_) loop_->remove(*processes_);
    processes_.reset();
    with(options);
    const Outcome outcome = run(of("tries_calls"));
    EXPECT_TRUE(outcome.has_value()) << outcome.error().message;
    return outcome ? text_in(outcome->at(0)) : std::string();
  };
  EXPECT_THAT(tried(plugin::Sandbox::off), HasSubstr("local socket: done\n"));  // so it is the list that refuses
  const std::string text = tried(plugin::Sandbox::on);
  std::istringstream lines(text);
  const bool has_namespaces = processes_->status().at(0).confinement.namespaces == "user net ipc";
  for (std::string line; std::getline(lines, line);) {
    const bool by_path = line.starts_with("memory by path");  // no list sees that: its user namespace stands against it
    if (by_path && !has_namespaces) continue;
    const std::string end = line.starts_with("itself") ? "done" : std::strerror(by_path ? EACCES : ENOSYS);
    EXPECT_THAT(line, testing::EndsWith(": " + end)) << text;
  }
  expect_served();
}

TEST_F(PluginProcessesTest, AUserOfItsOwnAndALowerPriority) {
  if (!plugin::may_change_user()) GTEST_SKIP() << "needs CAP_SETUID, CAP_SETGID and CAP_KILL";
  PluginOptions options = hostile();
  options.user = 65534;
  options.group = 65534;
  options.nice = 5;
  with(options);
  const Outcome outcome = run(of("rights"));
  ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
  const std::string text = text_in(outcome->at(0));
  EXPECT_THAT(text, HasSubstr("uid: 65534 65534\nnice: 5\n"));
  EXPECT_THAT(text, HasSubstr("Groups:\t \n"));
  EXPECT_THAT(text, HasSubstr("CapPrm:\t0000000000000000\n"));
  Call call = of("loops");
  call.deadline_ns = monotonic_ns() + 20 * millisecond_ns;
  EXPECT_THAT(error_of(std::move(call)), HasSubstr("timeout"));  // and it can be killed
  expect_served();
}

// The agent's loop waits between clone and exec, and a user can stop own processes. So the executed program still
// belongs to the agent's user, with only the rights to become the worker's user.
TEST_F(PluginProcessesTest, NobodyCanStopAWorkerBeforeItsProgramIsExecuted) {
  if (!plugin::may_change_user()) GTEST_SKIP() << "needs CAP_SETUID, CAP_SETGID and CAP_KILL";
  char folder[] = "/tmp/offpath-launch-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  ASSERT_EQ(chmod(folder, 0755), 0);
  const std::string program = fmt::format("{}/program", folder), seen = fmt::format("{}/seen", folder);
  {
    std::ofstream(program) << "#!/bin/sh\ngrep -E '^(Uid|CapPrm|CapEff):' /proc/self/status >" << seen << ".part && mv "
                           << seen << ".part " << seen << "\n";
    ASSERT_EQ(chmod(program.c_str(), 0755), 0);
    ASSERT_EQ(chmod(folder, 0777), 0);
  }
  PluginOptions options = hostile();
  options.user = options.group = 65534;
  auto worker = plugin::WorkerProcess::start(options, program);
  ASSERT_TRUE(worker) << worker.error().message;
  ASSERT_TRUE(until([&] { return std::filesystem::exists(seen); }));
  std::stringstream text;
  text << std::ifstream(seen).rdbuf();
  EXPECT_THAT(text.str(), HasSubstr(fmt::format("Uid:\t{0}\t{0}\t{0}\t{0}\n", geteuid())));
  EXPECT_THAT(text.str(), HasSubstr("CapPrm:\t00000000000000c0\nCapEff:\t00000000000000c0\n"));
  std::filesystem::remove_all(folder);
}

TEST_F(PluginProcessesTest, WhatAFunctionHasStartedEndsWithItsWorker) {
  with(hostile());
  const Outcome outcome = run(of("starts_a_process"));
  ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
  const pid_t child = std::stoi(text_in(outcome->at(0)));
  EXPECT_EQ(kill(child, 0), 0);
  error_of(of("exits"));
  const auto is_gone = [&] {  // a zombie counts as gone, even before it is waited for
    char state[64]{};
    const Fd file(open(("/proc/" + std::to_string(child) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
    return !file || read(file.get(), state, sizeof state - 1) <= 0 ||
           std::string(state).find(") Z") != std::string::npos;
  };
  EXPECT_TRUE(until(is_gone));
}

TEST_F(PluginProcessesTest, PlugInsThatCannotBeUsedSayWhy) {
  const struct {
    const char *plugin, *said;
  } wrong[] = {
      {"no_symbol", "cannot be used: it has no symbol offpath_plugin"},
      {"other_version", "cannot be used: it was built for version 99 of offpath/plugin.h, but this agent has 1"},
      {"hangs", "cannot be used: it did not load within 300ms (plugin.start_deadline)"},
      {"crashes", "cannot be used: its worker was killed by SIGABRT while loading it"},
      {"returns_null", "cannot be used: offpath_plugin() returned NULL"},
      {"throws", "cannot be used: loading it threw: no licence"},
      {"bad_name", "cannot be used: function 0 has the name 'two words'"},
      {"is_not_there", "No such file or directory"},
  };
  for (const auto& [name, said] : wrong) {
    PluginOptions options = hostile();
    options.name = name;
    options.path = built(std::string("tests/wrong_") + name + ".so");
    if (std::string(name) == "hangs") options.start_deadline_ns = 300 * millisecond_ns;
    with(options);
    const std::string error = error_of(of("nothing", "", name));
    EXPECT_THAT(error, HasSubstr(said));
    EXPECT_THAT(error, HasSubstr(options.path));
    EXPECT_THAT(processes_->status()[0].failure, HasSubstr(said));
    loop_->remove(*processes_);
    processes_.reset();
  }
}

TEST_F(PluginProcessesTest, FilesThatOthersCouldChangeAreNotLoaded) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("offpath-plugin-" + std::to_string(getpid()));
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::owner_all);
  const fs::path file = folder / "plugin.so";
  fs::copy_file(hostile().path, file);
  PluginOptions options = hostile();
  options.path = file;
  const auto attempt = [&] {
    with(options);
    std::string error = error_of(of("echo"));
    loop_->remove(*processes_);
    processes_.reset();
    return error;
  };
  EXPECT_EQ(attempt(), "no error");
  fs::permissions(file, fs::perms::group_write, fs::perm_options::add);
  EXPECT_THAT(attempt(), HasSubstr("others may write to it"));
  fs::permissions(file, fs::perms::owner_all);
  fs::permissions(folder, fs::perms::others_write, fs::perm_options::add);
  EXPECT_THAT(attempt(), HasSubstr(folder.string() + " has the mode 0702: others may write to it"));
  fs::permissions(folder, fs::perms::owner_all);
  if (geteuid() == 0) {
    ASSERT_EQ(chown(file.c_str(), 65534, 65534), 0);
    EXPECT_THAT(attempt(), HasSubstr("belongs to user 65534"));
  }
  options.path = "plugin.so";
  EXPECT_THAT(attempt(), HasSubstr("'plugin.so' is not an absolute path"));
  options.path = folder;
  EXPECT_THAT(attempt(), HasSubstr("is not a file"));
  fs::remove_all(folder);
}

TEST_F(PluginProcessesTest, TheExampleCountsParticles) {
  PluginOptions options = hostile();
  options.name = "particles";
  options.path = PARTICLES_PLUGIN;
  with(options);
  const float columns[3][4] = {{0, 1, 2, 3}, {0, 1, 2, 3}, {0, 1, 2, 9}}, box[6] = {0.5f, 0.5f, 0.5f, 3.5f, 3.5f, 3.5f};
  Call call = of("bounding_box", std::string_view(reinterpret_cast<const char*>(box), sizeof box), "particles");
  const char* names[] = {"x", "y", "z"};
  for (int axis = 0; axis < 3; ++axis)
    call.inputs.push_back({"step0", names[axis], false, -1, 0, 0, std::as_bytes(std::span(columns[axis])), {}});
  const Outcome outcome = run(call);
  ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
  const std::uint32_t expected[] = {1, 2};
  EXPECT_EQ(text_in(outcome->at(0)), text_of(std::as_bytes(std::span(expected))));
  call.function = "mean";
  const Outcome mean = run(call);
  ASSERT_TRUE(mean.has_value()) << mean.error().message;
  const std::string result = text_in(mean->at(0));
  EXPECT_EQ(load<std::uint64_t>(reinterpret_cast<const std::byte*>(result.data())), 12u);
  EXPECT_EQ(load<double>(reinterpret_cast<const std::byte*>(result.data()) + 8), 2.0);
  call.function = "bounding_box";
  call.inputs.pop_back();
  EXPECT_THAT(error_of(call), HasSubstr("columns x, y and z: expected 3, given 2 (it returned 1)"));
}

}  // namespace
}  // namespace offpath::agent
