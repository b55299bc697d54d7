#include "channel/offered_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

namespace offpath::channel {

namespace {

constexpr std::array<std::string_view, 11> local_kinds{"ext2", "ext3", "ext4",  "xfs",     "btrfs",   "f2fs",
                                                       "zfs",  "jfs",  "tmpfs", "overlay", "bcachefs"};

// The file system type of the file in this process's mounts; empty if it is not mounted. Containers' files have the
// same device even if their mount differs.
std::string kind_of(const struct statx& file) {
  const std::string id = (file.stx_mask & STATX_MNT_ID) != 0 ? fmt::format("{}", file.stx_mnt_id) : std::string();
  const std::string device = fmt::format("{}:{}", file.stx_dev_major, file.stx_dev_minor);
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream words(line);
    std::string number, parent, at;
    words >> number >> parent >> at;
    const std::size_t kind = line.find(" - ");
    if ((number != id && at != device) || kind == std::string::npos) continue;
    return line.substr(kind + 3, line.find(' ', kind + 3) - kind - 3);
  }
  return {};
}

}  // namespace

Status check_offered_file(int fd) {
  struct statx file{};
  if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_MNT_ID, &file) != 0)
    return fail_errno(errno, "statx of the file to be written");
  if (!S_ISREG(file.stx_mode))
    return fail(Error::unsupported,
                "the descriptor to write to is not a regular file (mode {:o}): the program writes it", file.stx_mode);
  if (fcntl(fd, F_GET_SEALS) >= 0) return {};  // a memfd
  const std::string kind = kind_of(file);
  if (std::ranges::find(local_kinds, kind) != local_kinds.end()) return {};
  return fail(Error::unsupported,
              "the file to write is on a file system that may wait for another process (\"{}\"): the program writes it",
              kind);
}

}  // namespace offpath::channel
