#include "plugin/plugin_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <memory>

namespace offpath::plugin {

namespace {

Status check_owner(const std::string& path, const struct stat& status, uid_t owner, bool sticky_is_enough) {
  if (status.st_uid != 0 && status.st_uid != owner)
    return fail(Error::denied, "{} belongs to user {}: only files of root and of user {} are loaded", path,
                status.st_uid, owner);
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0 && !(sticky_is_enough && (status.st_mode & S_ISVTX) != 0))
    return fail(Error::denied, "{} has the mode {:04o}: others may write to it", path, status.st_mode & 07777);
  return {};
}

constexpr int links_max = 40;  // the kernel's limit

Result<std::string> target_of(int link, const std::string& path) {
  std::array<char, PATH_MAX> target{};
  const ssize_t length = readlinkat(link, "", target.data(), target.size());
  if (length < 0) return fail_errno(errno, path);
  if (static_cast<std::size_t>(length) == target.size())
    return fail(Error::too_large, "{}: the target of the link is too long", path);
  return std::string(target.data(), static_cast<std::size_t>(length));
}

Result<Fd> open_folder(int above, const char* name, const std::string& path, uid_t owner) {
  Fd folder(openat(above, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status{};
  if (!folder || fstat(folder.get(), &status) != 0) return fail_errno(errno, path);
  OFP_TRY(check_owner(path, status, owner, true));
  return folder;
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
  OFP_TRY(check_owner(file, status, geteuid(), false));
  for (std::size_t slash = file.rfind('/'); slash != std::string::npos;
       slash = slash == 0 ? std::string::npos : file.rfind('/', slash - 1)) {
    const std::string directory = slash == 0 ? "/" : file.substr(0, slash);
    if (stat(directory.c_str(), &status) != 0) return fail_errno(errno, directory);
    OFP_TRY(check_owner(directory, status, geteuid(), true));
  }
  return file;
}

Result<Fd> open_plugin_file(const std::string& path, uid_t owner) {
  if (!path.starts_with('/')) return fail(Error::invalid, "'{}' is not an absolute path", path);
  std::string rest = path;  // the rest of the path, from `folder` on
  std::string so_far;       // for messages
  Fd folder;
  for (int links = 0;;) {
    if (rest.starts_with('/')) {
      so_far.clear();
      OFP_ASSIGN(folder, open_folder(AT_FDCWD, "/", "/", owner));
    }
    const std::size_t begins = rest.find_first_not_of('/');
    if (begins == std::string::npos) return fail(Error::invalid, "{} is not a file", path);
    const std::size_t ends = std::min(rest.find('/', begins), rest.size());
    const std::string name = rest.substr(begins, ends - begins);
    rest = rest.substr(std::min(rest.find_first_not_of('/', ends), rest.size()));
    const std::string here = so_far + "/" + name;
    const Fd found(openat(folder.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat status{};
    if (!found || fstat(found.get(), &status) != 0) return fail_errno(errno, here);
    if (S_ISLNK(status.st_mode)) {
      if (++links > links_max)
        return fail(Error::invalid, "{} leads through more than {} symbolic links", path, links_max);
      status.st_mode = 0;  // a link's own mode is meaningless: users who may write to its folder can replace it
      OFP_TRY(check_owner(here, status, owner, false));
      OFP_ASSIGN(std::string target, target_of(found.get(), here));
      if (target.empty()) return fail(Error::invalid, "{} is a link without a target", here);
      rest = rest.empty() ? std::move(target) : target + "/" + rest;
      continue;
    }
    if (S_ISDIR(status.st_mode)) {
      OFP_ASSIGN(folder, open_folder(folder.get(), name.c_str(), here, owner));
      so_far = here;
      continue;
    }
    // Neither blocks nor affects a special file, in case the file was replaced meanwhile.
    if (!S_ISREG(status.st_mode) || !rest.empty())
      return fail(Error::invalid, "{} is not a {}", here, rest.empty() ? "file" : "folder");
    Fd file(openat(folder.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (!file || fstat(file.get(), &status) != 0) return fail_errno(errno, here);
    if (!S_ISREG(status.st_mode)) return fail(Error::invalid, "{} is not a file", here);
    OFP_TRY(check_owner(here, status, owner, false));
    return file;
  }
}

}  // namespace offpath::plugin
