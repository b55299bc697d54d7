#include "agent/signals.h"

#include <sys/eventfd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>

namespace offpath::agent {

namespace {

// A handler has no argument to find it by.
std::atomic<int> event_of_signals{-1};
std::atomic<bool> stop_arrived{false}, reload_arrived{false};

void handle(int number) {
  const int saved = errno;
  (number == SIGHUP ? reload_arrived : stop_arrived).store(true);
  const std::uint64_t one = 1;
  [[maybe_unused]] auto ignored = write(event_of_signals.load(), &one, sizeof one);
  errno = saved;
}

}  // namespace

Result<Signals> Signals::catch_all() {
  Fd event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return fail_errno(errno, "eventfd");
  event_of_signals.store(event.get());
  struct sigaction action{};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;
  for (int number : {SIGTERM, SIGINT, SIGHUP}) {
    if (sigaction(number, &action, nullptr) != 0) return fail_errno(errno, "sigaction");
  }
  action.sa_handler = SIG_IGN;
  if (sigaction(SIGPIPE, &action, nullptr) != 0) return fail_errno(errno, "sigaction");
  return Signals(std::move(event));
}

Signals::~Signals() {
  if (!event_) return;
  for (int number : {SIGTERM, SIGINT, SIGHUP}) (void)std::signal(number, SIG_DFL);
  event_of_signals.store(-1);
}

Signals::Arrived Signals::take() noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] auto ignored = read(event_.get(), &count, sizeof count);
  return {stop_arrived.exchange(false), reload_arrived.exchange(false)};
}

}  // namespace offpath::agent
