// A real keeper: over a tree of files, and over a cgroup of this machine.
#include "actuator/keeper_process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/suspend_clock.h"

namespace offpath::actuator {
namespace {

constexpr TimeNs patience_ns = 20 * second_ns;

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

// A process that starts a keeper, has `value` set for `lease_ns`, and does nothing else, with its keeper.
pid_t start_agent(const ActuatorOptions& options, const Roots& roots, std::uint64_t value, TimeNs lease_ns) {
  const pid_t agent = fork();
  if (agent != 0) return agent;
  auto keeper = KeeperProcess::start({options}, roots, {});
  if (!keeper || !keeper->ask(1, 0, value, boottime_ns() + lease_ns)) _exit(1);
  for (;;) pause();
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
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::string root_, file_;
  ActuatorOptions options_{"power", Kind::power, "intel-rapl:0", "", "", 50'000'000, 100'000'000, 3600 * second_ns};
};

TEST_F(OverFiles, SetsWithinBoundsAndSaysWhatIsInForce) {
  auto keeper = KeeperProcess::start({options_}, {root_, root_}, {});
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
  const pid_t agent = start_agent(options_, {root_, root_}, 90'000'000, 2 * second_ns);
  ASSERT_TRUE(becomes(file_, "90000000"));
  ::kill(agent, SIGSTOP);
  EXPECT_TRUE(becomes(file_, "125000000"));
  kill_and_wait(agent);
}

TEST_F(OverFiles, AKilledAgentsSettingsReturn) {
  const pid_t agent = start_agent(options_, {root_, root_}, 90'000'000, 3600 * second_ns);
  ASSERT_TRUE(becomes(file_, "90000000"));
  kill_and_wait(agent);
  EXPECT_TRUE(becomes(file_, "125000000"));
}

TEST_F(OverFiles, AnAgentThatEndsWaitsForThem) {
  {
    auto keeper = KeeperProcess::start({options_}, {root_, root_}, {});
    ASSERT_TRUE(keeper && keeper->ask(1, 0, 90'000'000, boottime_ns() + 100 * second_ns));
    EXPECT_EQ(answers_of(*keeper).size(), 1u);
    ASSERT_EQ(content_of(file_), "90000000");
  }
  EXPECT_EQ(content_of(file_), "125000000");
}

TEST_F(OverFiles, SignalsThatEndAnAgentDoNotEndIt) {
  auto keeper = KeeperProcess::start({options_}, {root_, root_}, {});
  ASSERT_TRUE(keeper && keeper->ask(1, 0, 90'000'000, boottime_ns() + 100 * second_ns));
  EXPECT_EQ(answers_of(*keeper).size(), 1u);
  for (const int each : {SIGTERM, SIGINT, SIGHUP}) ::kill(keeper->pid(), each);
  ASSERT_TRUE(keeper->ask(2, 0, 80'000'000, boottime_ns() + 100 * second_ns));
  EXPECT_TRUE(answers_of(*keeper)[0].value);
}

TEST_F(OverFiles, ItsEndIsReported) {
  auto keeper = KeeperProcess::start({options_}, {root_, root_}, {});
  ASSERT_TRUE(keeper);
  ::kill(keeper->pid(), SIGKILL);
  pollfd ready{keeper->socket(), POLLIN, 0};
  ASSERT_EQ(poll(&ready, 1, static_cast<int>(patience_ns / millisecond_ns)), 1);
  const auto answers = keeper->receive();
  ASSERT_FALSE(answers);
  EXPECT_EQ(answers.error().code, Error::peer_lost);
  EXPECT_FALSE(keeper->ask(1, 0, 90'000'000, boottime_ns() + second_ns));
}

// A cgroup of this machine's, of either version. Empty, and the reason, if this process may not make one.
struct RealGroup {
  RealGroup() {
    for (const char* root : {"/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/unified"}) {
      const std::string name = "offpath-keeper-test-" + std::to_string(getpid()), path = std::string(root) + "/" + name;
      std::error_code error;
      if (!std::filesystem::create_directory(path, error)) continue;
      for (const char* limit : {"cpu.max", "cpu.cfs_quota_us"}) {
        if (access((path + "/" + limit).c_str(), W_OK) != 0) continue;
        roots.cgroups = root;
        where = name;
        file = path + "/" + limit;
        return;
      }
      rmdir(path.c_str());
    }
  }
  ~RealGroup() {
    if (!where.empty()) rmdir((roots.cgroups + "/" + where).c_str());
  }
  Roots roots;
  std::string where, file;
};

TEST(OverACgroup, AKilledAgentsLimitReturns) {
  const RealGroup group;
  if (group.where.empty()) GTEST_SKIP() << "no cgroup with the cpu controller can be made here (root, or a delegation)";
  const std::string before = content_of(group.file);  // "max 100000", or -1
  const ActuatorOptions options{"cpu", Kind::cpu, group.where, "", "", 100, 1000, 3600 * second_ns};
  const std::string during = before.starts_with("max") ? "30000 100000" : "30000";
  const pid_t agent = start_agent(options, group.roots, 300, 3600 * second_ns);
  ASSERT_TRUE(becomes(group.file, during)) << content_of(group.file);
  kill_and_wait(agent);
  EXPECT_TRUE(becomes(group.file, before)) << content_of(group.file);
}

}  // namespace
}  // namespace offpath::actuator
