#include "link/control/peer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <optional>
#include <string_view>

namespace offpath::link {

namespace {

#ifndef SO_PEERPIDFD  // Linux 6.5
constexpr int SO_PEERPIDFD = 77;
#endif
#ifndef PR_SET_PTRACER
constexpr int PR_SET_PTRACER = 0x59616d61;
#endif

// The beginning of a small file of /proc; empty if it cannot be read.
std::string read_proc(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return {};
  std::array<char, 4096> text;
  const ssize_t got = ::read(file.get(), text.data(), text.size());
  return got > 0 ? std::string(text.data(), static_cast<std::size_t>(got)) : std::string();
}

std::optional<std::uint64_t> to_number(std::string_view text, int base = 10) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc{}) return std::nullopt;
  return number;
}

// Clock ticks after boot, field 22 of /proc/PID/stat (proc(5)); the second field may contain anything.
std::optional<std::uint64_t> start_time(pid_t pid) {
  const std::string text = read_proc(fmt::format("/proc/{}/stat", pid));
  std::size_t at = text.rfind(')');
  for (int field = 2; at != std::string::npos && field < 22; ++field) at = text.find(' ', at + 1);
  if (at == std::string::npos) return std::nullopt;
  return to_number(std::string_view(text).substr(at + 1));
}

std::uint64_t ticks_since_boot() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const auto ticks = static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK));
  return static_cast<std::uint64_t>(now.tv_sec) * ticks +
         static_cast<std::uint64_t>(now.tv_nsec) * ticks / 1'000'000'000u;
}

// For kernels before 6.5. The number may belong to another process by now: a process that started after this call began
// cannot be the peer, whose connection existed before.
Fd open_pidfd(pid_t pid) {
  const std::uint64_t now = ticks_since_boot();
  Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!pidfd) return Fd();
  const auto started = start_time(pid);
  if (!started || *started > now) return Fd();
  return pidfd;
}

std::string status_field(const std::string& status, std::string_view name) {
  const std::size_t at = status.find(fmt::format("\n{}:\t", name));
  if (at == std::string::npos) return {};
  const std::size_t from = at + name.size() + 3;
  return status.substr(from, status.find('\n', from) - from);
}

bool in_other_user_namespace(pid_t pid) {
  struct stat own{}, other{};
  if (stat("/proc/self/ns/user", &own) != 0) return false;
  if (stat(fmt::format("/proc/{}/ns/user", pid).c_str(), &other) == 0) return own.st_ino != other.st_ino;
  // The namespace links are unreadable without the privilege in question; the maps are readable.
  return read_proc("/proc/self/uid_map") != read_proc(fmt::format("/proc/{}/uid_map", pid));
}

std::string why_refused(const Peer& peer) {
  const uid_t own = geteuid();
  const std::string status = read_proc(fmt::format("/proc/{}/status", peer.pid));
  if (in_other_user_namespace(peer.pid))
    return "the program runs in another user namespace (a container): run the agent in the same one, or give the agent "
           "CAP_SYS_PTRACE over it";
  if (peer.uid != own)
    return fmt::format(
        "the program runs as uid {}, the agent as uid {}: run both as the same user, or give the agent "
        "CAP_SYS_PTRACE",
        peer.uid, own);
  if (const int scope = yama_scope(); scope > 0) {
    if (scope == 1)
      return "kernel.yama.ptrace_scope is 1 and the program's permission names another process: let one agent serve "
             "it, or "
             "set kernel.yama.ptrace_scope to 0";
    return fmt::format(
        "kernel.yama.ptrace_scope is {}: set it to 0 or 1{}", scope,
        scope == 2 ? ", or give the agent CAP_SYS_PTRACE" : " at boot, it cannot be lowered while running");
  }
  struct stat file{};  // files there belong to root if the process is not dumpable (proc(5))
  if (peer.uid != 0 && stat(fmt::format("/proc/{}/status", peer.pid).c_str(), &file) == 0 && file.st_uid != peer.uid)
    return "the program made itself unreadable (PR_SET_DUMPABLE 0, or it was started with more rights than its user "
           "has)";
  const std::string theirs = status_field(status, "CapPrm");
  const std::string ours = status_field(read_proc("/proc/self/status"), "CapPrm");
  if (const auto their_set = to_number(theirs, 16), our_set = to_number(ours, 16);
      their_set && our_set && (*their_set & ~*our_set) != 0)
    return fmt::format("the program has capabilities ({}) that the agent lacks ({}): start both with the same", theirs,
                       ours);
  return "the kernel's policy forbids it (a container's seccomp profile or a security module): allow process_vm_readv, "
         "in a "
         "container with --cap-add=SYS_PTRACE";
}

}  // namespace

Result<Peer> peer_of(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return fail_errno(errno, "SO_PEERCRED");
  Peer peer;
  peer.pid = credentials.pid;
  peer.uid = credentials.uid;
  peer.gid = credentials.gid;
  int pidfd = -1;
  length = sizeof pidfd;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0) {
    peer.pidfd = Fd(pidfd);
  } else if (errno != ESRCH && errno != EINVAL && peer.pid > 0) {
    peer.pidfd = open_pidfd(peer.pid);
  }
  return peer;
}

bool has_ended(const Peer& peer) noexcept {
  if (!peer.pidfd) return false;
  pollfd look{peer.pidfd.get(), POLLIN, 0};
  return poll(&look, 1, 0) == 1;
}

namespace {

constexpr const char* as_it_lies = "one machine: the agent reads the program's memory in place";

DirectReads not_visible() {
  return {false,
          "the program's process id is not visible to the agent (another PID namespace): run the container with "
          "--pid=host"};
}

DirectReads not_read(const Peer& peer, int error_number) {
  if (error_number == EPERM) return {false, "direct reads are not permitted: " + why_refused(peer)};
  if (error_number == ENOSYS)
    return {false, "direct reads are not permitted: a seccomp profile forbids process_vm_readv, allow it"};
  return {false, fmt::format("direct reads do not work: {}",
                             error_number != 0 ? std::strerror(error_number) : "the read was short")};
}

}  // namespace

DirectReads try_direct_reads(const Peer& peer, Witness& witness) {
  if (peer.pid == 0) return not_visible();
  witness.renew();
  const iovec to = witness.to(), from = witness.from();
  const ssize_t got = process_vm_readv(peer.pid, &to, 1, &from, 1, 0);
  const int error_number = got < 0 ? errno : 0;
  constexpr auto whole = static_cast<ssize_t>(Witness::bytes);
  if (got == whole && witness.seen() && !has_ended(peer)) return {true, as_it_lies};
  if (got == whole || error_number == EFAULT)
    return {false, fmt::format("process {} opened the connection, but another process uses it: connect after the fork",
                               peer.pid)};
  return not_read(peer, error_number);
}

DirectReads ask_for_direct_reads(const Peer& peer) {
  if (peer.pid == 0) return not_visible();
  std::uint64_t none = 0;
  const iovec to{&none, sizeof none};
  // in the kernel's part of the address space
  const iovec from{reinterpret_cast<void*>(~std::uint64_t{0} - 4095), sizeof none};
  const ssize_t got = process_vm_readv(peer.pid, &to, 1, &from, 1, 0);
  const int error_number = got < 0 ? errno : 0;
  if (error_number == EFAULT && !has_ended(peer)) return {true, as_it_lies};
  return not_read(peer, error_number);
}

int yama_scope() {
  const auto scope = to_number(read_proc("/proc/sys/kernel/yama/ptrace_scope"));
  return scope ? static_cast<int>(*scope) : 0;
}

void permit_reads_by(pid_t reader) {
  if (reader > 0 && yama_scope() == 1) (void)prctl(PR_SET_PTRACER, static_cast<unsigned long>(reader), 0, 0, 0);
}

}  // namespace offpath::link
