#include "link/verbs/verbs_handles.h"

#include <dlfcn.h>

#include <cerrno>
#include <string>

#include <fmt/format.h>

#include "link/card/huge_pages.h"
#include "link/card/registered_memory.h"

namespace offpath::link {

namespace {

// Never closed: other libraries that it loads (a device's provider) do not support unloading.
Result<void*> open_library(const char* name) {
  void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library != nullptr) return library;
  const char* why = dlerror();
  return fail(
      Error::unsupported,
      "RDMA needs {}, which cannot be loaded ({}): install rdma-core (Debian: librdmacm1 ibverbs-providers), or use "
      "an address of another kind",
      name, why != nullptr ? why : "no reason given");
}

template <class Call>
Status find(void* library, const char* name, Call& call) {
  call = reinterpret_cast<Call>(dlsym(library, name));
  if (call == nullptr)
    return fail(Error::unsupported, "RDMA: the installed rdma-core has no {}: version 23 or newer is needed", name);
  return {};
}

}  // namespace

Result<VerbsCallsPtr> load_verbs() {
  OFP_ASSIGN(void* verbs, open_library("libibverbs.so.1"));
  OFP_ASSIGN(void* rdmacm, open_library("librdmacm.so.1"));
  auto calls = std::make_shared<VerbsCalls>();
#define X(name) OFP_TRY(find(verbs, #name, calls->name));
  OFFPATH_VERBS_CALLS(X)
#undef X
#define X(name) OFP_TRY(find(rdmacm, #name, calls->name));
  OFFPATH_RDMACM_CALLS(X)
#undef X
  return calls;
}

Result<MemoryRegion> register_memory(const VerbsCalls& calls, ibv_pd* domain, const void* base, std::uint64_t length,
                                     int access) {
  MemoryRegion region(calls.ibv_reg_mr(domain, const_cast<void*>(base), length, access), {calls.ibv_dereg_mr});
  if (region) return region;
  const int error_number = errno;
  if (error_number == ENOMEM || error_number == EAGAIN || error_number == EPERM)
    return fail(Error::no_memory,
                "{} bytes cannot be registered for RDMA: that locks them in memory, and this process may lock {} "
                "(ulimit -l, LimitMEMLOCK=, docker --ulimit memlock=-1), or the device has no more memory regions",
                length, locked_memory_limit());
  if (error_number == EFAULT)
    return fail(Error::unreadable, "{} bytes at {} cannot be registered for RDMA: no memory is mapped there", length,
                fmt::ptr(base));
  return fail_errno(error_number, fmt::format("registering {} bytes for RDMA", length));
}

Result<MemoryRegion> register_segment(const VerbsCalls& calls, ibv_pd* domain, MutableBytes memory, int access) {
  ask_for_huge_pages(memory);
  return register_memory(calls, domain, memory.data(), memory.size(), access);
}

}  // namespace offpath::link
