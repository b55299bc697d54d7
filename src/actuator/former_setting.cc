#include "actuator/former_setting.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/hash/siphash.h"

namespace offpath::actuator {

namespace {

constexpr std::uint8_t key[16] = {'o', 'f', 'f', 'p', 'a', 't', 'h', ' ', 'l', 'i', 'm', 'i', 't'};  // no secret
constexpr std::size_t bytes_max = 16384;
constexpr unsigned tries = 16;  // for a file that others remove while it is locked

// The locked file is still the one under the path.
bool is_at(int fd, const std::string& path) {
  struct stat own{}, found{};
  return fstat(fd, &own) == 0 && stat(path.c_str(), &found) == 0 && own.st_ino == found.st_ino &&
         own.st_dev == found.st_dev;
}

Status check_owner(int fd, const std::string& path) {
  struct stat status{};
  if (fstat(fd, &status) != 0) return fail_errno(errno, "stat " + path);
  if (S_ISREG(status.st_mode) && status.st_uid == geteuid() && (status.st_mode & 077) == 0) return {};
  return fail(Error::denied, "{} belongs to user {} and has mode {:o}: it must be a file of this user alone", path,
              status.st_uid, status.st_mode & 07777);
}

}  // namespace

FormerSetting::FormerSetting(const std::string& directory, std::string limit)
    : path_(fmt::format("{}/{:016x}", directory, ofp_siphash64(key, limit.data(), limit.size()))),
      limit_(std::move(limit)) {}

bool FormerSetting::was_left() const {
  struct stat status{};
  return lstat(path_.c_str(), &status) == 0;
}

Result<std::optional<FormerSetting::Texts>> FormerSetting::hold() {
  for (unsigned i = 0; i < tries; ++i) {
    Fd file(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) return fail_errno(errno, "open " + path_);
    OFP_TRY(check_owner(file.get(), path_));
    if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return fail(Error::exists, "another agent sets {}", limit_);
      return fail_errno(errno, "lock " + path_);
    }
    if (!is_at(file.get(), path_)) continue;
    file_ = std::move(file);
    auto left = read();
    if (!left) file_.reset();
    return left;
  }
  return fail(Error::exists, "other processes keep creating and removing {}", path_);
}

// limit, former, set, next and "end", a line each. The rest of the file is of an earlier, longer content.
Result<std::optional<FormerSetting::Texts>> FormerSetting::read() const {
  std::array<char, bytes_max> bytes{};
  const ssize_t got = pread(file_.get(), bytes.data(), bytes.size(), 0);
  if (got < 0) return fail_errno(errno, "read " + path_);
  std::string_view rest(bytes.data(), static_cast<std::size_t>(got));
  std::array<std::string_view, 5> lines;
  for (std::string_view& line : lines) {
    const std::size_t end = rest.find('\n');
    if (end == std::string_view::npos) return std::nullopt;  // its process was killed before anything was set
    line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
  }
  if (lines[4] != "end") return std::nullopt;
  if (lines[0] != limit_)
    return fail(Error::exists, "{} belongs to the limit {}, not to {}", path_, brief(lines[0]), limit_);
  return Texts{std::string(lines[1]), std::string(lines[2]), std::string(lines[3])};
}

Status FormerSetting::keep(const Texts& texts) {
  const std::string text = fmt::format("{}\n{}\n{}\n{}\nend\n", limit_, texts.former, texts.set, texts.next);
  if (text.size() > bytes_max) return fail(Error::too_large, "{}: {} bytes", path_, text.size());
  const ssize_t wrote = pwrite(file_.get(), text.data(), text.size(), 0);
  if (wrote != static_cast<ssize_t>(text.size())) return fail_errno(wrote < 0 ? errno : ENOSPC, "write " + path_);
  return {};
}

void FormerSetting::release(bool remove) {
  if (remove && file_) unlink(path_.c_str());
  file_.reset();
}

}  // namespace offpath::actuator
