#include "base/files/own_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace offpath {

Result<Fd> open_own_directory(std::string path, mode_t mode, Links links) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();  // behind a '/' the kernel follows every link
  if (mkdir(path.c_str(), mode) != 0 && errno != EEXIST)
    return fail_errno(errno, fmt::format("making the directory {}", path));
  const int follow = links == Links::follow ? 0 : O_NOFOLLOW;
  Fd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | follow));
  if (!fd && links == Links::refuse && (errno == ELOOP || errno == ENOTDIR))
    return fail(Error::denied, "{} is a symbolic link or no directory: name the directory itself", path);
  if (!fd) return fail_errno(errno, fmt::format("opening the directory {}", path));
  struct stat status{};
  if (fstat(fd.get(), &status) != 0) return fail_errno(errno, "fstat " + path);
  if (status.st_uid != geteuid())
    return fail(Error::denied, "directory {} belongs to user {}, and this process runs as user {}", path, status.st_uid,
                geteuid());
  return fd;
}

}  // namespace offpath
