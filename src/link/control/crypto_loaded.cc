#include <dlfcn.h>

#include <cstdlib>
#include <memory>
#include <string_view>

#include "link/control/crypto.h"

namespace offpath::link {

namespace {

constexpr std::string_view module_name = OFFPATH_OPENSSL_MODULE;

// The folder of the file that contains this code, with links resolved: the module is beside the real file.
Result<std::string> own_folder() {
  Dl_info here{};
  if (dladdr(reinterpret_cast<const void*>(&crypto), &here) == 0 || here.dli_fname == nullptr)
    return fail(Error::not_found, "{}: it is looked for beside liboffpath.so, whose path is unknown", module_name);
  const std::unique_ptr<char, decltype(&std::free)> path(realpath(here.dli_fname, nullptr), &std::free);
  if (!path) return fail_errno(errno, here.dli_fname);
  const std::string_view file = path.get();
  return std::string(file.substr(0, file.rfind('/')));
}

}  // namespace

// A missing module is looked for again, since it may have been installed meanwhile. dlopen caches a loaded one.
Result<const Crypto*> crypto() {
  OFP_ASSIGN(const std::string folder, own_folder());
  const std::string path = fmt::format("{}/{}", folder, module_name);
  // Never unloaded: sessions use its code, and OpenSSL registers functions that run at exit.
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) {
    return fail(Error::unsupported,
                "tcp and tls addresses need OpenSSL by way of {}, which is installed beside liboffpath.so: {}",
                module_name, dlerror());
  }
  const auto* found = static_cast<const Crypto*>(dlsym(module, "ofp_crypto"));
  if (found == nullptr) return fail(Error::unsupported, "{}: {}", path, dlerror());
  if (std::string_view(found->version) != OFFPATH_VERSION)
    return fail(Error::unsupported, "{} has version {}, and liboffpath.so beside it has version {}", path,
                found->version, OFFPATH_VERSION);
  return found;
}

}  // namespace offpath::link
