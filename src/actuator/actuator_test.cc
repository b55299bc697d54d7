#include "actuator/actuator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace offpath::actuator {
namespace {

using testing::HasSubstr;

class Tree : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "offpath-actuators-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    roots_ = {root_ + "/sys", root_ + "/cgroup"};
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
    return text.str();
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
  const auto before = power->hold();
  ASSERT_TRUE(before) << before.error().message;
  ASSERT_EQ(*before, "125000000");
  ASSERT_TRUE(power->set(90'000'000));
  EXPECT_EQ(get("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw"), "90000000");
  ASSERT_TRUE(power->restore(*before));
  EXPECT_EQ(get("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw"), "125000000");
  ASSERT_EQ(frequency->hold().value(), "3600000");
  ASSERT_TRUE(frequency->set(1'200'000));
  EXPECT_EQ(get("sys/devices/system/cpu/cpufreq/policy3/scaling_max_freq"), "1200000");
}

TEST_F(Tree, ThousandthsOfACoreAreAQuotaOfTheGroupsOwnPeriod) {
  put("cgroup/job/cpu.max", "max 50000");
  const auto cpu = make(Kind::cpu, "job");
  EXPECT_EQ(cpu->hold().value(), "max");
  ASSERT_TRUE(cpu->set(1500));
  EXPECT_EQ(get("cgroup/job/cpu.max"), "75000");  // the kernel keeps the period
  ASSERT_TRUE(cpu->restore("max"));
  EXPECT_EQ(get("cgroup/job/cpu.max"), "max");
}

TEST_F(Tree, VersionOneHasAFileForEach) {
  put("cgroup/job/cpu.cfs_quota_us", "-1");
  put("cgroup/job/cpu.cfs_period_us", "100000");
  const auto cpu = make(Kind::cpu, "job");
  EXPECT_EQ(cpu->hold().value(), "-1");
  ASSERT_TRUE(cpu->set(250));
  EXPECT_EQ(get("cgroup/job/cpu.cfs_quota_us"), "25000");
}

TEST_F(Tree, OneLimitOfOneDeviceIsSetAndReturned) {
  put("cgroup/job/io.max", "8:16 rbps=max wbps=max riops=max wiops=500\n8:0 rbps=2097152 wbps=max riops=max wiops=120");
  const auto writes = make(Kind::io, "job", "8:0", "rbps"), unset = make(Kind::io, "job", "9:0", "wbps");
  const auto before = writes->hold();
  ASSERT_EQ(before.value(), "8:0 rbps=2097152");
  ASSERT_TRUE(writes->set(1048576));
  EXPECT_EQ(get("cgroup/job/io.max"), "8:0 rbps=1048576");
  ASSERT_TRUE(writes->restore(*before));
  EXPECT_EQ(get("cgroup/job/io.max"), "8:0 rbps=2097152");
  writes->release();
  EXPECT_EQ(unset->hold().value(), "9:0 wbps=max");  // the kernel lists no device without a limit
}

TEST_F(Tree, OneAtATimeHoldsIt) {
  put("cgroup/job/cpu.max", "max 100000");
  const auto one = make(Kind::cpu, "job"), other = make(Kind::cpu, "job");
  ASSERT_TRUE(one->hold());
  const auto refused = other->hold();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("another agent sets " + root_ + "/cgroup/job/cpu.max"));
  one->release();
  EXPECT_TRUE(other->hold());
}

TEST_F(Tree, AMissingFileIsNamed) {
  const auto refused = make(Kind::cpufreq, "policy7")->hold();
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("policy7/scaling_max_freq"));
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
  EXPECT_THAT(wrong([](ActuatorOptions& o) { o.min = 0; }), HasSubstr("0 to 1000"));
  EXPECT_THAT(wrong([](ActuatorOptions& o) { o.max = 9; }), HasSubstr("10 to 9"));
  EXPECT_THAT(wrong([](ActuatorOptions& o) { o.device = "8:0"; }), HasSubstr("only io"));
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
