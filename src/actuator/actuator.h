// A limit of this machine that a decision may set: one file of sysfs or of a cgroup, behind one interface. Read this
// first in src/actuator, then keeper.h (leases) and keeper_process.h (which outlives the agent).
//
//   kind     file, below the root of its kind                          unit of a value               no limit
//   power    sysfs: class/powercap/WHERE/constraint_0_power_limit_uw   microwatts                    -
//   cpufreq  sysfs: devices/system/cpu/cpufreq/WHERE/scaling_max_freq  kHz                           -
//   cpu      cgroups: WHERE/cpu.max                                    thousandths of a core         max
//            version 1: WHERE/cpu.cfs_quota_us                                                       -1
//   io       cgroups: WHERE/io.max, one limit of one device            bytes or operations a second  max
//            version 1: WHERE/blkio.throttle.write_bps_device and its like                           0
//
// Nothing here decides, waits or knows the time. Errors name the file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace offpath::actuator {

inline constexpr std::size_t name_bytes_max = 63;
inline constexpr std::size_t actuators_max = 256;  // of an agent

enum class Kind : std::uint8_t { power, cpufreq, cpu, io };
inline constexpr std::string_view kind_names[] = {"power", "cpufreq", "cpu", "io"};
[[nodiscard]] std::optional<Kind> kind_of(std::string_view name) noexcept;

// An [[actuator]] of the configuration.
struct ActuatorOptions {
  std::string name;
  Kind kind = Kind::cpu;
  std::string where;   // a directory below the root: "intel-rapl:0", "policy0", "slurm/job_7"
  std::string device;  // of io: "8:0"
  std::string limit;   // of io: rbps, wbps, riops or wiops
  std::uint64_t min = 0, max = 0;
  TimeNs lease_ns = 10 * second_ns;  // of one setting, at most
};

// Where the kernel's files are; others in tests.
struct Roots {
  std::string sysfs = "/sys", cgroups = "/sys/fs/cgroup";
  std::string former;  // a directory of this user's own, for former settings (former_setting.h)
};

// Checks names, bounds, and that `where` stays below its root.
[[nodiscard]] Status check(const ActuatorOptions& options);

class Actuator {
 public:
  virtual ~Actuator() = default;
  // An earlier process has ended without restore(): hold() and restore() make up for it.
  [[nodiscard]] virtual bool was_left() const = 0;
  // Notes the former setting. From then on until release() no other process with the same Roots::former holds it.
  // Error::not_found: there is no such file; its former setting counts as returned.
  [[nodiscard]] virtual Status hold() = 0;
  // Error::not_found: it was removed, and there is nothing to return to.
  [[nodiscard]] virtual Status set(std::uint64_t value) = 0;
  // Returns it to the former setting. A setting that differs from set()'s belongs to another process: it stays, and is
  // returned. Error::not_found as above.
  [[nodiscard]] virtual Result<std::optional<std::string>> restore() = 0;
  virtual void release() = 0;  // nothing set here is in force
};

// `options` were checked. The file is opened when it is held, so it may be made later than the agent.
[[nodiscard]] std::unique_ptr<Actuator> make_actuator(const ActuatorOptions& options, const Roots& roots);

}  // namespace offpath::actuator
