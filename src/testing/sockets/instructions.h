// Counts the instructions of a call: its cost, independent of other load.
#pragma once

#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <optional>

namespace offpath {

// In one copy.
template <class Prepare, class Body>
[[nodiscard]] std::optional<std::uint64_t> instructions_once(std::uint64_t most, const Prepare& prepare,
                                                             const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    [&]() noexcept {
      prepare();
      if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(1);
      ::raise(SIGSTOP);
      body();
      ::raise(SIGSTOP);
    }();
    ::_exit(0);
  }
  int status = 0;
  std::uint64_t count = 0;
  const auto stopped_by = [&] {
    return ::waitpid(child, &status, 0) == child && WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
  };
  if (child < 0 || stopped_by() != SIGSTOP) return std::nullopt;
  int signal = SIGTRAP;
  while (signal == SIGTRAP && count < most && ::ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr) == 0 &&
         (signal = stopped_by()) == SIGTRAP)
    ++count;
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return signal == SIGSTOP || count == most ? std::optional(count) : std::nullopt;
}

// The least number that `body` executes in copies of this process, after `prepare`; the kernel's are not counted. Other
// threads' events may add some to one of the copies. No more than `most` are counted. nullopt: a process may not be
// traced here, or a copy has ended early.
template <class Prepare, class Body>
[[nodiscard]] std::optional<std::uint64_t> instructions(std::uint64_t most, const Prepare& prepare, const Body& body) {
  constexpr int copies = 3;
  std::optional<std::uint64_t> least = instructions_once(most, prepare, body);
  for (int i = 1; i < copies && least; ++i) {
    const auto count = instructions_once(most, prepare, body);
    least = count ? std::min(least, count) : std::nullopt;
  }
  return least;
}

}  // namespace offpath
