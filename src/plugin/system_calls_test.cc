// The lists in force in the kernel: a child installs one and tries calls. A refused call fails with ENOSYS; any other
// result means that the list permits it.
#include "plugin/system_calls.h"

#include <gtest/gtest.h>
#include <linux/keyctl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "testing/link/emulated.h"

namespace offpath::plugin {
namespace {

#ifndef __has_feature  // defined by Clang; GCC defines the others
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) || \
    __has_feature(thread_sanitizer)
constexpr bool sanitized = true;  // sanitizers' own calls are in the lists
#else
constexpr bool sanitized = false;
#endif

struct Call {
  const char* name;
  long (*make)();  // returns its result, and sets errno
};

long fork_and_wait() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  return child < 0 ? -1 : waitpid(child, nullptr, 0);
}

long run_thread() {
  long got = -1;
  std::thread([&] { got = gettid(); }).join();
  return got;
}

long read_other() {
  char here = 0;
  const iovec to{&here, 1}, from{&here, 1};
  return process_vm_readv(getppid(), &to, 1, &from, 1, 0);
}

long write_other() {
  char here = 0;
  const iovec from{&here, 1}, to{nullptr, 1};
  return process_vm_writev(getppid(), &from, 1, &to, 1, 0);
}

long open_socket(int family, int protocol) { return Fd(socket(family, SOCK_RAW, protocol)) ? 0 : -1; }

// Refused by every list. Harmless if permitted.
const std::vector<Call> never = {
    {"process_vm_writev", write_other},
    {"mount", [] { return static_cast<long>(mount(nullptr, nullptr, nullptr, 0, nullptr)); }},
    {"unshare of mounts", [] { return static_cast<long>(unshare(CLONE_NEWNS)); }},
    {"clone into namespaces", [] { return syscall(SYS_clone, CLONE_NEWUSER | CLONE_NEWNS | CLONE_FS, 0, 0, 0, 0); }},
    {"clone3", [] { return syscall(SYS_clone3, nullptr, 0); }},
    {"setns", [] { return syscall(SYS_setns, -1, 0); }},
    {"AF_PACKET", [] { return open_socket(AF_PACKET, 0); }},
    {"netfilter", [] { return open_socket(AF_NETLINK, 12); }},
    {"bpf", [] { return syscall(SYS_bpf, -1, nullptr, 0); }},
    {"perf_event_open", [] { return syscall(SYS_perf_event_open, nullptr, 0, 0, -1, 0); }},
    {"io_uring_setup", [] { return syscall(SYS_io_uring_setup, 0, nullptr); }},
    {"keyctl", [] { return syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, 0, 0); }},
    {"init_module", [] { return syscall(SYS_init_module, nullptr, 0, nullptr); }},
    {"kexec_load", [] { return syscall(SYS_kexec_load, 0, 0, nullptr, 0); }},
    {"pivot_root", [] { return syscall(SYS_pivot_root, nullptr, nullptr); }},
    {"userfaultfd", [] { return syscall(SYS_userfaultfd, -1); }},
};
// Used by sanitizers.
const Call trace{"ptrace", [] { return ptrace(PTRACE_PEEKDATA, 0, nullptr, nullptr); }};
const Call starts_process{"fork", fork_and_wait};
const Call signals_other{"kill", [] { return static_cast<long>(kill(getppid(), 0)); }};
const Call reads_other{"process_vm_readv", read_other};

const Call executes{"execve", [] { return static_cast<long>(execl("/nowhere/to/be/found", "found", nullptr)); }};
const Call unshares{"unshare of a worker's", [] { return static_cast<long>(unshare(worker_namespaces)); }};
const Call changes_user{"setresuid", [] { return static_cast<long>(setresuid(-1, -1, -1)); }};
const Call changes_group{"setgid", [] { return static_cast<long>(setgid(getgid())); }};
const Call connects{"AF_INET", [] { return Fd(socket(AF_INET, SOCK_STREAM, 0)) ? 0L : -1L; }};
const Call pairs{"socketpair", [] {
                   int ends[2];
                   return static_cast<long>(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
                 }};
// Calls that all of them need.
const std::vector<Call> always = {
    {"threads", run_thread},
    {"memfd_create", [] { return static_cast<long>(memfd_create("m", MFD_CLOEXEC)); }},
    {"kill of itself", [] { return static_cast<long>(kill(getpid(), 0)); }},
};

class SystemCalls : public testing::Test {
 protected:
  void SetUp() override { OFP_NEEDS_KERNEL("seccomp"); }

  // The calls that are refused to a restricted process.
  template <class Restrict>
  static std::vector<std::string> refused(Restrict restrict, const std::vector<Call>& calls) {
    void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    auto* const outcomes = static_cast<char*>(memory);
    const pid_t child = fork();
    if (child == 0) {
      if (const Status restricted = restrict(); !restricted) _exit(2);
      for (std::size_t i = 0; i < calls.size(); ++i) {
        errno = 0;
        outcomes[i] = calls[i].make() < 0 && errno == ENOSYS ? 'r' : 'p';
      }
      _exit(0);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "the list could not be taken over, or the child did not come to its end";
    std::vector<std::string> names;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      EXPECT_TRUE(outcomes[i] == 'r' || outcomes[i] == 'p') << calls[i].name;
      if (outcomes[i] == 'r') names.emplace_back(calls[i].name);
    }
    munmap(memory, 4096);
    return names;
  }

  template <class Restrict>
  static void expect(Restrict restrict, std::vector<Call> denied, const std::vector<Call>& granted,
                     const std::vector<Call>& of_sanitizers) {
    denied.insert(denied.end(), never.begin(), never.end());
    if (!sanitized) denied.insert(denied.end(), of_sanitizers.begin(), of_sanitizers.end());
    std::vector<std::string> names;
    for (const Call& each : denied) names.emplace_back(each.name);
    EXPECT_EQ(refused(restrict, denied), names);
    std::vector<Call> passing = always;
    passing.insert(passing.end(), granted.begin(), granted.end());
    EXPECT_EQ(refused(restrict, passing), std::vector<std::string>{});
  }
  static auto agent(StartsPrograms starts, Sandbox sandbox = Sandbox::on) {
    return [=] { return restrict_agent(sandbox, starts); };
  }
};

TEST_F(SystemCalls, AnAgentThatStartsNoProgramsStartsThreadsAlone) {
  expect(agent({}), {executes, unshares, changes_user, changes_group}, {reads_other, connects, pairs},
         {trace, starts_process, signals_other});
}

TEST_F(SystemCalls, AnAgentWithWorkersStartsThemAndTheirNamespaces) {
  expect(agent({.workers = true}), {changes_group},
         {reads_other, connects, pairs, executes, starts_process, signals_other, changes_user, unshares}, {trace});
}

TEST_F(SystemCalls, AnAgentWithCommandsStartsWhatToolsTake) {
  expect(agent({.commands = true}), {unshares},
         {reads_other, connects, pairs, executes, starts_process, signals_other, changes_user, changes_group}, {trace});
}

TEST_F(SystemCalls, AnAgentWithBothHasBothAndNoMore) {
  expect(agent({.workers = true, .commands = true}), {},
         {reads_other, connects, pairs, executes, starts_process, signals_other, changes_user, changes_group, unshares},
         {trace});
}

TEST_F(SystemCalls, AWorkerHasNoSocketNoProgramAndNoOtherProcess) {
  expect([] { return restrict_worker(Sandbox::on); },
         {executes, unshares, changes_user, changes_group, connects, pairs}, {starts_process},
         {trace, reads_other, signals_other});
}

TEST_F(SystemCalls, NothingIsRefusedWithoutAListOrOnTrial) {
  const std::vector<Call> calls = {trace, never[0], never[1], executes, connects};
  for (const Sandbox sandbox : {Sandbox::off, Sandbox::log}) {
    EXPECT_EQ(refused(agent({}, sandbox), calls), std::vector<std::string>{});
    EXPECT_EQ(refused([=] { return restrict_worker(sandbox); }, calls), std::vector<std::string>{});
  }
}

}  // namespace
}  // namespace offpath::plugin
