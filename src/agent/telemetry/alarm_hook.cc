#include "agent/telemetry/alarm_hook.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/log.h"

namespace offpath::agent {

namespace {

// Null-terminated pointers to texts that do not move.
std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

// Starts the command in a process group of its own, without the agent's input and with its output. Returns 0 and sets
// errno on failure.
pid_t spawn(std::vector<std::string> command, const AlarmHook::Environment& added) {
  std::vector<std::string> environment;
  for (char** each = environ; *each != nullptr; ++each) environment.emplace_back(*each);
  for (const auto& [name, value] : added) environment.push_back(name + "=" + value);
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_t files;
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_init(&files);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  // The agent opens everything close-on-exec. One of its libraries may not.
  constexpr unsigned on_exec = 4;  // CLOSE_RANGE_CLOEXEC
  static_cast<void>(::syscall(SYS_close_range, STDERR_FILENO + 1u, ~0u, on_exec));
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, command[0].c_str(), &files, &attributes, pointers(command).data(),
                                 pointers(environment).data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  errno = error;
  return error == 0 ? pid : 0;
}

}  // namespace

AlarmHook::AlarmHook(loop::Loop& loop, std::vector<std::string> command, TimeNs limit_ns)
    : loop_(loop), command_(std::move(command)), limit_ns_(limit_ns) {}

AlarmHook::~AlarmHook() {
  if (!process_) return;
  loop_.unwatch(process_.get());
  kill_group();
  ::waitpid(pid_, nullptr, 0);
}

void AlarmHook::tell(Environment environment, TimeNs now) {
  if (command_.empty()) return;
  if (waiting_.size() == waiting_max) {
    waiting_.pop_front();
    if (counters_.left_out++ == 0)
      log(LogLevel::warning, "{} alarms wait for alarms.hook, {}: the oldest are dropped", waiting_max, command_[0]);
  }
  waiting_.push_back(std::move(environment));
  start_next(now);
}

void AlarmHook::start_next(TimeNs now) {
  while (!process_ && !waiting_.empty()) {
    const Environment environment = std::move(waiting_.front());
    waiting_.pop_front();
    ++counters_.runs;
    pid_ = spawn(command_, environment);
    if (pid_ == 0) {
      ++counters_.failures;
      log(LogLevel::warning, "alarms.hook: {} cannot be started: {}", command_[0], std::strerror(errno));
      continue;
    }
    killed_at_ = deadline_after(now, limit_ns_);
    killed_ = false;
    process_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
    const bool is_watched =
        process_ && loop_.watch(process_.get(), EPOLLIN, [this](std::uint32_t, TimeNs at) { on_ended(at); });
    if (is_watched) continue;
    // Without a descriptor the hook's end would go unnoticed.
    kill_group();
    ::waitpid(pid_, nullptr, 0);
    process_ = Fd();
    ++counters_.failures;
  }
}

void AlarmHook::on_time(TimeNs now) {
  if (!process_ || now < killed_at_) return;
  log(LogLevel::warning, "alarms.hook: {} did not end within {:.1f} s and was killed", command_[0],
      static_cast<double>(limit_ns_) / 1e9);
  killed_ = true;
  killed_at_ = never;
  kill_group();
}

void AlarmHook::on_ended(TimeNs now) {
  siginfo_t ended{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid != pid_)
    return;
  kill_group();  // kills its leftover children; until it is waited for, its number is not reused
  int status = 0;
  ::waitpid(pid_, &status, 0);
  loop_.unwatch(process_.get());
  process_ = Fd();
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    ++counters_.failures;
    if (!killed_)
      log(LogLevel::warning, "alarms.hook: {} ended with {}", command_[0],
          WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
  }
  start_next(now);
}

void AlarmHook::kill_group() { ::kill(-pid_, SIGKILL); }

}  // namespace offpath::agent
