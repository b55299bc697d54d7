#include "sockets/descriptors.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>

#include "sockets/epoll_sets.h"
#include "sockets/kernel.h"
#include "sockets/own_descriptors.h"
#include "sockets/program.h"

namespace offpath::sockets {

namespace {
constinit Descriptors table{};

// By descriptor. Memory of zeros until it is used; without atomic types, which compilers would initialise one by one.
constinit Socket* sockets[Descriptors::numbers]{};
constinit Socket* ports[Descriptors::numbers]{};
// Of kernel sockets: with `is_bound` the port and the family; `has_congestion`. 0: nothing is known.
constinit std::uint32_t notes[Descriptors::numbers]{};
constexpr std::uint32_t is_bound = 1u << 16, is_ipv6 = 1u << 17, has_congestion = 1u << 18;

[[nodiscard]] std::atomic_ref<Socket*> at(int fd) noexcept { return std::atomic_ref<Socket*>(sockets[fd]); }
[[nodiscard]] std::atomic_ref<Socket*> port(int fd) noexcept { return std::atomic_ref<Socket*>(ports[fd]); }
[[nodiscard]] std::atomic_ref<std::uint32_t> noted(int fd) noexcept {
  return std::atomic_ref<std::uint32_t>(notes[fd]);
}
}  // namespace

Descriptors& descriptors() noexcept { return table; }

namespace {
constinit OwnDescriptors own{};
}

OwnDescriptors& own_descriptors() noexcept { return own; }

int move_up(int fd) noexcept {
  rlimit limit{};
  const int from =
      getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<int>(std::min<rlim_t>(limit.rlim_cur / 2, 1 << 20)) : 512;
  const auto turn = own.library_makes();
  const int moved = fd >= from ? fd : kernel::fcntl(fd, F_DUPFD_CLOEXEC, from);
  if (moved >= 0 && moved != fd) kernel::close(fd);
  if (!program().vforked()) own.add(moved);  // a child of vfork() has numbers of its own, but its parent's memory
  return moved;
}

int out_of_the_way(int fd) noexcept {
  if (const int moved = move_up(fd); moved >= 0) return moved;
  if (!program().vforked()) own.add(fd);
  return fd;
}

Use::~Use() {
  if (socket_ != nullptr && socket_->own().users.fetch_sub(1) == 1) program().end(*socket_);
}

Use Use::of(Socket& socket) noexcept {
  std::atomic<std::uint32_t>& count = socket.own().users;
  std::uint32_t users = count.load();
  while (users != 0 && !count.compare_exchange_weak(users, users + 1)) {
  }
  return Use(users != 0 ? &socket : nullptr);
}

Use Descriptors::find(int fd) noexcept { return static_cast<unsigned>(fd) < numbers ? find(at(fd)) : Use(); }

Use Descriptors::find(std::atomic_ref<Socket*> place) noexcept {
  for (;;) {
    Socket* const there = place.load(std::memory_order_acquire);
    if (there == nullptr) return {};
    Use use = Use::of(*there);
    if (!use) continue;
    if (place.load() == there) return use;
  }
}

// Another thread goes on meanwhile. It may wait for a processor of its own, so turns at this one are not enough. A
// filter of the program's may kill it for sched_yield.
static void give_way(int turn) noexcept {
  constexpr int yields = 100;
  if (turn < yields && !program().confined()) return static_cast<void>(::sched_yield());
  const timespec moment{0, 50 * microsecond_ns};
  static_cast<void>(
      kernel::ppoll(static_cast<pollfd*>(nullptr), nfds_t{0}, &moment, static_cast<const sigset_t*>(nullptr)));
}

// The last user of a socket ends it, which must have happened when close() returns: a port is free afterwards. That
// user may be a thread that shows the socket and was preempted then, so close() lets go first and then waits for it.
// Not for ever, but for about 200 ms: close() may be in a signal handler there.
void Descriptors::let_go(Use use) noexcept {
  Socket* const socket = use.socket_;
  if (socket == nullptr) return;
  constexpr int turns_max = 2000;
  const int before = errno;
  use = Use();
  const OwnPart& part = socket->own();
  for (int turn = 0; part.descriptors.load() == 0 && part.showings.load() != 0 && turn < turns_max; ++turn)
    give_way(turn);
  errno = before;
}

// Epoll reports a socket no longer once its last descriptor is closed, even while a call of another thread uses it.
Use Descriptors::exchange(int fd, Use use) noexcept {
  if (use) use->own().descriptors.fetch_add(1);
  use.socket_ = at(fd).exchange(use.socket_);
  if (use && use->own().descriptors.fetch_sub(1) == 1) epoll_sets().forget(*use);
  return use;
}

void Descriptors::put(int fd, Use use) noexcept {
  if (static_cast<unsigned>(fd) >= numbers) return;
  reach(fd);
  let_go(exchange(fd, std::move(use)));
  if (port(fd).load(std::memory_order_relaxed) != nullptr) keep_port(fd, Use());
}

Use Descriptors::remove(int fd) noexcept {
  if (static_cast<unsigned>(fd) >= numbers) return {};
  forget_notes(fd);
  if (at(fd).load(std::memory_order_relaxed) == nullptr) return {};
  return exchange(fd, Use());
}

void Descriptors::keep_port(int fd, Use kept) noexcept {
  if (static_cast<unsigned>(fd) >= numbers) return;
  reach(fd);
  kept.socket_ = port(fd).exchange(kept.socket_);
  let_go(std::move(kept));
}

Use Descriptors::port_of(int fd) noexcept { return static_cast<unsigned>(fd) < numbers ? find(port(fd)) : Use(); }

void Descriptors::forget_notes(int fd) noexcept {
  if (noted(fd).load(std::memory_order_relaxed) != 0) noted(fd) = 0;
  if (port(fd).load(std::memory_order_relaxed) != nullptr) keep_port(fd, Use());
}

void Descriptors::copy_notes(int made, int fd) noexcept {
  if (static_cast<unsigned>(made) >= numbers || static_cast<unsigned>(fd) >= numbers) return;
  forget_notes(made);
  if (const std::uint32_t there = noted(fd).load(std::memory_order_relaxed); there != 0) {
    reach(made);
    noted(made) = there;
  }
  if (Use kept = port_of(fd)) keep_port(made, std::move(kept));
}

void Descriptors::note_bound(int fd, const SocketArea::Endpoint& name) noexcept {
  if (static_cast<unsigned>(fd) >= numbers) return;
  reach(fd);
  noted(fd) = (noted(fd).load() & has_congestion) | name.port | is_bound | (name.address.is_v4() ? 0 : is_ipv6);
}

void Descriptors::note_congestion(int fd) noexcept {
  if (static_cast<unsigned>(fd) >= numbers) return;
  reach(fd);
  noted(fd) |= has_congestion;
}

bool Descriptors::chose_congestion(int fd) const noexcept {
  return static_cast<unsigned>(fd) < numbers && (noted(fd).load() & has_congestion) != 0;
}

std::optional<SocketArea::Endpoint> Descriptors::bound(int fd) const noexcept {
  const std::uint32_t there = static_cast<unsigned>(fd) < numbers ? noted(fd).load() : 0;
  if ((there & is_bound) == 0) return std::nullopt;
  const auto family = (there & is_ipv6) != 0 ? wire::IpFamily::v6 : wire::IpFamily::v4;
  return SocketArea::Endpoint{program().policy().own(family), static_cast<std::uint16_t>(there)};
}

std::vector<int> Descriptors::of(const Socket& socket) const {
  std::vector<int> found;
  for (int fd = 0; fd < end(); ++fd)
    if (at(fd).load(std::memory_order_relaxed) == &socket) found.push_back(fd);
  return found;
}

void Descriptors::count_again() noexcept {
  for (int fd = 0; fd < end(); ++fd) {
    if (Socket* const there = at(fd).load(std::memory_order_relaxed))
      there->own().users.fetch_add(1), there->own().descriptors.fetch_add(1);
    if (Socket* const there = port(fd).load(std::memory_order_relaxed)) there->own().users.fetch_add(1);
  }
}

}  // namespace offpath::sockets
