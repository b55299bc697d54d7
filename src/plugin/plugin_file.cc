#include "plugin/plugin_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <memory>

namespace offpath::plugin {

namespace {

Status check_owner(const std::string& path, const struct stat& status, bool sticky_is_enough) {
  if (status.st_uid != 0 && status.st_uid != geteuid())
    return fail(Error::denied, "{} belongs to user {}: only files of root and of the agent's user ({}) are loaded", path, status.st_uid,
                geteuid());
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0 && !(sticky_is_enough && (status.st_mode & S_ISVTX) != 0))
    return fail(Error::denied, "{} has the mode {:04o}: others may write to it", path, status.st_mode & 07777);
  return {};
}

}  // namespace

Result<std::string> find_plugin_file(const std::string& path) {
  if (!path.starts_with('/')) return fail(Error::invalid, "'{}' is not an absolute path", path);
  const std::unique_ptr<char, decltype(&std::free)> resolved(realpath(path.c_str(), nullptr), std::free);
  if (!resolved) return fail_errno(errno, path);
  const std::string file(resolved.get());
  struct stat status{};
  if (stat(file.c_str(), &status) != 0) return fail_errno(errno, file);
  if (!S_ISREG(status.st_mode)) return fail(Error::invalid, "{} is not a file", file);
  OFP_TRY(check_owner(file, status, false));
  for (std::size_t slash = file.rfind('/'); slash != std::string::npos; slash = slash == 0 ? std::string::npos : file.rfind('/', slash - 1)) {
    const std::string directory = slash == 0 ? "/" : file.substr(0, slash);
    if (stat(directory.c_str(), &status) != 0) return fail_errno(errno, directory);
    OFP_TRY(check_owner(directory, status, true));
  }
  return file;
}

}  // namespace offpath::plugin
