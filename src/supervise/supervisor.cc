#include "supervise/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/received_fds.h"
#include "base/sent_fds.h"
#include "supervise/filter.h"

namespace offpath::supervise {

namespace {

constexpr int looks_before_call = 16;
constexpr std::array passed_on{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT, SIGALRM};

sigset_t handled_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (const int each : passed_on) sigaddset(&set, each);
  return set;
}

// The new process's message before it becomes the program: the filter's descriptor, or the error.
struct Said {
  int code = 0;
  std::array<char, 256> what{};
};

Said said(int code, std::string_view what) {
  Said made{.code = code, .what = {}};
  std::ranges::copy(what.substr(0, made.what.size() - 1), made.what.begin());
  return made;
}

void say(int to, const Said& what, std::span<const int> descriptors) {
  const iovec part{const_cast<Said*>(&what), sizeof what};
  static_cast<void>(send_with_descriptors(to, {&part, 1}, descriptors, 0));
}

[[noreturn]] void become(char** command, bool counts_all, int to, const sigset_t& mask) {
  auto filter = set_filter(counts_all);
  if (filter) {
    const std::array<int, 1> descriptors{filter->get()};
    say(to, said(0, ""), descriptors);
    filter->reset();
    char is_ready;
    if (::recv(to, &is_ready, 1, 0) != 1) ::_exit(127);  // the supervisor cannot serve, and says why
    ::sigprocmask(SIG_SETMASK, &mask, nullptr);
    ::execvp(command[0], command);
    say(to, said(errno, std::strerror(errno)), {});
  } else {
    say(to, said(EPERM, filter.error().message), {});
  }
  ::_exit(127);
}

// Two descriptors for each socket.
void raise_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::string name_of(const char* program) {
  const std::string_view path = program;
  return std::string(path.substr(path.rfind('/') + 1));  // npos + 1 is 0
}

}  // namespace

Supervisor::Supervisor(const sockets::Policy& policy, std::string name, Notifications calls, pid_t program, Fd signals)
    : program_(program), signals_(std::move(signals)), calls_(policy, std::move(name), std::move(calls)) {}

Result<std::unique_ptr<Supervisor>> Supervisor::start(const sockets::Policy& policy, char** command, bool counts_all) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return fail_errno(errno, "socketpair");
  Fd here(ends[0]), there(ends[1]);
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) return fail_errno(errno, "prctl(PR_SET_CHILD_SUBREAPER)");
  const sigset_t handled = handled_signals();
  sigset_t before;
  ::sigprocmask(SIG_BLOCK, &handled, &before);
  Fd signals(::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals) return fail_errno(errno, "signalfd");
  // With SIGCHLD ignored, the program's end would go unnoticed.
  const auto on_end = ::signal(SIGCHLD, SIG_DFL);
  const pid_t program = ::fork();
  if (program < 0) return fail_errno(errno, "fork");
  if (program == 0) {
    ::signal(SIGCHLD, on_end);
    become(command, counts_all, there.get(), before);
  }
  ::signal(SIGPIPE, SIG_IGN);
  there.reset();

  Said what;
  const iovec part{&what, sizeof what};
  std::vector<Fd> descriptors;
  int flags = 0;
  const bool heard =
      receive_with_descriptors(here.get(), {&part, 1}, MSG_CMSG_CLOEXEC, nullptr, descriptors, flags) == sizeof what;
  if (!heard || what.code != 0 || descriptors.size() != 1) {
    ::waitpid(program, nullptr, 0);
    what.what.back() = 0;
    return fail(Error::unsupported, "{}", heard ? what.what.data() : "the program could not be started");
  }
  auto calls = Notifications::open(std::move(descriptors.front()));
  if (!calls) {
    here.reset();
    ::waitpid(program, nullptr, 0);
    return tl::unexpected(std::move(calls).error());
  }
  static_cast<void>(::send(here.get(), "", 1, MSG_NOSIGNAL));
  // The end of this socket is the success of exec.
  if (::recv(here.get(), &what, sizeof what, 0) > 0) {
    ::waitpid(program, nullptr, 0);
    what.what.back() = 0;
    return fail(Error::not_found, "{}: {}", command[0], what.what.data());
  }
  raise_limit();
  return std::unique_ptr<Supervisor>(
      new Supervisor(policy, name_of(command[0]), std::move(*calls), program, std::move(signals)));
}

Result<int> Supervisor::run() {
  Relay& relay = calls_.relay();
  bool more = false;
  for (;;) {
    const TimeNs due = std::min(relay.next_due(), calls_.next_due());
    const TimeNs now = monotonic_ns();
    const bool sleeps = !more && due > now && relay.fall_asleep();
    const TimeNs left = sleeps ? std::min(due - now, 3600 * second_ns) : 0;
    const timespec limit{left / second_ns, left % second_ns};
    std::array<pollfd, 3> ready{pollfd{calls_.descriptor(), POLLIN, 0}, pollfd{relay.descriptor(), POLLIN, 0},
                                pollfd{signals_.get(), POLLIN, 0}};
    const int count = ::ppoll(ready.data(), ready.size(), &limit, nullptr);
    if (sleeps) relay.awake();
    if (count < 0 && errno != EINTR) return fail_errno(errno, "ppoll");
    if ((ready[0].revents & POLLIN) != 0) {
      // Sockets that the program closed before this call give up their ports first.
      for (int i = 0; i < looks_before_call && relay.work(); ++i) {
      }
      calls_.take();
    }
    more = relay.work();
    calls_.expire(monotonic_ns());
    if ((ready[2].revents & POLLIN) != 0) on_signals();
    if ((ready[0].revents & (POLLIN | POLLHUP)) == POLLHUP) {  // no process has the filter any more
      reap();
      if (status_) break;
    }
  }
  relay.leave();
  return *status_;
}

// Signals of a terminal reach the program as well; others are passed on.
void Supervisor::on_signals() {
  signalfd_siginfo got{};
  while (::read(signals_.get(), &got, sizeof got) == sizeof got) {
    const int number = static_cast<int>(got.ssi_signo);
    if (number == SIGCHLD)
      reap();
    else if (got.ssi_code <= 0)  // by kill, tgkill or sigqueue
      pass_on(number);
  }
}

void Supervisor::reap() {
  int status = 0;
  while (const pid_t ended = ::waitpid(-1, &status, WNOHANG)) {
    if (ended < 0) return;
    if (ended == program_) status_ = status;
  }
}

// To processes that the program has left behind after its end.
void Supervisor::pass_on(int signal) const {
  if (!status_) {
    ::kill(program_, signal);
    return;
  }
  std::FILE* const children = std::fopen("/proc/thread-self/children", "re");
  if (children == nullptr) return;
  int child = 0;
  while (std::fscanf(children, "%d", &child) == 1) ::kill(child, signal);
  std::fclose(children);
}

}  // namespace offpath::supervise
