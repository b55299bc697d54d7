#include "link/doca/doca_handles.h"

#include <dlfcn.h>

#include <string>

#include <fmt/format.h>

namespace offpath::link {

namespace {

// Never closed: other libraries that it loads do not support unloading. If the loader does not know DOCA's folder, the
// one of the build is used.
Result<void*> open_library(const char* name) {
  constexpr int how = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  if (void* library = dlopen(name, how); library != nullptr) return library;
  const char* said = dlerror();
  const std::string why = said != nullptr ? said : "no reason given";
  if (void* library = dlopen(fmt::format("{}/{}", OFFPATH_DOCA_LIBRARY_DIR, name).c_str(), how); library != nullptr)
    return library;
  return fail(
      Error::unsupported,
      "DOCA DMA needs {}, which cannot be loaded ({}): install DOCA's runtime (doca-sdk-dma), or use an address of "
      "another kind",
      name, why);
}

template <class Call>
Status find(void* library, const char* name, Call& call) {
  call = reinterpret_cast<Call>(dlsym(library, name));
  if (call == nullptr)
    return fail(Error::unsupported, "DOCA DMA: the installed DOCA has no {}: version 2.5 or newer is needed", name);
  return {};
}

Error code_of(doca_error_t code) noexcept {
  switch (code) {
    case DOCA_ERROR_NOT_PERMITTED:
      return Error::denied;
    case DOCA_ERROR_NOT_SUPPORTED:
      return Error::unsupported;
    case DOCA_ERROR_NO_MEMORY:
      return Error::no_memory;
    case DOCA_ERROR_INVALID_VALUE:
      return Error::invalid;
    default:
      return Error::io;
  }
}

}  // namespace

Result<DocaCallsPtr> load_doca() {
  OFP_ASSIGN(void* common, open_library("libdoca_common.so.2"));
  OFP_ASSIGN(void* dma, open_library("libdoca_dma.so.2"));
  auto calls = std::make_shared<DocaCalls>();
#define X(name) OFP_TRY(find(common, #name, calls->name));
  OFFPATH_DOCA_COMMON_CALLS(X)
#undef X
#define X(name) OFP_TRY(find(dma, #name, calls->name));
  OFFPATH_DOCA_DMA_CALLS(X)
#undef X
  return calls;
}

tl::unexpected<Failure> doca_failure(const DocaCalls& calls, doca_error_t code, std::string_view what) {
  return fail(code_of(code), "{}: DOCA says \"{}\" ({})", what, calls.doca_error_get_descr(code),
              static_cast<int>(code));
}

}  // namespace offpath::link
