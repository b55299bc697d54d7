#include "plugin/worker_launch.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "plugin/plugin_file.h"
#include "plugin/worker_arguments.h"
#include "plugin/worker_process.h"

namespace offpath::plugin {

namespace {

using CapabilityWords = std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3>;

constexpr std::uint32_t becoming = 1u << CAP_SETUID | 1u << CAP_SETGID;  // to change the user
constexpr std::uint32_t user_changing = becoming | 1u << CAP_KILL;
static_assert(CAP_SETUID < 32 && CAP_SETGID < 32 && CAP_KILL < 32);

// Raw system calls, because these run in a child that shares the agent's memory.
bool get_capabilities(CapabilityWords& words) noexcept {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  return syscall(SYS_capget, &header, words.data()) == 0;
}
bool set_capabilities(const CapabilityWords& words) noexcept {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  return syscall(SYS_capset, &header, words.data()) == 0;
}
// As dup2. A sanitizer would record it as the agent's.
bool duplicate(int descriptor, int as) noexcept {
  return descriptor == as || syscall(SYS_dup3, descriptor, as, 0) >= 0;
}

// The part of the agent's environment that a plug-in may see: library paths, OpenMP, language.
bool is_passed(std::string_view variable) {
  for (std::string_view known : {"PATH=", "LD_LIBRARY_PATH=", "LANG=", "LC_", "TZ=", "OMP_", "GOMP_", "KMP_",
                                 "ASAN_OPTIONS=", "TSAN_OPTIONS=", "UBSAN_OPTIONS="}) {
    if (variable.starts_with(known)) return true;
  }
  return false;
}

// Everything the child needs, prepared before it exists: between clone and exec it shares the agent's memory (as after
// vfork) and may neither allocate nor lock.
struct Launch {
  const char* program;
  char* const* arguments;
  char* const* environment;
  int socket, control, null;
  bool change_user, mute;
  pid_t agent;
  int failed_errno = 0;
  const char* failed_call = nullptr;
};

int fail_in_child(Launch& launch, const char* call) noexcept {
  launch.failed_errno = errno;
  launch.failed_call = call;
  _exit(127);
}

// The agent's thread waits until the child executes or ends. Until then the child belongs to the agent's user: another
// user could stop it, and the agent with it. The worker's program becomes its user itself (confine_worker).
int run_child(void* pointer) {
  auto& launch = *static_cast<Launch*>(pointer);
  // A group of its own, and no terminal into which it could inject input (TIOCSTI).
  if (setsid() < 0) return fail_in_child(launch, "setsid");
  // With it set, the executed program has only the capabilities left here, for any user.
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_in_child(launch, "prctl(PR_SET_NO_NEW_PRIVS)");
  prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  CapabilityWords words{};
  if (launch.change_user) {
    if (!get_capabilities(words)) return fail_in_child(launch, "capget");
    const std::uint32_t kept = words[0].permitted & becoming;
    words = {};
    words[0] = {kept, kept, kept};
  }
  if (!set_capabilities(words)) return fail_in_child(launch, "capset");
  for (const unsigned long each : {CAP_SETUID, CAP_SETGID})  // keeps these through execve
    if (launch.change_user && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, each, 0, 0) != 0)
      return fail_in_child(launch, "prctl(PR_CAP_AMBIENT_RAISE)");
  // The agent may have ended in between.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) return fail_in_child(launch, "prctl(PR_SET_PDEATHSIG)");
  if (getppid() != launch.agent) return fail_in_child(launch, "the agent has ended");
  // First moved away from their final numbers.
  const int socket = fcntl(launch.socket, F_DUPFD_CLOEXEC, 16), control = fcntl(launch.control, F_DUPFD_CLOEXEC, 16);
  if (socket < 0 || control < 0) return fail_in_child(launch, "fcntl(F_DUPFD)");
  if (!duplicate(launch.null, 0) || (launch.mute && !duplicate(launch.null, 2)) || !duplicate(2, 1))
    return fail_in_child(launch, "dup3");
  if (!duplicate(socket, worker_socket) || !duplicate(control, worker_control)) return fail_in_child(launch, "dup3");
  execve(launch.program, launch.arguments, launch.environment);
  return fail_in_child(launch, "execve");
}

Result<pid_t> clone_child(Launch& launch) {
  constexpr std::size_t stack_bytes = 64 << 10;
  void* stack = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED) return fail_errno(errno, "mmap of a stack");
  // A handler of the agent must not run in the child, which shares the agent's memory. The worker unblocks them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid =
      clone(run_child, static_cast<std::byte*>(stack) + stack_bytes, CLONE_VM | CLONE_VFORK | SIGCHLD, &launch);
  const int clone_errno = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  munmap(stack, stack_bytes);
  if (pid < 0) return fail_errno(clone_errno, "clone");
  return pid;
}

}  // namespace

bool may_change_user() noexcept {
  CapabilityWords words{};
  return get_capabilities(words) && (words[0].permitted & user_changing) == user_changing;
}

Result<pid_t> launch_worker(const PluginOptions& options, const std::string& program, int socket, int control) {
  // A worker checks a user's own plug-in with that user's rights. Then the agent's rights do not matter, and an
  // unresponsive file system delays only that worker.
  std::string file = options.path;
  if (!options.own) {
    OFP_ASSIGN(file, find_plugin_file(options.path));
  }
  WorkerOptions worker{std::move(file), options.memory_bytes, options.nice, options.cores, options.own, {},
                       getpid(),        options.sandbox};
  if (options.user && *options.user != geteuid())
    worker.becomes = WorkerOptions::Identity{*options.user, options.group};
  std::vector<std::string> arguments = worker_arguments(worker);
  arguments.insert(arguments.begin(), program);
  std::vector<char*> argument_pointers, environment;
  for (std::string& argument : arguments) argument_pointers.push_back(argument.data());
  for (char** each = environ; *each != nullptr; ++each) {
    if (is_passed(*each)) environment.push_back(*each);
  }
  argument_pointers.push_back(nullptr);
  environment.push_back(nullptr);
  const Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) return fail_errno(errno, "open /dev/null");
  Launch launch{program.c_str(), argument_pointers.data(),   environment.data(), socket,      control,
                null.get(),      worker.becomes.has_value(), options.own,        worker.agent};
  OFP_ASSIGN(const pid_t pid, clone_child(launch));
  if (launch.failed_call == nullptr) return pid;
  waitpid(pid, nullptr, 0);
  return fail_errno(launch.failed_errno, fmt::format("{} of {}", launch.failed_call, program));
}

void kill_worker(pid_t pid) noexcept {
  if (::kill(-pid, SIGKILL) == 0) return;
  if (errno == ESRCH) ::kill(pid, SIGKILL);  // an emulator's child may not have a group at this point
  if (errno != EPERM) return;
  CapabilityWords words{};
  if (!get_capabilities(words)) return;
  const CapabilityWords before = words;
  words[0].effective |= words[0].permitted & (1u << CAP_KILL);
  if (!set_capabilities(words)) return;
  ::kill(-pid, SIGKILL);
  (void)set_capabilities(before);
}

}  // namespace offpath::plugin
