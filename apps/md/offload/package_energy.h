// The energy of the machine's processor packages, as Linux reports it by RAPL (Documentation/power/powercap).
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

namespace md {

class PackageEnergy {
 public:
  explicit PackageEnergy(const std::filesystem::path& root = "/sys/class/powercap");

  // Joules of all packages since the object was made, or since the last call; nothing where a counter cannot be read.
  // A counter begins again at most once between two calls.
  [[nodiscard]] std::optional<double> joules();

 private:
  struct Package {
    std::filesystem::path counter;
    double before_uj, range_uj;
  };
  std::vector<Package> packages_;
};

}  // namespace md
