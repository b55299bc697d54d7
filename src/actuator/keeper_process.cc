#include "actuator/keeper_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "actuator/keeper.h"
#include "base/suspend_clock.h"

namespace offpath::actuator {

namespace {

constexpr int keeper_socket = 3;
constexpr std::size_t why_bytes = 240;
constexpr std::size_t asked_max = 256;  // as many answers fit a socket, so that the keeper never waits for the agent
static_assert(asked_max >= actuators_max);
constexpr int socket_bytes = 512 << 10;  // of which the kernel counts about 1 KiB for an answer, or more
constexpr unsigned restores_max = 10;    // after the agent's end, a second apart
constexpr int end_waits_max = 200, end_wait_ms = 10;

struct Request {
  std::uint64_t number;
  std::uint64_t value;
  TimeNs until;
  std::uint32_t actuator, zero;
};
static_assert(sizeof(Request) == 32);

struct Reply {
  std::uint64_t number;
  std::uint64_t value;
  std::int32_t error;  // 0: none
  std::uint32_t why_length;
  std::array<char, why_bytes> why;
};
static_assert(sizeof(Reply) == 24 + why_bytes);

Reply reply_of(std::uint64_t number, const Result<std::uint64_t>& set) {
  Reply reply{};
  reply.number = number;
  if (set) {
    reply.value = *set;
    return reply;
  }
  reply.error = static_cast<std::int32_t>(set.error().code);
  reply.why_length = static_cast<std::uint32_t>(std::min(set.error().message.size(), why_bytes));
  std::memcpy(reply.why.data(), set.error().message.data(), reply.why_length);
  return reply;
}

// Never waits for the log's reader.
void say(const std::string& what) {
  const std::string line = fmt::format("offpath-keeper: {}\n", brief(what));
  if (send(STDERR_FILENO, line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 || errno != ENOTSOCK) return;
  pollfd log{STDERR_FILENO, POLLOUT, 0};
  if (poll(&log, 1, 0) != 1 || (log.revents & POLLOUT) == 0) return;
  [[maybe_unused]] const ssize_t wrote = write(STDERR_FILENO, line.data(), line.size());
}

// Ready at `deadline`, also if the machine is suspended until then.
void arm(int timer, TimeNs deadline) {
  itimerspec at{};
  if (deadline != never)
    at.it_value = {std::max<TimeNs>(deadline, 1) / second_ns, std::max<TimeNs>(deadline, 1) % second_ns};
  timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, nullptr);
}

// True: the agent has ended.
bool serve_requests(Keeper& keeper) {
  for (;;) {
    Request request{};
    const ssize_t got = recv(keeper_socket, &request, sizeof request, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got != static_cast<ssize_t>(sizeof request)) return true;
    const TimeNs now = boottime_ns();
    const auto asked = [&]() -> Result<std::uint64_t> {
      if (request.until != 0) return keeper.set(request.actuator, request.value, request.until, now);
      OFP_TRY(keeper.give_up(request.actuator, now));
      return 0;
    };
    const Reply reply = reply_of(request.number, asked());
    if (send(keeper_socket, &reply, sizeof reply, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof reply)) return true;
  }
}

// Settings end on time also while the agent is stopped, and for an agent that is gone at once.
void keep(Keeper& keeper, int timer) {
  bool agent_is_there = true;
  for (unsigned restores = 0; agent_is_there || (keeper.holds_any() && restores < restores_max);) {
    pollfd ready[] = {{agent_is_there ? keeper_socket : -1, POLLIN, 0}, {timer, POLLIN, 0}};
    arm(timer, keeper.next_deadline());
    poll(ready, std::size(ready), -1);
    if (agent_is_there && ready[0].revents != 0 && serve_requests(keeper)) {
      agent_is_there = false;
      (void)keeper.restore_all(boottime_ns());
    }
    if (keeper.next_deadline() > boottime_ns()) continue;
    if (!agent_is_there) ++restores;
    (void)keeper.on_time(boottime_ns());
  }
}

// The keeper has to live on when the agent and its group are told to end, and to be in time.
void become_keeper(int socket) {
  setsid();
  for (const int each : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2}) signal(each, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  prctl(PR_SET_NAME, "offpath-keeper", 0, 0, 0);
  setpriority(PRIO_PROCESS, 0, -20);  // where that is permitted
  const Fd score(open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  [[maybe_unused]] const bool protects = score && write(score.get(), "-1000", 5) == 5;
  // The socket first: where the agent was started without descriptors 0 to 2, it may be one of these.
  if (socket != keeper_socket) dup2(socket, keeper_socket);
  const bool has_log = socket != STDERR_FILENO && fcntl(STDERR_FILENO, F_GETFD) >= 0;
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null >= 0) {
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    if (!has_log) dup2(null, STDERR_FILENO);
  }
  syscall(SYS_close_range, keeper_socket + 1, ~0u, 0);
}

[[noreturn]] void run_keeper(int socket, Keeper& keeper, const std::function<Status()>& confine) {
  become_keeper(socket);
  const int timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
  if (timer < 0) {
    say(fail_errno(errno, "timerfd_create").value().message);
    _exit(1);
  }
  if (const Status confined = confine ? confine() : Status(); !confined) {
    say(confined.error().message);
    _exit(1);
  }
  keeper.recover(boottime_ns());
  keep(keeper, timer);
  _exit(0);
}

// Twice as much is permitted to root alone.
void make_room(int socket) {
  if (setsockopt(socket, SOL_SOCKET, SO_SNDBUFFORCE, &socket_bytes, sizeof socket_bytes) != 0)
    setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &socket_bytes, sizeof socket_bytes);
}

}  // namespace

Result<KeeperProcess> KeeperProcess::start(const std::vector<ActuatorOptions>& options, const Roots& roots,
                                           const std::function<Status()>& confine) {
  std::vector<Keeper::Kept> kept;
  for (const ActuatorOptions& each : options)
    kept.push_back({make_actuator(each, roots), each.name, each.min, each.max, each.lease_ns});
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return fail_errno(errno, "socketpair");
  Fd own(ends[0]);
  const Fd theirs(ends[1]);
  for (const int each : ends) make_room(each);
  Keeper keeper(std::move(kept), say);
  const pid_t pid = fork();
  if (pid < 0) return fail_errno(errno, "fork of the keeper of actuators");
  if (pid == 0) run_keeper(theirs.get(), keeper, confine);
  return KeeperProcess(std::move(own), pid);
}

KeeperProcess::KeeperProcess(KeeperProcess&& other) noexcept
    : socket_(std::move(other.socket_)), pid_(std::exchange(other.pid_, 0)), asked_(other.asked_) {}

KeeperProcess::~KeeperProcess() {
  if (pid_ == 0) return;
  socket_.reset();
  for (int i = 0; i < end_waits_max && waitpid(pid_, nullptr, WNOHANG) == 0; ++i) poll(nullptr, 0, end_wait_ms);
}

Status KeeperProcess::ask(std::uint64_t number, std::uint32_t actuator, std::uint64_t value, TimeNs until) {
  const Request request{number, value, until, actuator, 0};
  const bool has_room = asked_ < asked_max;
  const ssize_t sent =
      has_room ? send(socket_.get(), &request, sizeof request, MSG_DONTWAIT | MSG_NOSIGNAL) : ssize_t{-1};
  if (sent == static_cast<ssize_t>(sizeof request)) {
    ++asked_;
    return {};
  }
  if (!has_room || errno == EAGAIN)
    return fail(Error::would_block, "the keeper of actuators has not taken earlier settings");
  return fail(Error::peer_lost, "the keeper of actuators has ended");
}

Result<std::vector<Answer>> KeeperProcess::receive() {
  std::vector<Answer> answers;
  for (;;) {
    Reply reply{};
    const ssize_t got = recv(socket_.get(), &reply, sizeof reply, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return answers;
    if (got != static_cast<ssize_t>(sizeof reply))
      return answers.empty() ? Result<std::vector<Answer>>(
                                   fail(Error::peer_lost, "the keeper of actuators (process {}) has ended", pid_))
                             : answers;
    --asked_;
    if (reply.error == 0) {
      answers.push_back({reply.number, reply.value});
      continue;
    }
    const std::size_t length = std::min<std::size_t>(reply.why_length, why_bytes);
    answers.push_back({reply.number, tl::unexpected(Failure{static_cast<Error>(reply.error),
                                                            std::string(reply.why.data(), length)})});
  }
}

}  // namespace offpath::actuator
