#include "base/module/module.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
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

void* open_module(const std::string& path) noexcept {
  try {
    // Never unloaded: objects of its classes use its code, and its libraries register functions that run at exit.
    return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  } catch (...) {
    std::fprintf(stderr, "offpath: no memory to load %s\n", path.c_str());
    std::abort();
  }
}

}  // namespace

std::string module_path(std::string_view own_file, const Module& module) {
  const auto parent = [](std::string_view path) {
    const auto slash = path.rfind('/');
    return slash == path.npos ? std::string_view() : path.substr(0, slash);
  };
  std::string_view from = parent(own_file), folder = module.folder;
  for (; folder.starts_with("../"); folder.remove_prefix(3)) from = parent(from);
  return fmt::format("{}/{}{}{}", from, folder, folder.empty() ? "" : "/", module.file);
}

Result<const void*> load_table(const Module& module, const char* symbol) {
  OFP_ASSIGN(const std::string own, own_file());
  const std::string path = module_path(own, module);
  void* const loaded = open_module(path);
  if (loaded == nullptr) {
    std::string_view why = dlerror();  // begins with the file that is missing or wrong, which may be another library
    for (const int lack : {EMFILE, ENFILE, ENOMEM})
      if (why.ends_with(std::strerror(lack))) return fail_errno(lack, fmt::format("loading {}", path));
    if (why.starts_with(path)) why.remove_prefix(std::min(path.size() + 2, why.size()));
    return fail(Error::unsupported,
                "{}, loaded from {}: {}; install {} again, which brings that file, or start it again after an upgrade",
                module.purpose, path, why, module.loader);
  }
  const void* const table = dlsym(loaded, symbol);
  if (table == nullptr) return fail(Error::unsupported, "{}, loaded from {}: {}", module.purpose, path, dlerror());
  const std::string_view version = *static_cast<const char* const*>(table);
  if (version != module.version)
    return fail(Error::unsupported, "{} has version {}, and the {} of this process has version {}: start it again",
                path, version, module.loader, module.version);
  return table;
}

}  // namespace offpath
