#include "plugin/worker.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <mutex>

#include "plugin/packet_socket.h"
#include "plugin/plugin_file.h"
#include "plugin/system_calls.h"
#include "plugin/worker_context.h"

namespace offpath::plugin {

namespace {

constexpr rlim_t descriptors_max = 8192;  // inputs of a call, and files that a function opens

Status limit(int resource, rlim_t most, std::string_view name) {
  rlimit now{};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &now) != 0) return fail_errno(errno, "getrlimit");
  const rlim_t value = std::min(most, now.rlim_max);
  const rlimit lower{value, value};
  if (setrlimit(static_cast<__rlimit_resource_t>(resource), &lower) != 0)
    return fail_errno(errno, fmt::format("setrlimit({}, {})", name, value));
  return {};
}

// Uses other cores than the agent's loop, which may be pinned.
Status use_cores(const std::vector<unsigned>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (unsigned core = 0; core < CPU_SETSIZE; ++core) {
    if (cores.empty() || std::ranges::find(cores, core) != cores.end()) CPU_SET(core, &set);
  }
  if (sched_setaffinity(0, sizeof set, &set) == 0 || cores.empty()) return {};
  return fail_errno(errno, fmt::format("sched_setaffinity to {} cores", cores.size()));
}

}  // namespace

namespace {

Status end_with_agent(const WorkerOptions& options) {
  // A change of user clears it, and the agent may have ended in between.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) return fail_errno(errno, "prctl(PR_SET_PDEATHSIG)");
  if (getppid() != options.agent) return fail(Error::closed, "the agent has ended");
  return {};
}

Status drop_capabilities() {
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> none{};
  if (syscall(SYS_capset, &header, none.data()) != 0) return fail_errno(errno, "capset");
  return {};
}

// Done here and not before exec: see run_child in worker_launch.cc.
Status become(const WorkerOptions& options) {
  if (options.becomes) {
    const auto [user, group] = *options.becomes;
    if (setgroups(0, nullptr) != 0) return fail_errno(errno, "setgroups");
    if (setresgid(group, group, group) != 0) return fail_errno(errno, fmt::format("setresgid to {}", group));
    if (setresuid(user, user, user) != 0) return fail_errno(errno, fmt::format("setresuid to {}", user));
  }
  OFP_TRY(drop_capabilities());
  OFP_TRY(end_with_agent(options));
  // The agent opens everything close-on-exec. This closes descriptors for which one of its libraries may not.
  syscall(SYS_close_range, worker_control + 1, ~0u, 0);
  return {};
}

bool put_text(const char* path, const std::string& text) {
  const Fd file(open(path, O_WRONLY | O_CLOEXEC));
  return file && write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// Enters namespaces of its own, without privileges there. Returns a description of them.
Result<std::string> enter_namespaces(const WorkerOptions& options) {
  if (options.sandbox == Sandbox::off) return std::string("off");
  const uid_t user = geteuid();
  const gid_t group = getegid();
  if (unshare(worker_namespaces) != 0) return fmt::format("none: unshare: {}", std::strerror(errno));
  // The worker's user is mapped to itself, and all others to nobody. Files of /proc belong to it only as long as it is
  // dumpable. The kernel does not map root without CAP_SETFCAP: then root also appears as nobody, with the same access
  // to its files as before.
  prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
  if (put_text("/proc/self/setgroups", "deny") && put_text("/proc/self/uid_map", fmt::format("{0} {0} 1", user)))
    put_text("/proc/self/gid_map", fmt::format("{0} {0} 1", group));
  for (unsigned long each = 0; prctl(PR_CAPBSET_DROP, each, 0, 0, 0) == 0; ++each) {
  }
  OFP_TRY(drop_capabilities());
  OFP_TRY(end_with_agent(options));
  return std::string("user net ipc");
}

// Becomes unreadable for others, and takes its limits and its list of system calls.
Result<Confinement> confine(const WorkerOptions& options) {
  Confinement confinement;
  OFP_ASSIGN(confinement.namespaces, enter_namespaces(options));
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return fail_errno(errno, "prctl(PR_SET_DUMPABLE)");
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno(errno, "prctl(PR_SET_NO_NEW_PRIVS)");
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGXFSZ, SIG_IGN);  // a failing write gives a better error
  OFP_TRY(limit(RLIMIT_CORE, 0, "CORE"));
  OFP_TRY(limit(RLIMIT_NOFILE, descriptors_max, "NOFILE"));
  // Only private memory: mapped inputs are not the worker's, and outputs have a limit of their own.
  OFP_TRY(limit(RLIMIT_DATA, options.memory_bytes, "DATA"));
  OFP_TRY(limit(RLIMIT_FSIZE, align_up(options.memory_bytes, page_bytes), "FSIZE"));
  if (options.nice != 0 && setpriority(PRIO_PROCESS, 0, options.nice) != 0) return fail_errno(errno, "setpriority");
  OFP_TRY(use_cores(options.cores));
  confinement.seccomp = sandbox_names[static_cast<std::size_t>(options.sandbox)];
  if (const Status restricted = restrict_worker(options.sandbox); !restricted)
    confinement.seccomp = "none: " + restricted.error().message;
  return confinement;
}

struct Loaded {
  const ofp_plugin* plugin;
  Ready ready;
};

Result<Loaded> load(const WorkerOptions& options) {
  OFP_TRY(become(options));
  Fd file;
  std::string path = options.path;
  if (options.own) {
    OFP_ASSIGN(file, open_plugin_file(options.path, geteuid()));  // before all other users look like nobody
    path = fmt::format("/proc/self/fd/{}", file.get());           // the checked file, not the present one at its path
  }
  OFP_ASSIGN(Confinement confinement, confine(options));
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return fail(Error::invalid, "{}", dlerror());
  const auto entry = reinterpret_cast<ofp_plugin_entry>(dlsym(library, "offpath_plugin"));
  if (entry == nullptr) return fail(Error::invalid, "it has no symbol offpath_plugin");
  const ofp_plugin* plugin = entry();
  if (plugin == nullptr) return fail(Error::invalid, "offpath_plugin() returned NULL");
  if (plugin->version != OFP_PLUGIN_VERSION)
    return fail(Error::version, "it was built for version {} of offpath/plugin.h, but this agent has {}",
                plugin->version, OFP_PLUGIN_VERSION);
  if (plugin->struct_bytes < sizeof(ofp_plugin))
    return fail(Error::invalid, "its ofp_plugin has {} bytes, at least {}", plugin->struct_bytes, sizeof(ofp_plugin));
  if (plugin->functions == nullptr || plugin->function_count == 0 || plugin->function_count > functions_max)
    return fail(Error::invalid, "it has {} functions, 1 to {} are allowed", plugin->function_count, functions_max);
  Loaded loaded{plugin, {}};
  loaded.ready.confinement = std::move(confinement);
  loaded.ready.name = plugin->name == nullptr ? "" : plugin->name;
  for (unsigned i = 0; i < plugin->function_count; ++i) {
    const ofp_function& function = plugin->functions[i];
    if (function.name == nullptr || function.function == nullptr || !is_function_name(function.name))
      return fail(Error::invalid, "function {} has the name '{}': 1 to {} letters, digits, _ . - are allowed", i,
                  function.name == nullptr ? "" : function.name, name_bytes_max);
    loaded.ready.functions.push_back({function.name, function.doc == nullptr ? "" : function.doc});
  }
  return loaded;
}

// Exceptions of a constructor or the entry are errors of the plug-in.
Result<Loaded> load_guarded(const WorkerOptions& options) {
  try {
    return load(options);
  } catch (const std::exception& thrown) {
    return fail(Error::invalid, "loading it threw: {}", thrown.what());
  } catch (...) {
    return fail(Error::invalid, "loading it threw an exception that is not a std::exception");
  }
}

std::int32_t run(const ofp_plugin& plugin, WorkerContext& context) {
  const auto* end = plugin.functions + plugin.function_count;
  const auto* found =
      std::find_if(plugin.functions, end, [&](const ofp_function& each) { return context.function() == each.name; });
  if (found == end) {
    context.set_error("there is no such function");
    return -1;
  }
  return context.call(found->function);
}

// The agent's control word, read-only here, so that functions cannot overwrite it by mistake; and this worker's.
Result<std::atomic<CallNumber>*> map_control(off_t at, int protection) {
  void* page = mmap(nullptr, page_bytes, protection, MAP_SHARED, worker_control, at);
  if (page == MAP_FAILED) return fail_errno(errno, "mmap of a control page");
  return static_cast<std::atomic<CallNumber>*>(page);
}

Status serve_calls(const Loaded& loaded, const WorkerLimits& limits) {
  OFP_ASSIGN(const std::atomic<CallNumber>* const cancelled, map_control(0, PROT_READ));
  OFP_ASSIGN(std::atomic<CallNumber>* const finished_call, map_control(page_bytes, PROT_READ | PROT_WRITE));
  KeptMemory kept;
  const auto send_log = [](const LogLine& line) { (void)send_packet(worker_socket, line, {}, Wait::yes); };
  PacketReader reader;
  WorkerMessages messages(worker_socket, reader);
  for (;;) {
    CallPacket call;
    std::vector<std::byte> enclosed;
    std::vector<Fd> descriptors;
    std::size_t wanted = 0;
    bool begun = false;
    do {
      OFP_ASSIGN(std::optional<Packet> packet, reader.receive(worker_socket, Wait::yes));
      if (!packet) return {};  // the agent has ended, or no longer needs this worker
      OFP_ASSIGN(const FromAgent message, decode_from_agent(packet->bytes));
      if (std::holds_alternative<AnswerPacket>(message)) continue;  // for an operation that a function has abandoned
      if (const auto* first = std::get_if<CallPacket>(&message)) {
        begun = true;
        call = *first;
        enclosed.assign(first->enclosed.begin(), first->enclosed.end());
        if (!enclosed.empty()) descriptors.emplace_back();  // instead of the description
        wanted = descriptors.size() + call.descriptors;
      }
      std::ranges::move(packet->descriptors, std::back_inserter(descriptors));
    } while (!begun || descriptors.size() < wanted);
    for (const std::uint64_t number : call.forget) kept.forget(number);
    OFP_ASSIGN(const auto context, WorkerContext::make(call.call, descriptors, call.description_bytes, enclosed, kept,
                                                       limits, *cancelled, messages, send_log));
    descriptors.clear();
    WorkerContext::Finished finished = context->finish(run(*loaded.plugin, *context));
    OFP_TRY(send_packet(worker_socket, finished.done, finished.memory, Wait::yes));
    finished_call->store(call.call, std::memory_order_release);
  }
}

}  // namespace

Status serve(const WorkerOptions& options) {
  auto loaded = load_guarded(options);
  if (!loaded) {
    OFP_TRY(send_packet(worker_socket, Unusable{loaded.error().message}, {}, Wait::yes));
    return {};
  }
  OFP_TRY(send_packet(worker_socket, loaded->ready, {}, Wait::yes));
  return serve_calls(*loaded, {options.memory_bytes});
}

}  // namespace offpath::plugin
