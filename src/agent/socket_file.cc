#include "agent/socket_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace offpath::agent {

Status prepare_directory_of(const std::string& path, bool everyone) {
  const std::size_t slash = path.rfind('/');
  const std::string directory = slash == 0 ? "/" : path.substr(0, slash);
  const mode_t mode = everyone ? 0755 : 0700;
  const mode_t mask = umask(0);
  const int made = mkdir(directory.c_str(), mode);
  const int error_number = errno;
  umask(mask);
  if (made == 0) return {};
  if (error_number != EEXIST) return fail_errno(error_number, fmt::format("making the directory {}", directory));
  struct stat status{};
  if (stat(directory.c_str(), &status) != 0) return fail_errno(errno, "stat " + directory);
  if (!S_ISDIR(status.st_mode)) return fail(Error::invalid, "{} is not a directory", directory);
  const bool others_write = (status.st_mode & (S_IWGRP | S_IWOTH)) != 0, sticky = (status.st_mode & S_ISVTX) != 0;
  if ((status.st_uid != geteuid() && status.st_uid != 0) || (others_write && !sticky)) {
    return fail(Error::denied,
                "directory {} belongs to user {} and has mode {:o}: others could put files in the "
                "place of the agent's; it must belong to {} or root and be writable by its owner alone",
                directory, status.st_uid, status.st_mode & 07777, geteuid());
  }
  return {};
}

SocketFile::SocketFile(std::string path) : path_(std::move(path)) {
  struct stat status{};
  if (lstat(path_.c_str(), &status) != 0) path_.clear();
  device_ = status.st_dev;
  inode_ = status.st_ino;
}

SocketFile::SocketFile(SocketFile&& other) noexcept
    : path_(std::exchange(other.path_, {})), device_(other.device_), inode_(other.inode_) {}

SocketFile::~SocketFile() {
  if (path_.empty()) return;
  struct stat status{};
  if (lstat(path_.c_str(), &status) == 0 && status.st_dev == device_ && status.st_ino == inode_) unlink(path_.c_str());
}

}  // namespace offpath::agent
