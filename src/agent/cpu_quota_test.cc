#include "agent/cpu_quota.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace offpath::agent {
namespace {

TEST(CpuQuotaTest, PeriodsAreShortAndExact) {
  for (double cores : {0.01, 0.2, 0.625, 1.0, 1.6, 8.0}) {
    const QuotaPeriod limit = quota_period(cores);
    EXPECT_GE(limit.quota_us, 1000);
    EXPECT_GE(limit.period_us, 1000);
    EXPECT_LE(limit.period_us, 1'000'000);
    EXPECT_NEAR(static_cast<double>(limit.quota_us) / static_cast<double>(limit.period_us), cores, 0.01 * cores);
  }
  EXPECT_EQ(quota_period(0.625).period_us, 1600);
}

TEST(CpuQuotaTest, FindsTheGroupInVersion2) {
  auto place = find_cgroup("0::/user.slice/session-2.scope\n",
                           "24 1 0:22 / /sys rw - sysfs sysfs rw\n"
                           "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
                           "cpu");
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->version, 2);
  EXPECT_EQ(place->mount + place->path, "/sys/fs/cgroup/user.slice/session-2.scope");
}

TEST(CpuQuotaTest, FindsTheGroupInVersion1BesideVersion2) {
  auto place = find_cgroup("9:name=systemd:/\n4:cpu,cpuacct:/jobs/7\n3:cpuset:/\n0::/\n",
                           "31 30 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
                           "32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
                           "33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
                           "cpu");
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->version, 1);
  EXPECT_EQ(place->mount + place->path, "/sys/fs/cgroup/cpu,cpuacct/jobs/7");
}

TEST(CpuQuotaTest, InAContainerTheMountBeginsWithinTheHierarchy) {
  auto place = find_cgroup("4:cpu:/docker/abc\n",
                           "32 30 0:28 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n", "cpu");
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->path, "/");
}

TEST(CpuQuotaTest, AQuotaOfAGroupAboveCounts) {
  std::string mount = testing::TempDir() + "quota-XXXXXX";
  ASSERT_NE(mkdtemp(mount.data()), nullptr);
  std::filesystem::create_directories(mount + "/jobs/7");
  const auto put = [&](const std::string& path, const char* text) { std::ofstream(mount + path) << text; };
  for (const int version : {1, 2}) {
    const CgroupPlace own{version, mount, "/jobs/7"}, root{version, mount, "/"};
    const char* const file = version == 2 ? "/cpu.max" : "/cpu.cfs_quota_us";
    EXPECT_FALSE(has_quota(own)) << "the controller may be missing";
    for (const char* group : {"/jobs/7", "/jobs", ""})
      put(std::string(group) + file, version == 2 ? "max 100000\n" : "-1\n");
    EXPECT_FALSE(has_quota(own));
    put(std::string("/jobs") + file, version == 2 ? "20000 100000\n" : "20000\n");
    EXPECT_TRUE(has_quota(own));
    EXPECT_FALSE(has_quota(root));
    put(file, version == 2 ? "1000 5000\n" : "1000\n");
    EXPECT_TRUE(has_quota(root));
  }
  std::filesystem::remove_all(mount);
}

TEST(CpuQuotaTest, SaysWhatIsMissing) {
  auto none = find_cgroup("", "", "cpu");
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, Error::unsupported);
  auto unmounted = find_cgroup("0::/\n", "24 1 0:22 / /sys rw - sysfs sysfs rw\n", "cpu");
  ASSERT_FALSE(unmounted.has_value());
  EXPECT_NE(unmounted.error().message.find("version 2"), std::string::npos);
}

}  // namespace
}  // namespace offpath::agent
