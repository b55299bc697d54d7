#include "plugin/system_calls.h"

#include <linux/capability.h>
#include <linux/netlink.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>
#include <memory>
#include <span>

#ifndef __has_feature  // defined by Clang; GCC defines the others
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) || \
    __has_feature(thread_sanitizer)
#define OFP_SANITIZED 1
#else
#define OFP_SANITIZED 0
#endif

namespace offpath::plugin {

namespace {

using Names = std::span<const char* const>;

// ---- the lists. Names that this machine's processor or libseccomp does not know are skipped.

// Memory and its placement (NUMA).
constexpr const char* memory[] = {"brk",     "mmap",         "munmap",     "mremap",        "mprotect",
                                  "madvise", "msync",        "mincore",    "mlock",         "mlock2",
                                  "munlock", "memfd_create", "membarrier", "get_mempolicy", "set_mempolicy",
                                  "mbind",   "move_pages",   "mseal"};
// Threads, and calls of the C library when they begin and end. clone() is below.
constexpr const char* threads[] = {"futex",
                                   "futex_wait",
                                   "futex_wake",
                                   "futex_requeue",
                                   "futex_waitv",
                                   "set_robust_list",
                                   "get_robust_list",
                                   "rseq",
                                   "set_tid_address",
                                   "arch_prctl",
                                   "exit",
                                   "exit_group",
                                   "gettid",
                                   "getpid",
                                   "getppid",
                                   "sched_yield",
                                   "sched_getaffinity",
                                   "sched_setaffinity",
                                   "sched_getparam",
                                   "sched_getscheduler",
                                   "sched_setscheduler",
                                   "sched_getattr",
                                   "sched_get_priority_max",
                                   "sched_get_priority_min",
                                   "getcpu",
                                   "restart_syscall"};
constexpr const char* signals[] = {"rt_sigaction",    "rt_sigprocmask", "rt_sigreturn", "rt_sigpending",
                                   "rt_sigtimedwait", "rt_sigsuspend",  "sigaltstack",  "pause",
                                   "signalfd",        "signalfd4"};
constexpr const char* time_and_waiting[] = {
    "clock_gettime", "clock_getres",   "clock_nanosleep", "nanosleep",       "gettimeofday", "time",
    "times",         "timerfd_create", "timerfd_settime", "timerfd_gettime", "epoll_create", "epoll_create1",
    "epoll_ctl",     "epoll_wait",     "epoll_pwait",     "epoll_pwait2",    "poll",         "ppoll",
    "select",        "pselect6",       "eventfd",         "eventfd2",        "pipe",         "pipe2"};
// Files: spill, snapshots, plug-ins' own files, and files of /proc and /sys that libraries read. The user's rights
// limit them. ioctl() without a list of commands, because drivers of cards (verbs, DOCA, GPUs) have hundreds.
constexpr const char* files[] = {"read",
                                 "write",
                                 "readv",
                                 "writev",
                                 "pread64",
                                 "pwrite64",
                                 "preadv",
                                 "pwritev",
                                 "preadv2",
                                 "pwritev2",
                                 "open",
                                 "openat",
                                 "openat2",
                                 "creat",
                                 "close",
                                 "close_range",
                                 "dup",
                                 "dup2",
                                 "dup3",
                                 "fcntl",
                                 "ioctl",
                                 "flock",
                                 "lseek",
                                 "stat",
                                 "lstat",
                                 "fstat",
                                 "newfstatat",
                                 "statx",
                                 "statfs",
                                 "fstatfs",
                                 "access",
                                 "faccessat",
                                 "faccessat2",
                                 "readlink",
                                 "readlinkat",
                                 "getdents64",
                                 "getcwd",
                                 "chdir",
                                 "fchdir",
                                 "truncate",
                                 "ftruncate",
                                 "fallocate",
                                 "fadvise64",
                                 "readahead",
                                 "fsync",
                                 "fdatasync",
                                 "sync_file_range",
                                 "syncfs",
                                 "copy_file_range",
                                 "sendfile",
                                 "splice",
                                 "mkdir",
                                 "mkdirat",
                                 "rmdir",
                                 "rename",
                                 "renameat",
                                 "renameat2",
                                 "link",
                                 "linkat",
                                 "symlink",
                                 "symlinkat",
                                 "unlink",
                                 "unlinkat",
                                 "chmod",
                                 "fchmod",
                                 "fchmodat",
                                 "utimensat",
                                 "umask"};
// Queries of a process about itself and the machine.
constexpr const char* oneself[] = {"getuid",    "geteuid",     "getgid",  "getegid", "getgroups", "getresuid",
                                   "getresgid", "getpgrp",     "getpgid", "getsid",  "capget",    "getrlimit",
                                   "getrusage", "getpriority", "uname",   "sysinfo", "getrandom"};
// On existing sockets; a worker has one.
constexpr const char* sockets[] = {"sendto",   "sendmsg",    "sendmmsg",    "recvfrom",    "recvmsg",
                                   "recvmmsg", "getsockopt", "getsockname", "getpeername", "shutdown"};

// Only the agent: reading programs' memory, other processes' ends, listeners and connections. socket() is below.
constexpr const char* agent_alone[] = {"process_vm_readv", "pidfd_open", "setsockopt", "bind",       "listen",
                                       "accept",           "accept4",    "connect",    "setpriority"};
// Starts, waits for and ends any program.
constexpr const char* programs[] = {"execve", "vfork",  "fork",    "wait4",  "waitid",
                                    "kill",   "tgkill", "setpgid", "setsid", "prlimit64"};
// Needed by a worker between execve() and its list (worker.cc).
constexpr const char* workers[] = {"setgroups", "setresuid", "setresgid", "capset", "seccomp"};
// Further calls of programs of an alarm hook or a source: shells, curl, nvidia-smi, mail. They gain no rights
// (no_new_privs).
constexpr const char* commands[] = {"execveat",
                                    "tkill",
                                    "pidfd_send_signal",
                                    "alarm",
                                    "setitimer",
                                    "getitimer",
                                    "timer_create",
                                    "timer_settime",
                                    "timer_gettime",
                                    "timer_delete",
                                    "timer_getoverrun",
                                    "rt_sigqueueinfo",
                                    "rt_tgsigqueueinfo",
                                    "setuid",
                                    "setgid",
                                    "setreuid",
                                    "setregid",
                                    "setresuid",
                                    "setresgid",
                                    "setgroups",
                                    "setfsuid",
                                    "setfsgid",
                                    "capset",
                                    "fchown",
                                    "fchownat",
                                    "chown",
                                    "lchown",
                                    "fchmodat2",
                                    "utime",
                                    "utimes",
                                    "futimesat",
                                    "getxattr",
                                    "lgetxattr",
                                    "fgetxattr",
                                    "listxattr",
                                    "llistxattr",
                                    "flistxattr",
                                    "inotify_init",
                                    "inotify_init1",
                                    "inotify_add_watch",
                                    "inotify_rm_watch",
                                    "shmget",
                                    "shmat",
                                    "shmdt",
                                    "shmctl",
                                    "semget",
                                    "semop",
                                    "semtimedop",
                                    "semctl",
                                    "tee",
                                    "vmsplice",
                                    "sched_setparam",
                                    "ioprio_get",
                                    "ioprio_set",
                                    "sync",
                                    "mlockall",
                                    "munlockall"};
// The leak checker stops the process from another one; the thread sanitizer disables address randomisation.
constexpr const char* sanitizers[] = {"ptrace", "personality", "process_vm_readv", "wait4", "waitid", "kill",
                                      "tgkill", "getdents",    "prlimit64",        "fork",  "seccomp"};

constexpr int options_of_all[] = {PR_SET_NAME,         PR_GET_NAME,     PR_GET_DUMPABLE,  PR_GET_NO_NEW_PRIVS,
                                  PR_SET_NO_NEW_PRIVS, PR_CAPBSET_READ, PR_GET_PDEATHSIG, PR_GET_TIMERSLACK,
                                  PR_SET_TIMERSLACK,   PR_GET_SECCOMP,  0x53564d41 /* PR_SET_VMA: names of memory */};
constexpr int options_of_workers[] = {PR_SET_DUMPABLE, PR_SET_PDEATHSIG, PR_CAP_AMBIENT, PR_CAPBSET_DROP,
                                      PR_SET_SECCOMP};

constexpr std::uint64_t new_namespaces =
    CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;

// ---- installing the lists

class Filter {
 public:
  // `otherwise`: the result of calls without a rule.
  explicit Filter(std::uint32_t otherwise) : filter_(seccomp_init(otherwise)), error_(filter_ ? 0 : ENOMEM) {
    // Numbers of another architecture (i386, x32) would pass as other calls.
    set(SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
    set(SCMP_FLTATR_CTL_TSYNC, 1);
    if (!filter_) return;
    // Older kernels' libraries may not know these: a tree instead of a list, and no mitigation of speculation, since
    // the code runs here anyway.
    seccomp_attr_set(filter_.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2);
    seccomp_attr_set(filter_.get(), SCMP_FLTATR_CTL_SSB, 1);
  }

  void allow(Names names) {
    for (const char* name : names) allow(name, {});
  }
  void allow(const char* name, std::initializer_list<scmp_arg_cmp> arguments) { add(SCMP_ACT_ALLOW, name, arguments); }
  void refuse(const char* name) { add(SCMP_ACT_ERRNO(ENOSYS), name, {}); }
  // The kernel uses 32 bits of such an argument; the list would compare 64.
  void allow_with(const char* name, unsigned argument, std::uint32_t value, std::uint32_t mask = ~0u) {
    allow(name, {{argument, SCMP_CMP_MASKED_EQ, mask, value}});
  }
  // Refused calls appear in the kernel's log, at its rate limit. Not for workers: a function must not be able to fill
  // the log.
  void log_refused() {
    if (filter_) seccomp_attr_set(filter_.get(), SCMP_FLTATR_CTL_LOG, 1);
  }

  Status load() {
    if (error_ == 0) error_ = -seccomp_load(filter_.get());
    if (error_ != 0) return fail_errno(error_, "seccomp");
    return {};
  }

 private:
  struct Release {
    void operator()(void* filter) const noexcept { seccomp_release(filter); }
  };

  void add(std::uint32_t action, const char* name, std::initializer_list<scmp_arg_cmp> arguments) {
    if (error_ != 0) return;
    const int number = seccomp_syscall_resolve_name(name);
    if (number == __NR_SCMP_ERROR) return;
    const int result = seccomp_rule_add_array(filter_.get(), action, number, static_cast<unsigned>(arguments.size()),
                                              arguments.begin());
    if (result != 0 && result != -EEXIST) error_ = -result;
  }

  void set(scmp_filter_attr attribute, std::uint32_t value) {
    if (error_ == 0) error_ = -seccomp_attr_set(filter_.get(), attribute, value);
  }

  std::unique_ptr<void, Release> filter_;
  int error_;
};

std::uint32_t otherwise(Sandbox sandbox) { return sandbox == Sandbox::log ? SCMP_ACT_LOG : SCMP_ACT_ERRNO(ENOSYS); }

// clone3() has its flags in memory, which lists cannot check; the C library falls back to clone(). It has a list of its
// own, because the C library tries it for each thread and would fill the log.
Status refuse_clone3() {
  Filter filter(SCMP_ACT_ALLOW);
  filter.refuse("clone3");
  return filter.load();
}

void allow_common(Filter& filter) {
  for (const Names names : {Names(memory), Names(threads), Names(signals), Names(time_and_waiting), Names(files),
                            Names(oneself), Names(sockets)})
    filter.allow(names);
  for (const int option : options_of_all) filter.allow_with("prctl", 0, static_cast<std::uint32_t>(option));
  filter.allow_with("prlimit64", 0, 0);  // on itself
  if constexpr (OFP_SANITIZED != 0) {
    filter.allow(sanitizers);
    filter.allow("prctl", {});
  }
}

// Permits abort(), raise() and pthread_kill(), but no signals to others.
void signal_itself(Filter& filter) {
  for (const char* name : {"kill", "tgkill"}) filter.allow_with(name, 0, static_cast<std::uint32_t>(getpid()));
}

}  // namespace

Status restrict_agent(Sandbox sandbox, StartsPrograms starts) {
  if (sandbox == Sandbox::off) return {};
  OFP_TRY(refuse_clone3());
  Filter filter(otherwise(sandbox));
  filter.log_refused();
  filter.allow("clone3", {});
  allow_common(filter);
  filter.allow(agent_alone);
  for (const int family : {AF_UNIX, AF_INET, AF_INET6})
    filter.allow_with("socket", 0, static_cast<std::uint32_t>(family));
  // Addresses of interfaces for getaddrinfo(), and RDMA's devices for libibverbs.
  for (const int protocol : {NETLINK_ROUTE, NETLINK_RDMA})
    filter.allow("socket", {{0, SCMP_CMP_MASKED_EQ, ~0u, AF_NETLINK},
                            {2, SCMP_CMP_MASKED_EQ, ~0u, static_cast<scmp_datum_t>(protocol)}});
  filter.allow_with("socketpair", 0, AF_UNIX);
  const bool starts_any = starts.workers || starts.commands || OFP_SANITIZED != 0;
  // If no programs are started, only threads.
  if (starts_any)
    filter.allow_with("clone", 0, 0, new_namespaces);
  else
    filter.allow_with("clone", 0, CLONE_THREAD, new_namespaces | CLONE_THREAD);
  if (starts.workers || starts.commands)
    filter.allow(programs);
  else
    signal_itself(filter);
  if (starts.commands) filter.allow(commands);
  if (starts.workers) {
    filter.allow(workers);
    for (const int option : options_of_workers) filter.allow_with("prctl", 0, static_cast<std::uint32_t>(option));
    filter.allow_with("unshare", 0, worker_namespaces);
  }
  return filter.load();
}

Status restrict_worker(Sandbox sandbox) {
  if (sandbox == Sandbox::off) return {};
  OFP_TRY(refuse_clone3());
  Filter filter(otherwise(sandbox));
  filter.allow("clone3", {});
  allow_common(filter);
  filter.allow_with("clone", 0, 0, new_namespaces);  // a process that it starts is in its group, and ends with it
  filter.allow("wait4", {});
  filter.allow("waitid", {});
  signal_itself(filter);
  return filter.load();
}

}  // namespace offpath::plugin
