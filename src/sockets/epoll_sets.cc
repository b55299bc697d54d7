#include "sockets/epoll_sets.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "sockets/calls.h"
#include "sockets/kernel.h"
#include "sockets/own_descriptors.h"

namespace offpath::sockets {

namespace {

// The epoll data of a set's two descriptors that the program does not know: addresses that nothing else has.
constexpr char agent_wakes = 0, others_wake = 0;
constexpr TimeNs ask_kernel_every_ns = 50 * microsecond_ns;  // while offloaded sockets always have something to report
// an unread datagram costs a little memory, reading it a system call
constexpr std::uint32_t forget_wakes_every = 16;
constexpr std::uint32_t always_told = EPOLLERR | EPOLLHUP;

// By descriptor, bits of EpollSets::Mark. Memory of zeros until it is used.
constinit std::uint8_t all_marks[Descriptors::numbers]{};
[[nodiscard]] std::atomic_ref<std::uint8_t> marks(int fd) noexcept { return std::atomic_ref(all_marks[fd]); }

// Yields, because the awaited thread may be on this core.
bool spin_for_events(TimeNs until) {
  constexpr int looks = 20;
  do {
    for (int i = 0; i < looks; ++i) {
      if (program().area().has_events()) return true;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    ::sched_yield();
  } while (monotonic_ns() < until);
  return false;
}

[[nodiscard]] bool is_own(const epoll_event& event) noexcept {
  return event.data.ptr == &agent_wakes || event.data.ptr == &others_wake;
}

int kernel_wait(int epoll, epoll_event* events, int room, TimeNs wait_ns, const sigset_t* mask) {
  const timespec limit{wait_ns / second_ns, wait_ns % second_ns};
  const int ready = kernel::epoll_pwait2(epoll, events, room,
                                         wait_ns == never ? static_cast<const timespec*>(nullptr) : &limit, mask);
  if (ready >= 0 || (errno != ENOSYS && errno != EPERM)) return ready;  // EPERM: from filters of containers
  const TimeNs ms = std::min<TimeNs>((wait_ns + millisecond_ns - 1) / millisecond_ns, 1 << 30);
  return kernel::epoll_pwait(epoll, events, room, wait_ns == never ? -1 : static_cast<int>(ms), mask);
}

}  // namespace

// Never destroyed: see program().
EpollSets& epoll_sets() noexcept {
  static EpollSets* const only = new EpollSets;
  return *only;
}

EpollSets::Set::~Set() { own_descriptors().remove(wake.get()); }

// ---- descriptors

std::uint8_t EpollSets::mark(int fd) noexcept {
  return static_cast<unsigned>(fd) < Descriptors::numbers ? marks(fd).load(std::memory_order_acquire) : 0;
}

void EpollSets::set_mark(int fd, std::uint8_t bits) noexcept {
  if (static_cast<unsigned>(fd) >= Descriptors::numbers) return;
  descriptors().reach(fd);
  marks(fd).fetch_or(bits);
}

void EpollSets::note_made(int epoll) noexcept {
  if (static_cast<unsigned>(epoll) >= Descriptors::numbers) return;
  marks(epoll) = 0;
  set_mark(epoll, Mark::made);
}

void EpollSets::also_at(int made, int fd) {
  close(made);
  if (mark(fd) == 0) return;
  const std::lock_guard lock(lock_);
  set_mark(made, mark(fd));
  if (const auto set = sets_.find(fd); set != sets_.end()) {
    ++set->second->descriptors;
    sets_[made] = set->second;
  }
}

void EpollSets::close(int fd) {
  if (mark(fd) == 0 || program().vforked()) return;
  marks(fd) = 0;
  const std::lock_guard lock(lock_);
  const auto found = sets_.extract(fd);
  if (!found) return;
  Set& set = *found.mapped();
  if (--set.descriptors > 0) {
    if (set.fd == fd)
      for (const auto& [other, same] : sets_)
        if (same.get() == &set) set.fd = other;
    return;
  }
  while (!set.watches.empty()) drop(set.watches.begin()->second);
}

std::shared_ptr<EpollSets::Set> EpollSets::find(int epoll) {
  const auto found = sets_.find(epoll);
  return found == sets_.end() ? nullptr : found->second;
}

bool EpollSets::watch_wakes(int epoll, Set& set) {
  own_descriptors().remove(set.wake.get());
  set.wake = Fd(out_of_the_way(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.ptr = const_cast<char*>(&agent_wakes);
  if (!set.wake || kernel::epoll_ctl(epoll, static_cast<int>(EPOLL_CTL_ADD), program().wake_fd(), &event) != 0)
    return false;
  event.data.ptr = const_cast<char*>(&others_wake);
  return kernel::epoll_ctl(epoll, static_cast<int>(EPOLL_CTL_ADD), set.wake.get(), &event) == 0;
}

void EpollSets::in_child() {
  const std::lock_guard lock(lock_);
  for (const auto& [epoll, set] : sets_) {
    if (set->by_kernel || set->fd != epoll) continue;
    set->sleepers = 0;
    set->woken = false;
    if (!watch_wakes(epoll, *set)) set->by_kernel = true;
  }
}

std::shared_ptr<EpollSets::Set> EpollSets::make(int epoll) {
  if (auto there = find(epoll)) return there;
  auto set = std::make_shared<Set>(epoll);
  set->by_kernel = (mark(epoll) & Mark::watched) != 0;
  // First: a thread that waits in the kernel may be told of the set's own descriptors as soon as they are there.
  set_mark(epoll, (mark(epoll) & Mark::made) != 0 ? Mark::has_set : Mark::has_set | Mark::has_kernel_members);
  if (!set->by_kernel && !watch_wakes(epoll, *set)) return nullptr;
  if (!set->by_kernel) end_wait_in_kernel(*set);
  return sets_[epoll] = set;
}

// ---- watches

// epoll_ctl(2): EPOLLEXCLUSIVE is allowed with few other bits, only with EPOLL_CTL_ADD, and cannot be changed later.
bool EpollSets::may_be(const epoll_event& event, int operation, const Watch* watch) noexcept {
  constexpr std::uint32_t beside = EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE;
  if (operation == EPOLL_CTL_MOD && watch != nullptr && (watch->events & EPOLLEXCLUSIVE) != 0) return false;
  return (event.events & EPOLLEXCLUSIVE) == 0 || (operation == EPOLL_CTL_ADD && (event.events & ~beside) == 0);
}

int EpollSets::control(int epoll, int operation, int fd, Socket& socket, const epoll_event* event) {
  if (operation != EPOLL_CTL_DEL && is_bad(event, sizeof *event)) return failed(EFAULT);
  const std::lock_guard lock(lock_);
  const auto set = make(epoll);
  if (!set) return -1;
  if (set->by_kernel) {
    program().begin_showing(fd, socket);
    return kernel::epoll_ctl(epoll, operation, fd, const_cast<epoll_event*>(event));
  }
  const auto found = set->watches.find(Key{fd, &socket});
  Watch* watch = found != set->watches.end() ? &found->second : nullptr;
  if (operation != EPOLL_CTL_DEL && !may_be(*event, operation, watch)) return failed(EINVAL);
  if (operation == EPOLL_CTL_ADD) {
    if (watch != nullptr) return failed(EEXIST);
    watch = &set->watches.try_emplace(Key{fd, &socket}, fd, socket, *set).first->second;
    watch->OfSocket::link(watching_[&socket]);
  }
  if (watch == nullptr) return failed(ENOENT);
  if (operation == EPOLL_CTL_DEL) {
    drop(*watch);
    return 0;
  }
  watch->events = event->events;
  watch->data = event->data;
  watch->off = false;
  watch->seen = 0;
  enqueue(*watch);
  return 0;
}

void EpollSets::drop(Watch& watch) {
  unqueue(watch);
  watch.OfSocket::unlink();
  if (const auto left = watching_.find(watch.socket); left->second.alone()) watching_.erase(left);
  watch.set->watches.erase(watch.key());
}

void EpollSets::note_kernel_member(int epoll, int fd) {
  set_mark(epoll, Mark::has_kernel_members);
  if (mark(fd) != 0) leave_to_kernel(fd);
}

void EpollSets::leave_to_kernel(int epoll) {
  if ((mark(epoll) & Mark::watched) != 0 || mark(epoll) == 0) return;
  set_mark(epoll, Mark::watched);
  const std::lock_guard lock(lock_);
  const auto set = find(epoll);
  if (!set) return;
  set->by_kernel = true;
  for (const int own : {program().wake_fd(), set->wake.get()})
    kernel::epoll_ctl(epoll, static_cast<int>(EPOLL_CTL_DEL), own, static_cast<epoll_event*>(nullptr));
  for (const auto& [key, watch] : set->watches) {
    program().begin_showing(watch.fd, *watch.socket);
    epoll_event event{};
    event.events = watch.off ? 0 : watch.events;
    event.data = watch.data;
    kernel::epoll_ctl(epoll, static_cast<int>(EPOLL_CTL_ADD), watch.fd, &event);
  }
  while (!set->watches.empty()) drop(set->watches.begin()->second);
}

void EpollSets::move(const Socket& from, Socket& to) {
  const std::lock_guard lock(lock_);
  auto moved = watching_.extract(&from);
  if (!moved) return;
  const OfSocket& head = moved.mapped();
  for (OfSocket* each = &head.next(); each != &head; each = &each->next()) {
    auto& watch = static_cast<Watch&>(*each);
    auto node = watch.set->watches.extract(watch.key());
    watch.socket = &to;
    watch.seen = watch.seen_full = 0;
    watch.seen_received = 0;
    node.key() = watch.key();
    watch.set->watches.insert(std::move(node));
  }
  moved.key() = &to;
  watching_.insert(std::move(moved));
}

void EpollSets::forget(const Socket& socket) {
  const std::lock_guard lock(lock_);
  for (auto found = watching_.find(&socket); found != watching_.end(); found = watching_.find(&socket))
    drop(static_cast<Watch&>(found->second.next()));
}

// ---- reports

void EpollSets::enqueue(Watch& watch) {
  if (watch.off || !watch.Queued::alone()) return;
  watch.Queued::link(watch.set->queue);
  ++watch.set->queued;
  if (watch.set->sleepers > 0) wake(*watch.set);
}

void EpollSets::unqueue(Watch& watch) {
  if (watch.Queued::alone()) return;
  watch.Queued::unlink();
  --watch.set->queued;
}

void EpollSets::wake(Set& set) {
  if (!std::exchange(set.woken, true)) end_wait_in_kernel(set);
}

// Of one thread, now or at the next one's begin.
void EpollSets::end_wait_in_kernel(const Set& set) {
  constexpr std::uint64_t one = 1;
  static_cast<void>(kernel::write(set.wake.get(), static_cast<const void*>(&one), sizeof one));
}

bool EpollSets::is_edge(Watch& watch, std::uint32_t now, const SocketArea::Look& look) {
  const std::uint32_t full = watch.socket->times_full.load(std::memory_order_relaxed);
  const bool room_again = (now & EPOLLOUT) != 0 && full != watch.seen_full;
  const bool edge =
      (now & ~watch.seen) != 0 || look.received != watch.seen_received || room_again || watch.socket->listener;
  watch.seen = now;
  watch.seen_received = look.received;
  if (room_again) watch.seen_full = full;
  return edge;
}

void EpollSets::on_change(const Socket& socket) {
  const std::lock_guard lock(lock_);
  const auto found = watching_.find(&socket);
  if (found == watching_.end()) return;
  const OfSocket& head = found->second;
  for (OfSocket* each = &head.next(); each != &head; each = &each->next()) enqueue(static_cast<Watch&>(*each));
}

int EpollSets::collect(Set& set, epoll_event* events, int room) {
  int count = 0;
  const std::lock_guard lock(lock_);
  for (std::size_t left = set.queued; left > 0 && count < room; --left) {
    auto& watch = static_cast<Watch&>(set.queue.next());
    unqueue(watch);
    const auto look = program().area().known(watch.socket->handle);
    const std::uint32_t now = look ? events_of(*watch.socket, *look) : EPOLLHUP;
    const std::uint32_t told = now & (watch.events | always_told);
    if (watch.off || told == 0) {
      watch.seen = now;
      continue;
    }
    if ((watch.events & EPOLLET) != 0 && look && !is_edge(watch, now, *look)) continue;
    events[count++] = {told, watch.data};
    watch.off = (watch.events & EPOLLONESHOT) != 0;
    if (watch.off || (watch.events & EPOLLET) != 0) continue;
    watch.Queued::link(set.queue);  // level trigger: looked at again by the next wait
    ++set.queued;
  }
  if (set.queued > 0 && count == room && set.sleepers > 0) wake(set);
  return count;
}

// epoll_wait of the kernel, without the set's two own descriptors.
int EpollSets::ask_kernel(Set& set, epoll_event* events, int room, TimeNs wait_ns, const sigset_t* mask) {
  const int ready = kernel_wait(set.fd, events, room, wait_ns, mask);
  if (ready <= 0) return ready;
  for (int i = 0; i < ready; ++i)
    if (events[i].data.ptr == &agent_wakes && ++set.wakes % forget_wakes_every == 0) program().forget_wakes();
  return static_cast<int>(std::remove_if(events, events + ready, is_own) - events);
}

// The program does not know the set's own descriptors, which may have ended the wait. Then other threads may wait in
// the kernel as well, so each ends the wait of the next one. A thread that has gone on already may take that event
// instead: then the other one stays in the kernel until the set's next event, and the first one serves the sockets.
int EpollSets::go_on(int epoll, epoll_event* events, int ready, int room, TimeNs deadline, const sigset_t* mask) {
  const int left = static_cast<int>(std::remove_if(events, events + ready, is_own) - events);
  if (left == ready || program().left_out()) return left;
  {
    const std::lock_guard lock(lock_);
    if (const auto set = find(epoll); set && !set->by_kernel) end_wait_in_kernel(*set);
  }
  if (left > 0) return left;
  const TimeNs wait_ns = deadline == never ? never : std::max<TimeNs>(deadline - monotonic_ns(), 0);
  if (const auto done = wait_here(epoll, events, room, wait_ns, mask)) return *done;
  return kernel_wait(epoll, events, room, wait_ns, mask);
}

std::optional<int> EpollSets::wait_here(int epoll, epoll_event* events, int room, TimeNs wait_ns,
                                        const sigset_t* mask) {
  if ((mark(epoll) & Mark::has_set) == 0 || room <= 0 || program().left_out()) return std::nullopt;
  std::unique_lock lock(lock_);
  const auto set = find(epoll);
  if (!set || set->by_kernel) return std::nullopt;
  lock.unlock();
  if (is_bad(events, sizeof *events * static_cast<std::size_t>(room))) return failed(EFAULT);
  TimeNs now = monotonic_ns();
  const TimeNs deadline = wait_ns == never ? never : deadline_after(now, wait_ns);
  for (;;) {
    program().take_in();
    int count = collect(*set, events, room);
    const bool over = now >= deadline;
    if (count < room && (mark(epoll) & Mark::has_kernel_members) != 0 &&
        (over || (count > 0 && now - set->looked_at >= ask_kernel_every_ns))) {
      set->looked_at = now;
      const int more = ask_kernel(*set, events + count, room - count, 0, mask);
      if (more < 0 && count == 0) return more;
      count += std::max(more, 0);
    }
    if (count > 0 || over) return count;
    const TimeNs began = now;
    if (set->short_waits.spins()) {
      const bool in_time = spin_for_events(began + ShortWaits::spin_ns);
      set->short_waits.spun(in_time);
      if (in_time) {
        now = monotonic_ns();
        continue;
      }
    }
    if (!program().fall_asleep()) {
      now = monotonic_ns();  // events of sockets outside this set must not extend the deadline
      continue;
    }
    lock.lock();
    const bool sleeps = set->queued == 0;
    if (sleeps) ++set->sleepers;
    lock.unlock();
    int ready = 0;
    if (sleeps) {
      ready = ask_kernel(*set, events, room, deadline == never ? never : deadline - now, mask);
      const int why = errno;
      lock.lock();
      --set->sleepers;
      set->woken = false;
      lock.unlock();
      errno = why;
    }
    const int why = errno;
    program().awake();
    now = monotonic_ns();
    set->looked_at = now;
    set->short_waits.slept(now - began);
    errno = why;
    if (ready < 0) return ready;
    if (ready > 0) {
      program().take_in();
      return ready + collect(*set, events + ready, room - ready);
    }
  }
}

}  // namespace offpath::sockets
