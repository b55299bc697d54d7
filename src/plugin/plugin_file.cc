#include "plugin/plugin_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <memory>

namespace offpath::plugin {

namespace {

Status check_owner(const std::string& path, const struct stat& status, uid_t owner, bool sticky_is_enough) {
  if (status.st_uid != 0 && status.st_uid != owner)
    return fail(Error::denied, "{} belongs to user {}: only files of root and of the agent's user ({}) are loaded", path, status.st_uid,
                owner);
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0 && !(sticky_is_enough && (status.st_mode & S_ISVTX) != 0))
    return fail(Error::denied, "{} has the mode {:04o}: others may write to it", path, status.st_mode & 07777);
  return {};
}

Result<std::string> find_file(const std::string& path, uid_t owner) {
  if (!path.starts_with('/')) return fail(Error::invalid, "'{}' is not an absolute path", path);
  const std::unique_ptr<char, decltype(&std::free)> resolved(realpath(path.c_str(), nullptr), std::free);
  if (!resolved) return fail_errno(errno, path);
  const std::string file(resolved.get());
  struct stat status{};
  if (stat(file.c_str(), &status) != 0) return fail_errno(errno, file);
  if (!S_ISREG(status.st_mode)) return fail(Error::invalid, "{} is not a file", file);
  OFP_TRY(check_owner(file, status, owner, false));
  for (std::size_t slash = file.rfind('/'); slash != std::string::npos; slash = slash == 0 ? std::string::npos : file.rfind('/', slash - 1)) {
    const std::string directory = slash == 0 ? "/" : file.substr(0, slash);
    if (stat(directory.c_str(), &status) != 0) return fail_errno(errno, directory);
    OFP_TRY(check_owner(directory, status, owner, true));
  }
  return file;
}

}  // namespace

Result<std::string> find_plugin_file(const std::string& path) { return find_file(path, geteuid()); }

Result<std::string> find_plugin_file_of(uid_t user, const std::string& path) {
  auto file = find_file(path, user);
  if (file) return file;
  return fail(Error::denied, "it is to be a regular file of user {} or of root that nobody else may write to, and so are the folders above it", user);
}

}  // namespace offpath::plugin
