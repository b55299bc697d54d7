#include "sockets/descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>

#include "sockets/epoll_sets.h"
#include "sockets/kernel.h"
#include "sockets/own_descriptors.h"
#include "sockets/program.h"

namespace offpath::sockets {

namespace {
constinit Descriptors table{};
}

Descriptors& descriptors() noexcept { return table; }

namespace {
constinit OwnDescriptors own{};
}

OwnDescriptors& own_descriptors() noexcept { return own; }

int move_up(int fd) noexcept {
  rlimit limit{};
  const int from =
      getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<int>(std::min<rlim_t>(limit.rlim_cur / 2, 1 << 20)) : 512;
  if (fd >= from) return fd;
  const int moved = kernel::fcntl(fd, F_DUPFD_CLOEXEC, from);
  if (moved >= 0) kernel::close(fd);
  return moved;
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

Use Descriptors::find(int fd) noexcept {
  if (static_cast<unsigned>(fd) >= numbers) return {};
  for (;;) {
    Socket* const there = at_[fd].load(std::memory_order_acquire);
    if (there == nullptr) return {};
    Use use = Use::of(*there);
    if (!use) continue;
    if (at_[fd].load() == there) return use;
  }
}

// Epoll reports a socket no longer once its last descriptor is closed, even while a call of another thread uses it.
Use Descriptors::exchange(int fd, Use use) noexcept {
  if (use) use->own().descriptors.fetch_add(1);
  use.socket_ = at_[fd].exchange(use.socket_);
  if (use && use->own().descriptors.fetch_sub(1) == 1) epoll_sets().forget(*use);
  return use;
}

void Descriptors::put(int fd, Use use) noexcept {
  if (static_cast<unsigned>(fd) < numbers) static_cast<void>(exchange(fd, std::move(use)));
}

Use Descriptors::remove(int fd) noexcept {
  if (static_cast<unsigned>(fd) >= numbers) return {};
  if (bound_[fd].load(std::memory_order_relaxed) != 0) bound_[fd] = 0;
  if (at_[fd].load(std::memory_order_relaxed) == nullptr) return {};
  return exchange(fd, Use());
}

void Descriptors::note_bound(int fd, std::uint16_t port) noexcept {
  if (static_cast<unsigned>(fd) < numbers) bound_[fd] = port + 1u;
}

std::optional<std::uint16_t> Descriptors::bound(int fd) const noexcept {
  if (static_cast<unsigned>(fd) >= numbers || bound_[fd].load() == 0) return std::nullopt;
  return static_cast<std::uint16_t>(bound_[fd].load() - 1);
}

std::vector<int> Descriptors::of(const Socket& socket) const {
  std::vector<int> found;
  for (int fd = 0; fd < numbers; ++fd)
    if (at_[fd].load(std::memory_order_relaxed) == &socket) found.push_back(fd);
  return found;
}

void Descriptors::count_again() noexcept {
  for (auto& each : at_)
    if (Socket* const there = each.load(std::memory_order_relaxed))
      there->own().users.fetch_add(1), there->own().descriptors.fetch_add(1);
}

}  // namespace offpath::sockets
