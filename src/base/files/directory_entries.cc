#include "base/files/directory_entries.h"

#include <dirent.h>
#include <fcntl.h>

#include <cerrno>
#include <memory>
#include <string_view>

#include "base/fd.h"

namespace offpath {

Result<std::vector<std::string>> directory_entries(int directory, const std::string& path) {
  Fd again(openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!again) return fail_errno(errno, "opening " + path);
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(fdopendir(again.get()), closedir);
  if (listing == nullptr) return fail_errno(errno, "fdopendir of " + path);
  (void)again.release();  // the listing's
  std::vector<std::string> names;
  errno = 0;
  for (const dirent* entry = readdir(listing.get()); entry != nullptr; errno = 0, entry = readdir(listing.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return fail_errno(errno, "reading " + path);
  return names;
}

}  // namespace offpath
