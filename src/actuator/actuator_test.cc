#include "actuator/actuator.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

#include "base/fd.h"

namespace offpath::actuator {
namespace {

using testing::HasSubstr;

class Tree : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "offpath-actuators-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    roots_ = {root_ + "/sys", root_ + "/cgroup", root_ + "/former"};
    std::filesystem::create_directory(roots_.former);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + "/" + path).parent_path());
    std::ofstream(root_ + "/" + path) << text << '\n';
  }
  [[nodiscard]] std::string get(const std::string& path) const {
    std::ifstream file(root_ + "/" + path);
    std::stringstream text;
    text << file.rdbuf();
    std::string content = text.str();
    while (content.ends_with('\n')) content.pop_back();
    return content;
  }
  [[nodiscard]] std::size_t notes() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(roots_.former), {}));
  }
  [[nodiscard]] std::unique_ptr<Actuator> make(Kind kind, std::string where, std::string device = "",
                                               std::string limit = "") const {
    const ActuatorOptions options{"a", kind, std::move(where), std::move(device), std::move(limit), 1, 1'000'000'000};
    EXPECT_TRUE(check(options));
    return make_actuator(options, roots_);
  }

  std::string root_;
  Roots roots_;
};

TEST_F(Tree, PowercapZonesAndFrequencyPoliciesHaveTheirFiles) {
  put("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw", "125000000");
  put("sys/devices/system/cpu/cpufreq/policy3/scaling_max_freq", "3600000");
  const auto power = make(Kind::power, "intel-rapl:0"), frequency = make(Kind::cpufreq, "policy3");
  ASSERT_TRUE(power->hold());
  ASSERT_TRUE(power->set(90'000'000));
  EXPECT_EQ(get("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw"), "90000000");
  EXPECT_EQ(power->restore().value(), std::nullopt);
  EXPECT_EQ(get("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw"), "125000000");
  ASSERT_TRUE(frequency->hold());
  ASSERT_TRUE(frequency->set(1'200'000));
  EXPECT_EQ(get("sys/devices/system/cpu/cpufreq/policy3/scaling_max_freq"), "1200000");
}

TEST_F(Tree, ThousandthsOfACoreAreAQuotaOfTheGroupsOwnPeriod) {
  put("cgroup/job/cpu.max", "max 50000");
  const auto cpu = make(Kind::cpu, "job");
  ASSERT_TRUE(cpu->hold());
  ASSERT_TRUE(cpu->set(1500));
  EXPECT_EQ(get("cgroup/job/cpu.max"), "75000 50000");
  put("cgroup/job/cpu.max", "75000 10000");  // another process's period
  ASSERT_TRUE(cpu->set(1500));
  EXPECT_EQ(get("cgroup/job/cpu.max"), "15000 10000");
  EXPECT_EQ(cpu->restore().value(), std::nullopt);
  EXPECT_EQ(get("cgroup/job/cpu.max"), "max 50000");
}

TEST_F(Tree, VersionOneHasAFileForEach) {
  put("cgroup/job/cpu.cfs_quota_us", "-1");
  put("cgroup/job/cpu.cfs_period_us", "100000");
  const auto cpu = make(Kind::cpu, "job");
  ASSERT_TRUE(cpu->hold());
  ASSERT_TRUE(cpu->set(250));
  EXPECT_EQ(get("cgroup/job/cpu.cfs_quota_us"), "25000");
  put("cgroup/job/cpu.cfs_period_us", "10000");
  ASSERT_TRUE(cpu->set(250));
  EXPECT_EQ(get("cgroup/job/cpu.cfs_quota_us"), "2500");
  ASSERT_TRUE(cpu->restore());
  EXPECT_EQ(get("cgroup/job/cpu.cfs_quota_us"), "-1");
}

TEST_F(Tree, OneLimitOfOneDeviceIsSetAndReturned) {
  std::string others;  // more than a page of them
  for (int i = 0; i < 200; ++i) others += fmt::format("8:{} rbps=max wbps=max riops=max wiops=500\n", 16 + i);
  put("cgroup/job/io.max", others + "8:0 rbps=2097152 wbps=max riops=max wiops=120");
  const auto reads = make(Kind::io, "job", "08:00", "rbps");
  ASSERT_TRUE(reads->hold());
  ASSERT_TRUE(reads->set(1048576));
  EXPECT_EQ(get("cgroup/job/io.max"), "8:0 rbps=1048576");
  ASSERT_TRUE(reads->restore());
  EXPECT_EQ(get("cgroup/job/io.max"), "8:0 rbps=2097152");
  const auto unset = make(Kind::io, "job", "9:0", "wbps");
  ASSERT_TRUE(unset->hold());
  ASSERT_TRUE(unset->set(7));
  ASSERT_TRUE(unset->restore());
  EXPECT_EQ(get("cgroup/job/io.max"), "9:0 wbps=max");  // the kernel lists no device without a limit
}

TEST_F(Tree, VersionOneHasAFileForEachLimitOfDevices) {
  const std::string others = "8:16 500\n18:0 700";
  const std::pair<std::string, std::string> files[] = {
      {"rbps", "read_bps"}, {"wbps", "write_bps"}, {"riops", "read_iops"}, {"wiops", "write_iops"}};
  const auto path_of = [](const std::string& file) { return "cgroup/job/blkio.throttle." + file + "_device"; };
  for (const auto& [limit, file] : files) put(path_of(file), others + "\n8:0 2097152");
  for (const auto& [limit, file] : files) {
    const auto io = make(Kind::io, "job", "8:0", limit);
    const auto held = io->hold();
    ASSERT_TRUE(held) << held.error().message;
    ASSERT_TRUE(io->set(1048576));
    EXPECT_EQ(get(path_of(file)), "8:0 1048576") << limit;
    EXPECT_EQ(io->restore().value(), std::nullopt);
    EXPECT_EQ(get(path_of(file)), "8:0 2097152") << limit;
    io->release();
    put(path_of(file), others);
    ASSERT_TRUE(io->hold());
    ASSERT_TRUE(io->set(1048576));
    EXPECT_EQ(io->restore().value(), std::nullopt);
    EXPECT_EQ(get(path_of(file)), "8:0 0") << limit;
  }
}

// More operations than version 1 can have are as many as there may be, not the lower 32 bits of the number.
TEST_F(Tree, VersionOneHasNoMoreOperationsThanItCanCount) {
  put("cgroup/job/blkio.throttle.read_iops_device", "");
  put("cgroup/job/blkio.throttle.read_bps_device", "");
  const auto operations = make(Kind::io, "job", "8:0", "riops"), bytes = make(Kind::io, "job", "8:0", "rbps");
  ASSERT_TRUE(operations->hold() && bytes->hold());
  ASSERT_TRUE(operations->set(1ull << 32) && bytes->set(1ull << 32));
  EXPECT_EQ(get("cgroup/job/blkio.throttle.read_iops_device"), "8:0 4294967295");
  EXPECT_EQ(get("cgroup/job/blkio.throttle.read_bps_device"), "8:0 4294967296");
}

TEST_F(Tree, OneAtATimeHoldsIt) {
  put("cgroup/job/cpu.max", "max 100000");
  const auto one = make(Kind::cpu, "job"), other = make(Kind::cpu, "job");
  ASSERT_TRUE(one->hold());
  const auto refused = other->hold();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("another agent sets " + root_ + "/cgroup/job/cpu.max"));
  one->release();
  EXPECT_EQ(notes(), 0u);
  EXPECT_TRUE(other->hold());
}

TEST_F(Tree, LimitsOfOneFileDoNotExcludeEachOther) {
  put("cgroup/job/io.max", "8:0 rbps=max wbps=max riops=max wiops=max");
  const auto reads = make(Kind::io, "job", "8:0", "rbps"), writes = make(Kind::io, "job", "8:0", "wbps");
  EXPECT_TRUE(reads->hold());
  const auto held = writes->hold();
  EXPECT_TRUE(held) << held.error().message;
}

TEST_F(Tree, ALockOfTheFileItselfBlocksNobody) {
  put("cgroup/job/cpu.max", "max 100000");
  const Fd anybody(open((root_ + "/cgroup/job/cpu.max").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(flock(anybody.get(), LOCK_EX), 0);
  EXPECT_TRUE(make(Kind::cpu, "job")->hold());
}

TEST_F(Tree, WhatAKilledProcessLeftIsReturned) {
  put("cgroup/job/cpu.max", "max 100000");
  const pid_t child = fork();
  if (child == 0) {
    const auto cpu = make(Kind::cpu, "job");
    _exit(cpu->hold() && cpu->set(300) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  ASSERT_EQ(get("cgroup/job/cpu.max"), "30000 100000");
  ASSERT_EQ(notes(), 1u);
  for (const auto& each : std::filesystem::directory_iterator(roots_.former))
    EXPECT_EQ(each.status().permissions(), std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  const auto next = make(Kind::cpu, "job");
  EXPECT_TRUE(next->was_left());
  ASSERT_TRUE(next->hold());
  ASSERT_TRUE(next->set(500));
  EXPECT_EQ(next->restore().value(), std::nullopt);
  EXPECT_EQ(get("cgroup/job/cpu.max"), "max 100000");
  next->release();
  EXPECT_FALSE(next->was_left());
}

TEST_F(Tree, WhatSomebodyElseHasSetStays) {
  put("cgroup/job/cpu.max", "max 100000");
  const auto cpu = make(Kind::cpu, "job");
  ASSERT_TRUE(cpu->hold());
  ASSERT_TRUE(cpu->set(300));
  put("cgroup/job/cpu.max", "77000 100000");
  EXPECT_EQ(cpu->restore().value(), "77000 100000");
  EXPECT_EQ(get("cgroup/job/cpu.max"), "77000 100000");
}

TEST_F(Tree, ANoteThatOthersCouldHaveWrittenIsRefused) {
  put("cgroup/job/cpu.max", "max 100000");
  const auto cpu = make(Kind::cpu, "job");
  ASSERT_TRUE(cpu->hold());
  for (const auto& each : std::filesystem::directory_iterator(roots_.former))
    ASSERT_EQ(chmod(each.path().c_str(), 0666), 0);
  const auto other = make(Kind::cpu, "job")->hold();
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Error::denied);
}

TEST_F(Tree, AMissingFileIsNamed) {
  const auto refused = make(Kind::cpufreq, "policy7")->hold();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("policy7/scaling_max_freq"));
  const auto none = make(Kind::cpu, "job")->hold();
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Error::not_found);
  EXPECT_THAT(none.error().message, HasSubstr("neither " + root_ + "/cgroup/job/cpu.max nor "));
}

TEST(Options, WhatCannotWorkIsRefused) {
  const ActuatorOptions good{"cpu", Kind::cpu, "jobs/7", "", "", 10, 1000};
  EXPECT_TRUE(check(good));
  const auto wrong = [&](auto change) {
    ActuatorOptions bad = good;
    change(bad);
    const Status checked = check(bad);
    EXPECT_FALSE(checked);
    return checked ? std::string() : checked.error().message;
  };
  for (const char* where : {"", "/etc", "..", "jobs/../../etc", "jobs//7", "jobs/", "."})
    EXPECT_THAT(wrong([&](ActuatorOptions& o) { o.where = where; }), HasSubstr("below the root")) << where;
  EXPECT_THAT(wrong([](ActuatorOptions& o) { o.name.clear(); }), HasSubstr("name"));
  EXPECT_THAT(wrong([](ActuatorOptions& o) { o.name.assign(64, 'a'); }), HasSubstr("64 characters"));
  EXPECT_THAT(wrong([](ActuatorOptions& o) { o.min = 0; }), HasSubstr("min is 0 and max is 1000:"));
  EXPECT_THAT(wrong([](ActuatorOptions& o) { o.max = 1'000'000'001; }), HasSubstr("at most 1000000000"));
  EXPECT_THAT(wrong([](ActuatorOptions& o) { o.max = 9; }), HasSubstr("min is 10 and max is 9:"));
  EXPECT_THAT(wrong([](ActuatorOptions& o) { o.device = "8:0"; }), HasSubstr("only actuators of kind io"));
  EXPECT_THAT(wrong([](ActuatorOptions& o) { o.kind = Kind::io; }), HasSubstr("MAJOR:MINOR"));
  EXPECT_THAT(wrong([](ActuatorOptions& o) {
                o.kind = Kind::io;
                o.device = "8:0";
                o.limit = "rbps=1 wbps";
              }),
              HasSubstr("is not rbps"));
}

}  // namespace
}  // namespace offpath::actuator
