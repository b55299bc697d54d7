// A real keeper: over a tree of files, and over a cgroup of this machine.
#include "actuator/keeper_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "base/suspend_clock.h"

namespace offpath::actuator {
namespace {

constexpr TimeNs patience_ns = 60 * second_ns;

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  std::string content = text.str();
  while (content.ends_with('\n')) content.pop_back();
  return content;
}

bool becomes(const std::string& path, const std::string& text) {
  for (const TimeNs until = boottime_ns() + patience_ns; boottime_ns() < until; poll(nullptr, 0, 5))
    if (content_of(path) == text) return true;
  return false;
}

std::vector<Answer> answers_of(KeeperProcess& keeper) {
  pollfd ready{keeper.socket(), POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, static_cast<int>(patience_ns / millisecond_ns)), 1);
  auto answers = keeper.receive();
  EXPECT_TRUE(answers);
  return answers.value_or(std::vector<Answer>());
}

// A process that starts a keeper and renews a lease of `lease_ns` on `value`. It does nothing else, with its keeper.
pid_t start_agent(const ActuatorOptions& options, const Roots& roots, std::uint64_t value, TimeNs lease_ns) {
  const pid_t agent = fork();
  if (agent != 0) return agent;
  auto keeper = KeeperProcess::start({options}, roots, {});
  for (std::uint64_t number = 1; keeper; ++number) {
    if (!keeper->ask(number, 0, value, boottime_ns() + lease_ns)) _exit(1);
    poll(nullptr, 0, static_cast<int>(lease_ns / 4 / millisecond_ns));
    if (!keeper->receive()) _exit(2);
  }
  _exit(3);
}

void kill_and_wait(pid_t agent) {
  ::kill(agent, SIGKILL);
  ::waitpid(agent, nullptr, 0);
}

class OverFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "offpath-keeper-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    std::filesystem::create_directories(root_ + "/class/powercap/intel-rapl:0");
    file_ = root_ + "/class/powercap/intel-rapl:0/constraint_0_power_limit_uw";
    std::ofstream(file_) << "125000000\n";
    roots_ = {root_, root_, root_ + "/former"};
    std::filesystem::create_directory(roots_.former);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::string root_, file_;
  Roots roots_;
  ActuatorOptions options_{"power", Kind::power, "intel-rapl:0", "", "", 50'000'000, 100'000'000, 3600 * second_ns};
};

TEST_F(OverFiles, SetsWithinBoundsAndSaysWhatIsInForce) {
  auto keeper = KeeperProcess::start({options_}, roots_, {});
  ASSERT_TRUE(keeper) << keeper.error().message;
  ASSERT_TRUE(keeper->ask(1, 0, 90'000'000, boottime_ns() + 100 * second_ns));
  const auto first = answers_of(*keeper);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].number, 1u);
  EXPECT_EQ(first[0].value.value(), 90'000'000u);
  EXPECT_EQ(content_of(file_), "90000000");
  ASSERT_TRUE(keeper->ask(2, 0, 5'000'000'000, boottime_ns() + 100 * second_ns));
  EXPECT_EQ(answers_of(*keeper)[0].value.value(), 100'000'000u);
  ASSERT_TRUE(keeper->ask(3, 7, 1, boottime_ns() + second_ns));
  EXPECT_EQ(answers_of(*keeper)[0].value.error().message, "actuator 7, but there are 1");
  ASSERT_TRUE(keeper->ask(4, 0, 0, 0));
  EXPECT_TRUE(answers_of(*keeper)[0].value);
  EXPECT_EQ(content_of(file_), "125000000");
}

TEST_F(OverFiles, ALeaseEndsWhileItsAgentIsStopped) {
  const pid_t agent = start_agent(options_, roots_, 90'000'000, second_ns);
  ASSERT_TRUE(becomes(file_, "90000000"));
  ::kill(agent, SIGSTOP);
  EXPECT_TRUE(becomes(file_, "125000000"));
  kill_and_wait(agent);
}

TEST_F(OverFiles, AKilledAgentsSettingsReturn) {
  const pid_t agent = start_agent(options_, roots_, 90'000'000, 3600 * second_ns);
  ASSERT_TRUE(becomes(file_, "90000000"));
  kill_and_wait(agent);
  EXPECT_TRUE(becomes(file_, "125000000"));
}

TEST_F(OverFiles, AnAgentThatEndsWaitsForThem) {
  {
    auto keeper = KeeperProcess::start({options_}, roots_, {});
    ASSERT_TRUE(keeper && keeper->ask(1, 0, 90'000'000, boottime_ns() + 100 * second_ns));
    EXPECT_EQ(answers_of(*keeper).size(), 1u);
    ASSERT_EQ(content_of(file_), "90000000");
  }
  EXPECT_EQ(content_of(file_), "125000000");
}

TEST_F(OverFiles, SignalsThatEndAnAgentDoNotEndIt) {
  auto keeper = KeeperProcess::start({options_}, roots_, {});
  ASSERT_TRUE(keeper && keeper->ask(1, 0, 90'000'000, boottime_ns() + 100 * second_ns));
  EXPECT_EQ(answers_of(*keeper).size(), 1u);
  for (const int each : {SIGTERM, SIGINT, SIGHUP}) ::kill(keeper->pid(), each);
  ASSERT_TRUE(keeper->ask(2, 0, 80'000'000, boottime_ns() + 100 * second_ns));
  EXPECT_TRUE(answers_of(*keeper)[0].value);
}

TEST_F(OverFiles, WhatAKilledKeeperLeftIsReturnedByTheNext) {
  auto killed = KeeperProcess::start({options_}, roots_, {});
  ASSERT_TRUE(killed && killed->ask(1, 0, 90'000'000, boottime_ns() + 100 * second_ns));
  EXPECT_TRUE(answers_of(*killed)[0].value);
  ::kill(killed->pid(), SIGKILL);
  ::waitpid(killed->pid(), nullptr, 0);
  ASSERT_EQ(content_of(file_), "90000000");
  auto next = KeeperProcess::start({options_}, roots_, {});
  ASSERT_TRUE(next);
  EXPECT_TRUE(becomes(file_, "125000000"));
  ASSERT_TRUE(next->ask(1, 0, 80'000'000, boottime_ns() + 100 * second_ns));
  EXPECT_TRUE(answers_of(*next)[0].value);
  ASSERT_TRUE(next->ask(2, 0, 0, 0));
  EXPECT_TRUE(answers_of(*next)[0].value);
  EXPECT_EQ(content_of(file_), "125000000");
}

TEST_F(OverFiles, EveryActuatorIsSetAtOnceAndNobodyReadsTheAnswers) {
  std::vector<ActuatorOptions> all;
  std::vector<std::string> files;
  for (std::size_t i = 0; i < actuators_max; ++i) {
    all.push_back(options_);
    all.back().where = "intel-rapl:" + std::to_string(i);
    const std::string directory = root_ + "/class/powercap/" + all.back().where;
    std::filesystem::create_directories(directory);
    files.push_back(directory + "/constraint_0_power_limit_uw");
    std::ofstream(files.back()) << "125000000\n";
  }
  auto keeper = KeeperProcess::start(all, roots_, {});
  ASSERT_TRUE(keeper);
  constexpr std::uint32_t last = actuators_max - 1;
  for (std::uint32_t i = 0; i < last; ++i)
    ASSERT_TRUE(keeper->ask(i + 1, i, 90'000'000, boottime_ns() + 100 * second_ns)) << i;
  EXPECT_TRUE(becomes(files[last - 1], "90000000"));
  ASSERT_TRUE(keeper->ask(last + 1, last, 90'000'000, boottime_ns() + 2 * second_ns));
  EXPECT_TRUE(becomes(files[last], "90000000"));
  EXPECT_TRUE(becomes(files[last], "125000000"));  // it does not wait for the agent
  std::size_t answered = 0;
  while (answered < actuators_max) {
    const std::size_t more = answers_of(*keeper).size();
    ASSERT_GT(more, 0u);
    answered += more;
  }
}

TEST_F(OverFiles, WithoutStandardDescriptorsItServesAsWell) {
  const pid_t agent = fork();
  if (agent == 0) {
    for (int each = 0; each <= 2; ++each) ::close(each);
    auto keeper = KeeperProcess::start({options_}, roots_, {});
    if (!keeper || !keeper->ask(1, 0, 90'000'000, boottime_ns() + 100 * second_ns)) _exit(1);
    pollfd ready{keeper->socket(), POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(patience_ns / millisecond_ns)) != 1) _exit(2);
    const auto answers = keeper->receive();
    _exit(answers && answers->size() == 1 && answers->front().value ? 0 : 3);
  }
  int status = -1;
  ASSERT_EQ(waitpid(agent, &status, 0), agent);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(OverFiles, AFullLogDelaysNothing) {
  int log[2];
  ASSERT_EQ(pipe2(log, O_NONBLOCK), 0);
  const std::vector<char> page(4096, 'x');
  while (write(log[1], page.data(), page.size()) > 0) continue;
  fcntl(log[1], F_SETFL, 0);
  const int own = dup(STDERR_FILENO);
  dup2(log[1], STDERR_FILENO);
  auto keeper = KeeperProcess::start({options_}, roots_, {});
  dup2(own, STDERR_FILENO);
  ::close(own);
  ASSERT_TRUE(keeper && keeper->ask(1, 0, 90'000'000, boottime_ns() + second_ns / 4));
  EXPECT_EQ(answers_of(*keeper).size(), 1u);
  std::ofstream(file_) << "77000000\n";  // which it reports as staying
  poll(nullptr, 0, 500);
  ASSERT_TRUE(keeper->ask(2, 0, 80'000'000, boottime_ns() + second_ns));
  EXPECT_EQ(answers_of(*keeper).size(), 1u);
  for (const int each : log) ::close(each);
}

TEST_F(OverFiles, WithPrivilegesThatItCannotGiveUpItEnds) {
  auto keeper = KeeperProcess::start({options_}, roots_, [] { return Status(fail(Error::denied, "capset")); });
  ASSERT_TRUE(keeper);
  pollfd ready{keeper->socket(), POLLIN, 0};
  ASSERT_EQ(poll(&ready, 1, static_cast<int>(patience_ns / millisecond_ns)), 1);
  EXPECT_FALSE(keeper->receive());
}

TEST_F(OverFiles, ItsEndIsReported) {
  auto keeper = KeeperProcess::start({options_}, roots_, {});
  ASSERT_TRUE(keeper);
  ::kill(keeper->pid(), SIGKILL);
  pollfd ready{keeper->socket(), POLLIN, 0};
  ASSERT_EQ(poll(&ready, 1, static_cast<int>(patience_ns / millisecond_ns)), 1);
  const auto answers = keeper->receive();
  ASSERT_FALSE(answers);
  EXPECT_EQ(answers.error().code, Error::peer_lost);
  EXPECT_FALSE(keeper->ask(1, 0, 90'000'000, boottime_ns() + second_ns));
}

// A cgroup of this machine's, of either version, and its file of one limit. Empty if this process may not make one.
struct RealGroup {
  // `version_one`: the controller and its file.
  RealGroup(const std::string& limit, const std::pair<std::string, std::string>& version_one) {
    const std::string name = "offpath-keeper-test-" + std::to_string(getpid()), all = "/sys/fs/cgroup";
    for (const std::string& root : {all, all + "/" + version_one.first, all + "/unified"}) {
      const std::string path = root + "/" + name;
      std::error_code error;
      if (!std::filesystem::create_directory(path, error)) continue;
      for (const std::string& each : {limit, version_one.second}) {
        if (access((path + "/" + each).c_str(), W_OK) != 0) continue;
        roots.cgroups = root;
        where = name;
        file = path + "/" + each;
        std::string pattern = (std::filesystem::temp_directory_path() / "offpath-former-XXXXXX").string();
        if (mkdtemp(pattern.data()) != nullptr) roots.former = pattern;
        return;
      }
      rmdir(path.c_str());
    }
  }
  ~RealGroup() {
    if (!where.empty()) rmdir((roots.cgroups + "/" + where).c_str());
    if (!roots.former.empty()) std::filesystem::remove_all(roots.former);
  }
  Roots roots;
  std::string where, file;
};

RealGroup cpu_group() { return {"cpu.max", {"cpu", "cpu.cfs_quota_us"}}; }

TEST(OverACgroup, AKilledAgentsLimitReturns) {
  const RealGroup group = cpu_group();
  if (group.where.empty()) GTEST_SKIP() << "no cgroup with the cpu controller can be made here (root, or a delegation)";
  const std::string before = content_of(group.file);  // "max 100000", or -1
  const ActuatorOptions options{"cpu", Kind::cpu, group.where, "", "", 100, 1000, 3600 * second_ns};
  const std::string during = before.starts_with("max") ? "30000 100000" : "30000";
  const pid_t agent = start_agent(options, group.roots, 300, 3600 * second_ns);
  ASSERT_TRUE(becomes(group.file, during)) << content_of(group.file);
  kill_and_wait(agent);
  EXPECT_TRUE(becomes(group.file, before)) << content_of(group.file);
}

TEST(OverACgroup, OneThatWasRemovedIsNoFailureAndOneMadeAnewIsHeldAnew) {
  const RealGroup group = cpu_group();
  if (group.where.empty()) GTEST_SKIP() << "no cgroup with the cpu controller can be made here (root, or a delegation)";
  const std::string before = content_of(group.file), path = group.roots.cgroups + "/" + group.where;
  const ActuatorOptions options{"cpu", Kind::cpu, group.where, "", "", 100, 1000, 3600 * second_ns};
  auto keeper = KeeperProcess::start({options}, group.roots, {});
  ASSERT_TRUE(keeper && keeper->ask(1, 0, 300, boottime_ns() + 100 * second_ns));
  ASSERT_TRUE(answers_of(*keeper)[0].value);
  ASSERT_EQ(rmdir(path.c_str()), 0);
  ASSERT_TRUE(std::filesystem::create_directory(path));
  ASSERT_TRUE(keeper->ask(2, 0, 0, 0));
  EXPECT_TRUE(answers_of(*keeper)[0].value);
  ASSERT_TRUE(keeper->ask(3, 0, 300, boottime_ns() + 100 * second_ns));
  EXPECT_TRUE(answers_of(*keeper)[0].value);
  EXPECT_NE(content_of(group.file), before);
  ASSERT_TRUE(keeper->ask(4, 0, 0, 0));
  EXPECT_TRUE(answers_of(*keeper)[0].value);
  EXPECT_EQ(content_of(group.file), before);
}

// MAJOR:MINOR of a disk of this machine's; empty: there is none.
std::string disk() {
  std::error_code error;
  for (const auto& each : std::filesystem::directory_iterator("/sys/block", error))
    if (content_of(each.path() / "size") != "0") return content_of(each.path() / "dev");
  return "";
}

TEST(OverACgroup, EachLimitOfADeviceReturnsWhenItsAgentIsKilled) {
  const std::string device = disk();
  if (device.empty()) GTEST_SKIP() << "this machine has no disk";
  const std::pair<std::string, std::string> limits[] = {{"rbps", "blkio.throttle.read_bps_device"},
                                                        {"wbps", "blkio.throttle.write_bps_device"},
                                                        {"riops", "blkio.throttle.read_iops_device"},
                                                        {"wiops", "blkio.throttle.write_iops_device"}};
  for (const auto& [limit, version_one] : limits) {
    const RealGroup group("io.max", {"blkio", version_one});
    if (group.where.empty()) GTEST_SKIP() << "no cgroup with the io controller can be made here";
    const bool is_two = group.file.ends_with("io.max");
    std::string during = device + (is_two ? "" : " 3000");
    for (const auto& [each, file] : limits)
      if (is_two) during += fmt::format(" {}={}", each, each == limit ? "3000" : "max");
    const ActuatorOptions options{"io", Kind::io, group.where, device, limit, 1, 1 << 30, 3600 * second_ns};
    for (const bool has_former : {false, true}) {
      if (has_former) std::ofstream(group.file) << fmt::format("{} {}5000", device, is_two ? limit + "=" : "");
      const std::string before = content_of(group.file);
      ASSERT_NE(before.empty(), has_former) << limit;
      const pid_t agent = start_agent(options, group.roots, 3000, 3600 * second_ns);
      EXPECT_TRUE(becomes(group.file, during)) << limit << ": " << content_of(group.file);
      kill_and_wait(agent);
      EXPECT_TRUE(becomes(group.file, before)) << limit << ": " << content_of(group.file);
    }
  }
}

}  // namespace
}  // namespace offpath::actuator
