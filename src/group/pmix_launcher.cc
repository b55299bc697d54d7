#include "group/pmix_launcher.h"

#include <dlfcn.h>
#include <pmix.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <type_traits>

namespace offpath::group {

namespace {

constexpr const char* library_name = "libpmix.so.2";
constexpr const char* address_key = "offpath.address";
constexpr std::uint32_t size_max = 65536;
constexpr std::size_t address_bytes_max = 4096;

// The functions that are used. They stay loaded: libpmix has threads and handlers of its own.
struct Library {
  decltype(&PMIx_Init) init = nullptr;
  decltype(&PMIx_Put) put = nullptr;
  decltype(&PMIx_Commit) commit = nullptr;
  decltype(&PMIx_Fence_nb) fence = nullptr;
  decltype(&PMIx_Get) get = nullptr;
  decltype(&PMIx_Finalize) finalize = nullptr;
  decltype(&PMIx_Error_string) error_string = nullptr;

  [[nodiscard]] static Result<Library> load() {
    void* const opened = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr)
      return fail(Error::unsupported, "the launcher speaks PMIx, and {} cannot be loaded: {}", library_name, dlerror());
    Library made;
    const auto find = [opened](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(opened, name));
      return function != nullptr;
    };
    if (!find(made.init, "PMIx_Init") || !find(made.put, "PMIx_Put") || !find(made.commit, "PMIx_Commit") ||
        !find(made.fence, "PMIx_Fence_nb") || !find(made.get, "PMIx_Get") || !find(made.finalize, "PMIx_Finalize") ||
        !find(made.error_string, "PMIx_Error_string"))
      return fail(Error::unsupported, "{} lacks a function: {}", library_name, dlerror());
    return made;
  }

  [[nodiscard]] Status check(pmix_status_t status, std::string_view call) const {
    if (status == PMIX_SUCCESS) return {};
    return fail(status == PMIX_ERR_TIMEOUT ? Error::timeout : Error::protocol, "{}: the launcher answered {} ({})",
                call, error_string(status), status);
  }
};

// A value of a process; freed with C's free, as libpmix allocates it.
struct Freed {
  void operator()(pmix_value_t* value) const {
    if (value->type == PMIX_STRING) std::free(value->data.string);
    std::free(value);
  }
};
using Value = std::unique_ptr<pmix_value_t, Freed>;

Result<Value> value_of(const Library& pmix, const pmix_proc_t& process, const char* key) {
  pmix_value_t* value = nullptr;
  OFP_TRY(pmix.check(pmix.get(&process, key, nullptr, 0, &value), fmt::format("PMIx_Get of {}", key)));
  if (value == nullptr) return fail(Error::protocol, "PMIx_Get of {}: the launcher answered nothing", key);
  return Value(value);
}

// Afterwards all processes see all values. The promise outlives an abandoned wait.
Status fence(const Library& pmix, const pmix_proc_t& all, TimeNs deadline) {
  using Told = std::promise<pmix_status_t>;
  auto told = std::make_unique<Told>();
  std::future<pmix_status_t> status = told->get_future();
  pmix_info_t collect{};
  std::strncpy(collect.key, PMIX_COLLECT_DATA, PMIX_MAX_KEYLEN);
  collect.value.type = PMIX_BOOL;
  collect.value.data.flag = true;
  const auto tell = [](pmix_status_t code, void* promise) {
    std::unique_ptr<Told>(static_cast<Told*>(promise))->set_value(code);
  };
  OFP_TRY(pmix.check(pmix.fence(&all, 1, &collect, 1, tell, told.get()), "PMIx_Fence_nb"));
  static_cast<void>(told.release());  // `tell` frees it
  const TimeNs left = std::max<TimeNs>(deadline - monotonic_ns(), 0);
  if (status.wait_for(std::chrono::nanoseconds(left)) != std::future_status::ready)
    return fail(Error::timeout, "the launcher did not answer: some of its agents have not published their address");
  return pmix.check(status.get(), "PMIx_Fence_nb");
}

}  // namespace

Result<std::vector<std::string>> exchange_by_pmix(const std::string& own, TimeNs deadline) {
  OFP_ASSIGN(const Library pmix, Library::load());
  pmix_proc_t self{};
  OFP_TRY(pmix.check(pmix.init(&self, nullptr, 0), "PMIx_Init"));
  pmix_proc_t other = self;
  other.rank = PMIX_RANK_WILDCARD;
  OFP_ASSIGN(const Value size, value_of(pmix, other, PMIX_JOB_SIZE));
  if (size->type != PMIX_UINT32 || size->data.uint32 < 1 || size->data.uint32 > size_max)
    return fail(Error::protocol, "the launcher's number of processes is invalid, or more than {}", size_max);
  std::string address = own;
  pmix_value_t put{};
  put.type = PMIX_STRING;
  put.data.string = address.data();
  OFP_TRY(pmix.check(pmix.put(PMIX_GLOBAL, address_key, &put), "PMIx_Put"));
  OFP_TRY(pmix.check(pmix.commit(), "PMIx_Commit"));
  OFP_TRY(fence(pmix, other, deadline));
  std::vector<std::string> all;
  for (other.rank = 0; other.rank < size->data.uint32; ++other.rank) {
    OFP_ASSIGN(const Value told, value_of(pmix, other, address_key));
    if (told->type != PMIX_STRING || told->data.string == nullptr ||
        strnlen(told->data.string, address_bytes_max) == address_bytes_max)
      return fail(Error::protocol, "process {} of the launcher published no address", other.rank);
    all.emplace_back(told->data.string);
  }
  OFP_TRY(pmix.check(pmix.finalize(nullptr, 0), "PMIx_Finalize"));
  return all;
}

}  // namespace offpath::group
