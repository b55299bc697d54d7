#include "actuator/actuator.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include <fmt/format.h>

#include "base/fd.h"
#include "base/text.h"

namespace offpath::actuator {

namespace {

constexpr std::string_view io_limits[] = {"rbps", "wbps", "riops", "wiops"};
constexpr std::uint64_t value_max = 1ull << 53;
constexpr std::uint64_t thousandths = 1000;  // of a core

Result<std::string> content_of(int fd, const std::string& path) {
  std::array<char, 4096> text{};
  const ssize_t got = pread(fd, text.data(), text.size(), 0);
  if (got < 0) return fail_errno(errno, "read " + path);
  std::string_view content(text.data(), static_cast<std::size_t>(got));
  while (content.ends_with('\n')) content.remove_suffix(1);
  return std::string(content);
}

// One write: the kernel parses each as a whole. It ignores the length, which an ordinary file has.
Status write_to(int fd, const std::string& path, const std::string& text) {
  [[maybe_unused]] const int cut = ftruncate(fd, 0);
  ssize_t wrote = -1;
  do {
    wrote = pwrite(fd, text.data(), text.size(), 0);
  } while (wrote < 0 && errno == EINTR);
  if (wrote == static_cast<ssize_t>(text.size())) return {};
  if (wrote < 0 && errno == ENODEV) return fail(Error::not_found, "{} was removed", path);
  return fail_errno(wrote < 0 ? errno : EIO, fmt::format("write '{}' to {}", text, path));
}

// One file; kinds differ in the text that stands for a value, and in what of the content is theirs.
class FileActuator : public Actuator {
 public:
  explicit FileActuator(std::string path) : path_(std::move(path)) {}

  Result<std::string> hold() override {
    Fd file = open_file();
    if (!file) return fail_errno(errno, "open " + path_);
    if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return fail(Error::exists, "another agent sets {}", path_);
      return fail_errno(errno, "lock " + path_);
    }
    OFP_ASSIGN(const std::string content, content_of(file.get(), path_));
    OFP_ASSIGN(std::string held, own_part(content));
    file_ = std::move(file);
    return held;
  }
  Status set(std::uint64_t value) override {
    OFP_ASSIGN(const std::string text, text_of(value));
    return restore(text);
  }
  Status restore(const std::string& held) override { return write_to(file_.get(), path_, held); }
  void release() override { file_.reset(); }

 protected:
  // Opens path_, or another file instead of it. Sets errno on failure.
  virtual Fd open_file() { return Fd(open(path_.c_str(), O_RDWR | O_CLOEXEC)); }
  // The part of the content that restore() writes.
  [[nodiscard]] virtual Result<std::string> own_part(const std::string& content) { return content; }
  [[nodiscard]] virtual Result<std::string> text_of(std::uint64_t value) { return std::to_string(value); }

  std::string path_;
  Fd file_;
};

// cpu.max has a quota and a period, both in microseconds; a write of the quota alone keeps the period. Version 1 of
// cgroups has a file for each.
class CpuActuator final : public FileActuator {
 public:
  explicit CpuActuator(std::string directory)
      : FileActuator(directory + "/cpu.max"), directory_(std::move(directory)) {}

 private:
  Fd open_file() override {
    path_ = directory_ + "/cpu.max";
    Fd file = FileActuator::open_file();
    if (file || errno != ENOENT) return file;
    path_ = directory_ + "/cpu.cfs_quota_us";
    return FileActuator::open_file();
  }
  Result<std::string> own_part(const std::string& content) override {
    std::string period = content.substr(std::min(content.find(' '), content.size()));
    if (path_.ends_with("cpu.cfs_quota_us")) {
      const std::string path = directory_ + "/cpu.cfs_period_us";
      const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
      if (!file) return fail_errno(errno, "open " + path);
      OFP_ASSIGN(period, content_of(file.get(), path));
    }
    period.erase(0, period.find_first_not_of(' '));
    const auto read = number_of<std::uint64_t>(period);
    if (!read || *read == 0) return fail(Error::protocol, "{}: '{}' has no period", path_, content);
    period_us_ = *read;
    return content.substr(0, content.find(' '));
  }
  Result<std::string> text_of(std::uint64_t value) override { return std::to_string(value * period_us_ / thousandths); }

  std::string directory_;
  std::uint64_t period_us_ = 0;
};

// io.max has a line for each device with any limit: "8:0 rbps=1048576 wbps=max riops=max wiops=max".
class IoActuator final : public FileActuator {
 public:
  IoActuator(std::string path, std::string device, std::string limit)
      : FileActuator(std::move(path)), device_(std::move(device)), limit_(std::move(limit)) {}

 private:
  Result<std::string> own_part(const std::string& content) override {
    for (std::string_view rest = content; !rest.empty();) {
      std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      if (!line.starts_with(device_ + " ")) continue;
      const std::size_t at = line.find(fmt::format(" {}=", limit_));
      if (at == std::string_view::npos) break;
      line.remove_prefix(at + 1);
      return fmt::format("{} {}", device_, line.substr(0, line.find(' ')));
    }
    return fmt::format("{} {}=max", device_, limit_);
  }
  Result<std::string> text_of(std::uint64_t value) override { return fmt::format("{} {}={}", device_, limit_, value); }

  std::string device_, limit_;
};

bool is_device(std::string_view text) {
  const std::size_t colon = text.find(':');
  return colon != std::string_view::npos && number_of<std::uint32_t>(text.substr(0, colon)) &&
         number_of<std::uint32_t>(text.substr(colon + 1));
}

bool stays_below(std::string_view where) {
  if (where.starts_with('/') || where.ends_with('/')) return false;
  for (std::string_view rest = where; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find('/'));
    rest.remove_prefix(std::min(part.size() + 1, rest.size()));
    if (part.empty() || part == "." || part == ".." || part.find('\0') != std::string_view::npos) return false;
  }
  return true;
}

}  // namespace

std::optional<Kind> kind_of(std::string_view name) noexcept {
  for (std::size_t i = 0; i < std::size(kind_names); ++i)
    if (kind_names[i] == name) return static_cast<Kind>(i);
  return std::nullopt;
}

Status check(const ActuatorOptions& options) {
  if (options.name.empty() || options.name.size() > name_bytes_max)
    return fail(Error::invalid, "the name of an actuator has {} characters, 1 to {} are allowed", options.name.size(),
                name_bytes_max);
  if (options.where.empty() || !stays_below(options.where))
    return fail(Error::invalid, "actuator {}: '{}' is not a directory below the root of its kind", options.name,
                options.where);
  if (options.min == 0 || options.max < options.min || options.max > value_max)
    return fail(Error::invalid, "actuator {}: values from {} to {}, both are needed, 1 to {}, the smaller one first",
                options.name, options.min, options.max, value_max);
  if (options.lease_ns <= 0) return fail(Error::invalid, "actuator {}: a lease of no time", options.name);
  const bool is_io = options.kind == Kind::io;
  if (is_io && !is_device(options.device))
    return fail(Error::invalid, "actuator {}: '{}' is not a device, MAJOR:MINOR", options.name, options.device);
  if (is_io && std::ranges::find(io_limits, options.limit) == std::end(io_limits))
    return fail(Error::invalid, "actuator {}: '{}' is not rbps, wbps, riops or wiops", options.name, options.limit);
  if (!is_io && !(options.device.empty() && options.limit.empty()))
    return fail(Error::invalid, "actuator {}: only io has a device and a limit of it", options.name);
  return {};
}

std::unique_ptr<Actuator> make_actuator(const ActuatorOptions& options, const Roots& roots) {
  switch (options.kind) {
    case Kind::power:
      return std::make_unique<FileActuator>(
          fmt::format("{}/class/powercap/{}/constraint_0_power_limit_uw", roots.sysfs, options.where));
    case Kind::cpufreq:
      return std::make_unique<FileActuator>(
          fmt::format("{}/devices/system/cpu/cpufreq/{}/scaling_max_freq", roots.sysfs, options.where));
    case Kind::cpu:
      return std::make_unique<CpuActuator>(fmt::format("{}/{}", roots.cgroups, options.where));
    case Kind::io:
      return std::make_unique<IoActuator>(fmt::format("{}/{}/io.max", roots.cgroups, options.where), options.device,
                                          options.limit);
  }
  return nullptr;
}

}  // namespace offpath::actuator
