// A limit of this process's processor time, by a cgroup of its own: slows an agent on a fast machine down to the speed
// of one on a device. Supports versions 1 and 2 of the interface.
#pragma once

#include <string>

#include "base/status.h"

namespace offpath::agent {

class CpuQuota {
 public:
  // `cores`: processor time for each second of time. Error::denied and unsupported say what is missing.
  [[nodiscard]] static Result<CpuQuota> apply(double cores);
  CpuQuota(CpuQuota&& other) noexcept;
  CpuQuota& operator=(CpuQuota&&) = delete;
  // Moves the process back to its previous group and removes this one. After capabilities were given up that may not be
  // permitted; then the next agent removes it.
  ~CpuQuota();

  [[nodiscard]] const std::string& group() const noexcept { return group_; }

 private:
  CpuQuota(std::string group, std::string before) : group_(std::move(group)), before_(std::move(before)) {}
  std::string group_, before_;  // directories
};

// One period: the shortest that the kernel accepts, so that the process is slowed evenly and not stopped for long.
struct QuotaPeriod {
  long quota_us, period_us;
};
[[nodiscard]] QuotaPeriod quota_period(double cores) noexcept;

// The directory of this process's group for `controller`, from /proc/self/cgroup and /proc/self/mountinfo.
struct CgroupPlace {
  int version = 2;
  std::string mount, path;  // directory = mount + path
};
[[nodiscard]] Result<CgroupPlace> find_cgroup(const std::string& cgroups, const std::string& mounts,
                                              const std::string& controller);

// Whether a quota limits the group at `place`, or one above it as far as the mount shows them.
[[nodiscard]] bool has_quota(const CgroupPlace& place);
[[nodiscard]] bool has_quota();  // this process

}  // namespace offpath::agent
