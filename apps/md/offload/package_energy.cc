#include "md/offload/package_energy.h"

#include <fstream>
#include <string>
#include <system_error>

namespace md {
namespace {

std::optional<double> number_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  double number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

}  // namespace

PackageEnergy::PackageEnergy(const std::filesystem::path& root) {
  std::error_code missing;
  for (const auto& zone : std::filesystem::directory_iterator(root, missing)) {
    if (!zone.path().filename().string().starts_with("intel-rapl:")) continue;
    std::string name;
    std::ifstream(zone.path() / "name") >> name;
    if (!name.starts_with("package")) continue;
    const auto now = number_in(zone.path() / "energy_uj"), range = number_in(zone.path() / "max_energy_range_uj");
    if (!now || !range) {
      packages_.clear();
      return;
    }
    packages_.push_back({zone.path() / "energy_uj", *now, *range});
  }
}

std::optional<double> PackageEnergy::joules() {
  if (packages_.empty()) return std::nullopt;
  double used_uj = 0;
  for (Package& package : packages_) {
    const auto now = number_in(package.counter);
    if (!now) return std::nullopt;
    used_uj += *now - package.before_uj + (*now < package.before_uj ? package.range_uj : 0);
    package.before_uj = *now;
  }
  return used_uj / 1e6;
}

}  // namespace md
