#include "base/module/module.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <memory>
#include <string>

namespace offpath {

namespace {

// The file that contains this code, with links resolved: modules are found from the real file.
Result<std::string> own_file() {
  Dl_info here{};
  void* map = nullptr;
  if (dladdr1(reinterpret_cast<const void*>(&own_file), &here, &map, RTLD_DL_LINKMAP) == 0 || map == nullptr)
    return fail(Error::not_found, "the file that this code is in is not known");
  if (const char* const library = static_cast<const link_map*>(map)->l_name; *library != '\0') {
    const std::unique_ptr<char, decltype(&std::free)> path(realpath(library, nullptr), &std::free);
    if (!path) return fail_errno(errno, library);
    return std::string(path.get());
  }
  // The program itself. It may have been replaced since it was started; its folder is still the same.
  std::array<char, PATH_MAX> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0) return fail_errno(errno, "readlink /proc/self/exe");
  return std::string(path.data(), static_cast<std::size_t>(length));
}

}  // namespace

Result<const void*> load_table(const Module& module, const char* symbol) {
  OFP_ASSIGN(std::string path, own_file());
  path.resize(path.rfind('/'));
  std::string_view folder = module.folder;
  for (; folder.starts_with("../"); folder.remove_prefix(3)) path.resize(path.rfind('/'));
  if (!folder.empty()) path.append("/").append(folder);
  path.append("/").append(module.file);

  // Never unloaded: objects of its classes use its code, and its libraries register functions that run at exit.
  void* const loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (loaded == nullptr) {
    std::string_view why = dlerror();  // begins with the file that is missing or wrong, which may be another library
    if (why.starts_with(path)) why.remove_prefix(std::min(path.size() + 2, why.size()));
    return fail(Error::unsupported, "{}, loaded from {}: {}; install {} again, which brings that file", module.purpose,
                path, why, module.loader);
  }
  const void* const table = dlsym(loaded, symbol);
  if (table == nullptr) return fail(Error::unsupported, "{}, loaded from {}: {}", module.purpose, path, dlerror());
  const std::string_view version = *static_cast<const char* const*>(table);
  if (version != OFFPATH_VERSION)
    return fail(Error::unsupported, "{} has version {}, and the {} of this process has version {}: start it again",
                path, version, module.loader, OFFPATH_VERSION);
  return table;
}

}  // namespace offpath
