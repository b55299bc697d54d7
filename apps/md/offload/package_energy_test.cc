#include "md/offload/package_energy.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace md {
namespace {

class Zones : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(testing::TempDir()) /
            (std::string("powercap-") + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void zone(const std::string& folder, const std::string& name, const std::string& energy_uj) const {
    std::filesystem::create_directories(root_ / folder);
    std::ofstream(root_ / folder / "name") << name << "\n";
    std::ofstream(root_ / folder / "energy_uj") << energy_uj << "\n";
    std::ofstream(root_ / folder / "max_energy_range_uj") << "100000000\n";
  }
  std::filesystem::path root_;
};

TEST_F(Zones, EnergyIsThatOfAllPackagesSinceTheLastCall) {
  zone("intel-rapl:0", "package-0", "20000000");
  zone("intel-rapl:1", "package-1", "99000000");
  zone("intel-rapl:0:0", "core", "0");
  zone("intel-rapl:2", "psys", "0");
  PackageEnergy energy(root_);
  zone("intel-rapl:0", "package-0", "23000000");
  zone("intel-rapl:1", "package-1", "1000000");  // it began again
  zone("intel-rapl:2", "psys", "9000000");
  EXPECT_DOUBLE_EQ(energy.joules().value_or(0), 5);
  zone("intel-rapl:0", "package-0", "24000000");
  EXPECT_DOUBLE_EQ(energy.joules().value_or(0), 1);
}

TEST_F(Zones, EnergyThatCannotBeReadIsNone) {
  EXPECT_FALSE(PackageEnergy(root_ / "none").joules());
  zone("intel-rapl:0", "psys", "0");
  EXPECT_FALSE(PackageEnergy(root_).joules());
  zone("intel-rapl:1", "package-0", "");
  EXPECT_FALSE(PackageEnergy(root_).joules());
}

}  // namespace
}  // namespace md
