// A limit for the processor time of this process, by a cgroup of its own: what makes an agent on a fast machine as
// slow as one on a device. Version 1 and 2 of the interface.
#pragma once

#include <string>

#include "base/status.h"

namespace offpath::agent {

class CpuQuota {
 public:
  // `cores`: processor time for each second of time. Error::denied or unsupported says what is missing.
  [[nodiscard]] static Result<CpuQuota> apply(double cores);
  CpuQuota(CpuQuota&& other) noexcept;
  CpuQuota& operator=(CpuQuota&&) = delete;
  // The process goes back to where it was, and the group is removed; where capabilities were given up meanwhile that
  // may not be permitted, and the next agent removes it.
  ~CpuQuota();

  [[nodiscard]] const std::string& group() const noexcept { return group_; }

 private:
  CpuQuota(std::string group, std::string before) : group_(std::move(group)), before_(std::move(before)) {}
  std::string group_, before_;  // directories
};

// Of one period: the shortest the kernel takes, so that the process is slow all the time, not stopped for long.
struct QuotaPeriod {
  long quota_us, period_us;
};
[[nodiscard]] QuotaPeriod quota_period(double cores) noexcept;

// The directory of this process's group for `controller`, by /proc/self/cgroup and /proc/self/mountinfo.
struct CgroupPlace {
  int version = 2;
  std::string mount, path;  // directory = mount + path
};
[[nodiscard]] Result<CgroupPlace> find_cgroup(const std::string& cgroups, const std::string& mounts,
                                              const std::string& controller);

}  // namespace offpath::agent
