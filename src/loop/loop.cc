#include "loop/loop.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <limits>
#include <span>

#include "loop/spin.h"

namespace offpath::loop {

namespace {

constexpr std::uint64_t waker_number = 0;
constexpr std::size_t events_max = 64;
constexpr std::uint64_t measured_rounds = 64;  // one in so many
constexpr unsigned rounds_per_clock = 4;       // that find nothing
// after this part other threads on the core get their turn between rounds
constexpr TimeNs spin_alone_ns = 2 * microsecond_ns;
constexpr TimeNs nap_ns = 50 * microsecond_ns;

// The cost of reading the clock.
TimeNs clock_cost_ns() noexcept {
  TimeNs least = never;
  for (int i = 0; i < 16; ++i) {
    const TimeNs before = monotonic_ns();
    least = std::min(least, monotonic_ns() - before);
  }
  return least;
}

}  // namespace

Result<std::unique_ptr<Loop>> Loop::make(const LoopOptions& options) {
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return fail_errno(errno, "epoll_create1");
  OFP_ASSIGN(Waker waker, Waker::make());
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = waker_number;
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, waker.fd(), &event) != 0) return fail_errno(errno, "epoll_ctl");
  std::unique_ptr<Loop> loop(new Loop(options, std::move(epoll), std::move(waker)));
  loop->clock_cost_ns_ = clock_cost_ns();
  return loop;
}

Status Loop::watch(int fd, std::uint32_t events, OnReady on_ready, After after) {
  unwatch(fd);
  epoll_event event{};
  event.events = events;
  event.data.u64 = next_watch_;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return fail_errno(errno, "epoll_ctl(add)");
  watched_.emplace(next_watch_, fd);
  watches_.insert_or_assign(fd, Watch{next_watch_, std::move(on_ready), after});
  ++next_watch_;
  return {};
}

Status Loop::watch_for(int fd, std::uint32_t events) {
  auto found = watches_.find(fd);
  if (found == watches_.end()) return fail(Error::not_found, "descriptor {} is not watched", fd);
  epoll_event event{};
  event.events = events;
  event.data.u64 = found->second.number;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0) return fail_errno(errno, "epoll_ctl(modify)");
  return {};
}

void Loop::unwatch(int fd) noexcept {
  auto found = watches_.find(fd);
  if (found == watches_.end()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);  // fails harmlessly if it is closed already
  watched_.erase(found->second.number);
  watches_.erase(found);
}

int Loop::wait_for_events(std::span<epoll_event> events, TimeNs wait) {
  auto room = static_cast<int>(events.size());
  if (whole_nanoseconds_) {
    timespec timeout{wait / second_ns, wait % second_ns};
    // By number: glibc has it from 2.35 on, kernels from 5.11 on.
    const auto ready = static_cast<int>(::syscall(SYS_epoll_pwait2, epoll_.get(), events.data(), room,
                                                  wait == never ? nullptr : &timeout, nullptr, std::size_t{0}));
    if (ready >= 0 || errno == EINTR) return ready;
    whole_nanoseconds_ = false;  // an older kernel has no such call, and filters of containers answer in their own way
  }
  constexpr TimeNs longest_ms = std::numeric_limits<int>::max();
  TimeNs milliseconds = wait / millisecond_ns + (wait % millisecond_ns != 0 ? 1 : 0);  // never too early
  return epoll_wait(epoll_.get(), events.data(), room,
                    wait == never ? -1 : static_cast<int>(std::min(milliseconds, longest_ms)));
}

// Calls the functions of ready descriptors. True if there was one: other descriptors only wake the loop.
bool Loop::look(TimeNs now, TimeNs wait) {
  std::array<epoll_event, events_max> events;
  ++counters_.looks;
  int ready = wait_for_events(events, wait);
  if (wait > 0) {
    waker_.after_sleep();
    TimeNs woken = monotonic_ns();
    counters_.asleep_ns += woken - now;
    now = woken;
  }
  // Interrupted, as after SIGCONT: the next round finds ready descriptors.
  next_look_ = ready < 0 ? now : now + options_.look_every_ns;
  bool worked = false;
  for (int i = 0; i < ready; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.u64 == waker_number) {
      waker_.clear();
      continue;
    }
    const std::uint64_t number = event.data.u64;  // a copy: the kernel's struct is packed, so no reference may point
                                                  // into it
    auto watched = watched_.find(number);
    if (watched == watched_.end()) continue;  // an earlier function has removed it
    ++counters_.descriptors_ready;
    const Watch& watch = watches_.at(watched->second);
    if (!watch.on_ready) continue;
    expects_more_ |= watch.after == After::spin;
    OnReady kept = watch.on_ready;  // it may unwatch itself
    kept(event.events, now);
    worked = true;
  }
  return worked;
}

bool Loop::round(TimeNs now) {
  bool measured = counters_.rounds++ % measured_rounds == 0;
  TimeNs began = measured ? monotonic_ns() : 0;
  bool worked = false;
  TimeNs due = timers_.next_due();
  if (now >= next_look_ || due <= now) worked = look(now, 0);
  TimeNs pollers_began = measured ? monotonic_ns() : 0;
  for (std::size_t i = 0; i < pollers_.size(); ++i) {  // one may add another
    if (!pollers_[i]->poll(now)) continue;
    worked = true;
    expects_more_ |= pollers_[i]->expects_more();
  }
  TimeNs pollers_ended = measured ? monotonic_ns() : 0;
  if (due <= now) {
    std::size_t fired = timers_.fire(now);
    counters_.timers_fired += fired;
    worked |= fired > 0;
  }
  if (measured) {
    const TimeNs outside = (pollers_began - began) + (monotonic_ns() - pollers_ended) - 2 * clock_cost_ns_;
    counters_.overhead_ns += std::max<TimeNs>(outside, 0) * static_cast<TimeNs>(measured_rounds);
  }
  if (worked) ++counters_.busy_rounds;
  return worked;
}

bool Loop::sleep(TimeNs now, TimeNs deadline) {
  waker_.before_sleep();
  bool agreed = true;
  for (Poller* poller : pollers_) agreed = agreed && poller->fall_asleep(now);
  deadline = std::min(deadline, timers_.next_due());
  for (const Poller* poller : pollers_) deadline = std::min(deadline, poller->next_deadline());
  if (!agreed || deadline <= now) {
    waker_.after_sleep();
    return agreed;
  }
  ++counters_.sleeps;
  look(now, deadline == never ? never : deadline - now);
  return true;
}

// Gives the core to other threads, perhaps to the one that this loop waits for. Returns the time.
TimeNs Loop::make_way(TimeNs now) {
  if (turns_.naps(now)) {
    ++counters_.naps;
    waker_.before_sleep();
    look(now, std::clamp<TimeNs>(timers_.next_due() - now, 1, nap_ns));
    return monotonic_ns();
  }
  sched_yield();
  const TimeNs after = monotonic_ns();
  turns_.yielded(now, after);
  counters_.spinning_ns += after - now;
  return after;
}

void Loop::run() {
  stopping_ = false;
  TimeNs now = monotonic_ns();
  Spin spin(options_.spin_ns);
  const auto spin_until = [&] { return spin.since() + turns_.spin(now, spin.until() - spin.since()); };
  while (!stopping_) {
    expects_more_ = false;
    bool worked = round(now);
    if (!worked) spin.found_nothing();
    // Reading the clock takes a third of a round that finds nothing, and such rounds delay a request.
    const unsigned rounds = now < spin_until() ? rounds_per_clock : 1;
    for (unsigned more = 1; more < rounds && !worked && !stopping_; ++more) worked = round(now);
    TimeNs after = monotonic_ns();
    counters_.longest_round_ns = std::max(counters_.longest_round_ns, after - now);
    (worked ? counters_.busy_ns : counters_.spinning_ns) += after - now;
    if (!worked) turns_.found_nothing(now, after);
    now = after;
    if (worked) {
      if (expects_more_) spin.worked(now);
    } else if (now >= spin_until() && !stopping_) {
      if (sleep(now)) {
        now = monotonic_ns();
        spin.slept();
      } else {
        now = make_way(now);
      }
    } else if (now >= spin.since() + spin_alone_ns && !turns_.is_brief(now)) {
      now = make_way(now);
    }
  }
}

}  // namespace offpath::loop
