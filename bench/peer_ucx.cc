// UCX as a peer: one-sided ucp_get from a process that sleeps, over the kernel's cross-memory attach. Only the peers'
// own processes load the library, because it starts threads and installs handlers.
#include <dlfcn.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <vector>

#include "base/bytes.h"
#include "machine.h"
#include "peer_process.h"

#ifdef OFFPATH_BENCH_UCX_LIB_DIR
#include <ucp/api/ucp.h>
#endif

namespace offpath::bench {

#ifndef OFFPATH_BENCH_UCX_LIB_DIR

Result<PeerProcess> start_ucx_reader(int, int, std::uint64_t) {
  return fail(Error::unsupported, "this was built without UCX (pip install libucx-cu12)");
}

#else

namespace {

// The functions of libucp that are used, found at run time.
// clang-format off: a list
#define UCP_FUNCTIONS(X)                                                                                        \
  X(ucp_config_read) X(ucp_config_release) X(ucp_init_version) X(ucp_worker_create) X(ucp_worker_get_address)   \
  X(ucp_mem_map) X(ucp_rkey_pack) X(ucp_ep_create) X(ucp_ep_rkey_unpack) X(ucp_get_nbx) X(ucp_worker_progress)  \
  X(ucp_request_check_status) X(ucp_request_free)
// clang-format on

struct Ucp {
#define X(name) decltype(&::name) name = nullptr;
  UCP_FUNCTIONS(X)
#undef X
  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
};

Status check(ucs_status_t status, std::string_view call) {
  if (status == UCS_OK) return {};
  return fail(Error::io, "{}: UCX status {}", call, int(status));
}

Result<Ucp> open_ucp() {
  setenv("UCX_TLS", "cma,posix,self", 1);
  setenv("UCX_WARN_UNUSED_ENV_VARS", "n", 0);
  const char* given = std::getenv("OFFPATH_UCX_LIB_DIR");
  const std::string directory = given != nullptr ? given : OFFPATH_BENCH_UCX_LIB_DIR;
  void* library = nullptr;
  for (const char* name : {"libucs.so.0", "libuct.so.0", "libucp.so.0"}) {
    library = dlopen((directory + "/" + name).c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) return fail(Error::not_found, "UCX: {}", dlerror());
  }
  Ucp ucp;
#define X(name)                                                          \
  ucp.name = reinterpret_cast<decltype(&::name)>(dlsym(library, #name)); \
  if (ucp.name == nullptr) return fail(Error::not_found, "UCX in {} has no {}", directory, #name);
  UCP_FUNCTIONS(X)
#undef X
  ucp_config_t* config = nullptr;
  OFP_TRY(check(ucp.ucp_config_read(nullptr, nullptr, &config), "ucp_config_read"));
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_RMA;
  const auto made =
      check(ucp.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &ucp.context), "ucp_init");
  ucp.ucp_config_release(config);
  OFP_TRY(made);
  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SINGLE;
  OFP_TRY(check(ucp.ucp_worker_create(ucp.context, &worker, &ucp.worker), "ucp_worker_create"));
  return ucp;
}

Result<ucp_mem_h> map_memory(const Ucp& ucp, const Pages& pages) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  params.address = pages.data();
  params.length = pages.size();
  ucp_mem_h memory = nullptr;
  OFP_TRY(check(ucp.ucp_mem_map(ucp.context, &params, &memory), "ucp_mem_map"));
  return memory;
}

// The source's message to the reader: this, the worker's address, the packed key.
struct Introduction {
  std::uint64_t base = 0;
  std::uint64_t address_bytes = 0;
  std::uint64_t key_bytes = 0;
};

Status introduce(int socket, std::uint64_t source_bytes, Ucp& ucp, Pages& pages) {
  OFP_ASSIGN(ucp, open_ucp());
  OFP_ASSIGN(pages, Pages::map(source_bytes));
  OFP_ASSIGN(ucp_mem_h memory, map_memory(ucp, pages));
  ucp_address_t* address = nullptr;
  std::size_t address_bytes = 0, key_bytes = 0;
  OFP_TRY(check(ucp.ucp_worker_get_address(ucp.worker, &address, &address_bytes), "ucp_worker_get_address"));
  void* key = nullptr;
  OFP_TRY(check(ucp.ucp_rkey_pack(ucp.context, memory, &key, &key_bytes), "ucp_rkey_pack"));
  const Introduction introduction{reinterpret_cast<std::uint64_t>(pages.data()), address_bytes, key_bytes};
  std::vector<std::byte> message(sizeof introduction + address_bytes + key_bytes);
  store(message.data(), introduction);
  std::memcpy(message.data() + sizeof introduction, address, address_bytes);
  std::memcpy(message.data() + sizeof introduction + address_bytes, key, key_bytes);
  if (send(socket, message.data(), message.size(), MSG_NOSIGNAL) < 0) return fail_errno(errno, "send");
  return {};
}

[[noreturn]] void serve_source(Fd socket, int core, std::uint64_t source_bytes) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  Ucp ucp;
  Pages pages;
  if (const Status status = pin_to_core(core); !status) _exit(1);
  const Status status = introduce(socket.get(), source_bytes, ucp, pages);
  if (!status) {
    // Shorter than an introduction: the reason.
    const std::string reason = status.error().message.substr(0, sizeof(Introduction) - 1);
    if (send(socket.get(), reason.data(), reason.size(), MSG_NOSIGNAL) < 0) _exit(1);
    _exit(1);
  }
  char byte;
  while (recv(socket.get(), &byte, 1, 0) > 0) {
  }
  _exit(0);
}

class UcxReader final : public Puller {
 public:
  static Result<std::unique_ptr<Puller> > make(int source_core, std::uint64_t source_bytes) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return fail_errno(errno, "socketpair");
    auto reader = std::make_unique<UcxReader>();
    reader->socket_ = Fd(ends[0]);
    Fd theirs(ends[1]);
    const pid_t pid = fork();
    if (pid < 0) return fail_errno(errno, "fork");
    if (pid == 0) {
      reader->socket_.reset();
      serve_source(std::move(theirs), source_core, source_bytes);
    }
    theirs.reset();
    OFP_TRY(reader->connect());
    return reader;
  }

  Result<double> pull(const Pull& turn) override {
    const std::uint64_t slot_bytes = align_up(turn.column_bytes, page_bytes) * turn.columns;
    for (Pages& target : targets_) {
      if (target.size() < slot_bytes) {
        target = Pages();
        OFP_ASSIGN(target, Pages::map(slot_bytes, Pages::Kind::shared_file));
        OFP_TRY(map_memory(ucp_, target));
      }
    }
    requests_.clear();
    requests_.reserve(std::size_t(turn.outstanding) * turn.columns);
    return time_repeats(turn, [&](std::uint64_t first) -> Status {
      for (std::uint32_t i = 0; i < turn.outstanding; ++i) OFP_TRY(post(turn, first + i));
      return finish();
    });
  }

 private:
  Status connect() {
    OFP_ASSIGN(ucp_, open_ucp());
    std::vector<std::byte> message(64 << 10);
    const ssize_t got = recv(socket_.get(), message.data(), message.size(), 0);
    if (got < ssize_t(sizeof(Introduction))) {
      return fail(Error::unsupported, "UCX's source process: {}",
                  got > 0 ? text_of({message.data(), std::size_t(got)}) : "it ended");
    }
    const auto introduction = load<Introduction>(message.data());
    const std::byte* address = message.data() + sizeof introduction;
    base_ = introduction.base;
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<const ucp_address_t*>(address);
    OFP_TRY(check(ucp_.ucp_ep_create(ucp_.worker, &params, &endpoint_), "ucp_ep_create"));
    return check(ucp_.ucp_ep_rkey_unpack(endpoint_, address + introduction.address_bytes, &key_), "ucp_ep_rkey_unpack");
  }

  Status post(const Pull& turn, std::uint64_t operation) {
    std::byte* target = targets_[operation % targets_.size()].data();
    static constexpr ucp_request_param_t plain{};
    for (std::uint32_t c = 0; c < turn.columns; ++c) {
      const ucs_status_ptr_t request =
          ucp_.ucp_get_nbx(endpoint_, target + c * align_up(turn.column_bytes, page_bytes), turn.column_bytes,
                           base_ + turn.offset_of(operation, c), key_, &plain);
      if (UCS_PTR_IS_ERR(request)) return check(UCS_PTR_STATUS(request), "ucp_get_nbx");
      if (request != nullptr) requests_.push_back(request);
    }
    return {};
  }

  Status finish() {
    for (void* request : requests_) {
      ucs_status_t status;
      while ((status = ucp_.ucp_request_check_status(request)) == UCS_INPROGRESS) ucp_.ucp_worker_progress(ucp_.worker);
      ucp_.ucp_request_free(request);
      OFP_TRY(check(status, "ucp_get"));
    }
    requests_.clear();
    return {};
  }

  Fd socket_;  // to the source, which lives until it closes
  Ucp ucp_;
  ucp_ep_h endpoint_ = nullptr;
  ucp_rkey_h key_ = nullptr;
  std::uint64_t base_ = 0;
  std::array<Pages, 2> targets_;
  std::vector<void*> requests_;
};

}  // namespace

Result<PeerProcess> start_ucx_reader(int source_core, int reader_core, std::uint64_t source_bytes) {
  return PeerProcess::start(reader_core, [=] { return UcxReader::make(source_core, source_bytes); });
}

#endif

}  // namespace offpath::bench
