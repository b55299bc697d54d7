#include "actuator/actuator.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include <fmt/format.h>

#include "actuator/former_setting.h"
#include "base/fd.h"
#include "base/text.h"

namespace offpath::actuator {

namespace {

struct IoLimit {
  std::string_view name;         // in io.max
  std::string_view version_one;  // the file of version 1 of cgroups
  bool counts_operations;
};
constexpr IoLimit io_limits[] = {{"rbps", "blkio.throttle.read_bps_device", false},
                                 {"wbps", "blkio.throttle.write_bps_device", false},
                                 {"riops", "blkio.throttle.read_iops_device", true},
                                 {"wiops", "blkio.throttle.write_iops_device", true}};
constexpr std::uint64_t value_max = 1ull << 53;
constexpr std::uint64_t thousandths = 1000;       // of a core
constexpr std::uint64_t cpu_max = 1'000'000'000;  // in thousandths: times a period of any length it fits 64 bits
constexpr std::uint64_t period_max_us = 1ull << 32;
constexpr std::uint64_t operations_max = 0xffff'ffff;  // in version 1 of cgroups; the kernel drops higher bits
constexpr std::size_t content_bytes_max = 1 << 20;

// To its end: the kernel gives a page at a time.
Result<std::string> content_of(int fd, const std::string& path) {
  std::string content;
  for (std::array<char, 4096> text{};;) {
    const ssize_t got = pread(fd, text.data(), text.size(), static_cast<off_t>(content.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(errno, "read " + path);
    if (got == 0) break;
    content.append(text.data(), static_cast<std::size_t>(got));
    if (content.size() > content_bytes_max)
      return fail(Error::too_large, "{} has more than {} bytes", path, content_bytes_max);
  }
  while (content.ends_with('\n')) content.pop_back();
  return content;
}

// One file. Kinds differ in the text of a value, and in their part of the file's content.
class FileActuator : public Actuator {
 public:
  // `version_one`: the file of a cgroup of version 1, used where there is no `path`; empty: a file of sysfs. `limit`:
  // the part of the file that is set.
  FileActuator(std::string path, std::string version_one, const std::string& limit, const Roots& roots)
      : usual_path_(std::move(path)),
        version_one_path_(std::move(version_one)),
        path_(usual_path_),
        former_(roots.former, limit.empty() ? path_ : fmt::format("{} {}", path_, limit)) {}

  bool was_left() const override { return former_.was_left(); }
  Status hold() override {
    OFP_ASSIGN(auto left, former_.hold());
    if (Status opened = open_and_note(std::move(left)); !opened) {
      // Without a file there is nothing to return to.
      former_.release(opened.error().code == Error::not_found || !has_left_);
      release_file();
      return opened;
    }
    return {};
  }
  Status set(std::uint64_t value) override {
    OFP_ASSIGN(std::string text, text_of(value));
    if (text != texts_.next) {
      texts_.next = text;
      OFP_TRY(former_.keep(texts_));
    }
    OFP_TRY(write(text));
    // The kernel may have rounded it.
    if (auto found = own_content()) text = std::move(*found);
    if (text == texts_.set) return {};
    texts_.set = std::move(text);
    return former_.keep(texts_);
  }
  Result<std::optional<std::string>> restore() override {
    const auto found = own_content();
    if (found && *found == texts_.former) return std::nullopt;
    if (found && *found != texts_.set && *found != texts_.next) return std::optional(*found);
    OFP_TRY(write(texts_.former));
    return std::nullopt;
  }
  void release() override {
    former_.release(true);
    release_file();
  }

 protected:
  // The part of the content that is written to return to it.
  [[nodiscard]] virtual Result<std::string> own_part(const std::string& content) { return content; }
  [[nodiscard]] virtual Result<std::string> text_of(std::uint64_t value) { return std::to_string(value); }
  [[nodiscard]] Result<std::string> content() const { return content_of(file_.get(), path_); }
  [[nodiscard]] bool is_version_one() const { return path_ == version_one_path_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  Status open_and_note(std::optional<FormerSetting::Texts> left) {
    has_left_ = left.has_value();
    OFP_TRY(open_file());
    OFP_ASSIGN(std::string now, own_content());
    texts_ = left ? std::move(*left) : FormerSetting::Texts{std::move(now), "", ""};
    return left ? Status() : former_.keep(texts_);
  }
  Status open_file() {
    for (const std::string& path : {usual_path_, version_one_path_}) {
      path_ = path;
      file_ = Fd(open(path_.c_str(), O_RDWR | O_CLOEXEC));
      if (file_) return {};
      if (errno != ENOENT || version_one_path_.empty()) return fail_errno(errno, "open " + path_);
    }
    return fail(Error::not_found, "there is neither {} nor {}", usual_path_, version_one_path_);
  }
  void release_file() {
    file_.reset();
    texts_ = {};
  }
  Result<std::string> own_content() {
    OFP_ASSIGN(const std::string content, this->content());
    return own_part(content);
  }
  // One write: the kernel parses each as a whole. It ignores the length, which an ordinary file has.
  Status write(const std::string& text) {
    [[maybe_unused]] const int cut = ftruncate(file_.get(), 0);
    ssize_t wrote = -1;
    do {
      wrote = pwrite(file_.get(), text.data(), text.size(), 0);
    } while (wrote < 0 && errno == EINTR);
    if (wrote == static_cast<ssize_t>(text.size())) return {};
    const int error_number = wrote < 0 ? errno : EIO;
    if (error_number == ENODEV && was_removed()) return fail(Error::not_found, "{} was removed", path_);
    return fail_errno(error_number, fmt::format("write '{}' to {}", text, path_));
  }
  // A new one in its place has settings of its own.
  [[nodiscard]] bool was_removed() const {
    if (version_one_path_.empty()) return false;
    struct stat own{}, found{};
    if (fstat(file_.get(), &own) != 0) return false;
    return stat(path_.c_str(), &found) != 0 ? errno == ENOENT : own.st_ino != found.st_ino;
  }

  std::string usual_path_, version_one_path_, path_;  // path_: which of the two was opened
  FormerSetting former_;
  FormerSetting::Texts texts_;
  bool has_left_ = false;
  Fd file_;
};

// cpu.max has a quota and a period, both in microseconds. Version 1 of cgroups has a file for each.
class CpuActuator final : public FileActuator {
 public:
  CpuActuator(const std::string& directory, const Roots& roots)
      : FileActuator(directory + "/cpu.max", directory + "/cpu.cfs_quota_us", "", roots), directory_(directory) {}

 private:
  Result<std::uint64_t> period_us() const {
    std::string text;
    if (is_version_one()) {
      const std::string path = directory_ + "/cpu.cfs_period_us";
      const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
      if (!file) return fail_errno(errno, "open " + path);
      OFP_ASSIGN(text, content_of(file.get(), path));
    } else {
      OFP_ASSIGN(text, content());
      text.erase(0, std::min(text.find(' '), text.size() - 1) + 1);
    }
    const auto period = number_of<std::uint64_t>(text);
    if (!period || *period == 0 || *period > period_max_us)
      return fail(Error::protocol, "{}: '{}' is not a period", path(), brief(text));
    return *period;
  }
  // Somebody else may have changed the period.
  Result<std::string> text_of(std::uint64_t value) override {
    OFP_ASSIGN(const std::uint64_t period, period_us());
    const std::uint64_t quota = value * period / thousandths;
    return is_version_one() ? std::to_string(quota) : fmt::format("{} {}", quota, period);
  }

  std::string directory_;
};

// io.max has a line for each device with any limit: "8:0 rbps=1048576 wbps=max riops=max wiops=max". Version 1 has a
// file for each limit, with a line for each device that has it: "8:0 1048576". Writing "8:0 0" removes the line.
class IoActuator final : public FileActuator {
 public:
  IoActuator(const std::string& directory, const std::string& device, IoLimit limit, const Roots& roots)
      : FileActuator(directory + "/io.max", fmt::format("{}/{}", directory, limit.version_one),
                     fmt::format("{} {}", device, limit.name), roots),
        device_(device),
        limit_(limit) {}

 private:
  Result<std::string> own_part(const std::string& content) override {
    for (std::string_view rest = content; !rest.empty();) {
      std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      if (!line.starts_with(device_ + " ")) continue;
      if (is_version_one()) return std::string(line);
      const std::size_t at = line.find(fmt::format(" {}=", limit_.name));
      if (at == std::string_view::npos) break;
      line.remove_prefix(at + 1);
      return fmt::format("{} {}", device_, line.substr(0, line.find(' ')));
    }
    return is_version_one() ? device_ + " 0" : fmt::format("{} {}=max", device_, limit_.name);
  }
  Result<std::string> text_of(std::uint64_t value) override {
    if (!is_version_one()) return fmt::format("{} {}={}", device_, limit_.name, value);
    return fmt::format("{} {}", device_, limit_.counts_operations ? std::min(value, operations_max) : value);
  }

  std::string device_;
  IoLimit limit_;
};

// MAJOR:MINOR as the kernel writes it; empty: not a device.
std::optional<std::string> device_of(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto major = number_of<std::uint32_t>(text.substr(0, colon));
  const auto minor = number_of<std::uint32_t>(text.substr(colon + 1));
  if (!major || !minor) return std::nullopt;
  return fmt::format("{}:{}", *major, *minor);
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
    return fail(Error::invalid,
                "actuator {}: min is {} and max is {}: both are required, from 1 to {}, and min is at most max",
                options.name, options.min, options.max, value_max);
  if (options.kind == Kind::cpu && options.max > cpu_max)
    return fail(Error::invalid, "actuator {}: max is {} thousandths of a core, at most {} are allowed", options.name,
                options.max, cpu_max);
  if (options.lease_ns <= 0)
    return fail(Error::invalid, "actuator {}: its lease has to be longer than 0", options.name);
  const bool is_io = options.kind == Kind::io;
  if (is_io && !device_of(options.device))
    return fail(Error::invalid, "actuator {}: '{}' is not a device, MAJOR:MINOR", options.name, options.device);
  if (is_io && std::ranges::find(io_limits, options.limit, &IoLimit::name) == std::end(io_limits))
    return fail(Error::invalid, "actuator {}: '{}' is not rbps, wbps, riops or wiops", options.name, options.limit);
  if (!is_io && !(options.device.empty() && options.limit.empty()))
    return fail(Error::invalid, "actuator {}: only actuators of kind io have a device and a limit", options.name);
  return {};
}

std::unique_ptr<Actuator> make_actuator(const ActuatorOptions& options, const Roots& roots) {
  const std::string group = fmt::format("{}/{}", roots.cgroups, options.where);
  switch (options.kind) {
    case Kind::power:
      return std::make_unique<FileActuator>(
          fmt::format("{}/class/powercap/{}/constraint_0_power_limit_uw", roots.sysfs, options.where), "", "", roots);
    case Kind::cpufreq:
      return std::make_unique<FileActuator>(
          fmt::format("{}/devices/system/cpu/cpufreq/{}/scaling_max_freq", roots.sysfs, options.where), "", "", roots);
    case Kind::cpu:
      return std::make_unique<CpuActuator>(group, roots);
    case Kind::io:
      return std::make_unique<IoActuator>(group, *device_of(options.device),
                                          *std::ranges::find(io_limits, options.limit, &IoLimit::name), roots);
  }
  return nullptr;
}

}  // namespace offpath::actuator
