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
constexpr std::uint32_t is_bound = 1u << 16, is_ipv6 = 1u << 17;
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

Use Descriptors::find(int fd) noexcept { return static_cast<unsigned>(fd) < numbers ? find(at_[fd]) : Use(); }

Use Descriptors::find(const std::atomic<Socket*>& place) noexcept {
  for (;;) {
    Socket* const there = place.load(std::memory_order_acquire);
    if (there == nullptr) return {};
    Use use = Use::of(*there);
    if (!use) continue;
    if (place.load() == there) return use;
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
  if (static_cast<unsigned>(fd) >= numbers) return;
  static_cast<void>(exchange(fd, std::move(use)));
  if (ports_[fd].load(std::memory_order_relaxed) != nullptr) keep_port(fd, Use());
}

Use Descriptors::remove(int fd) noexcept {
  if (static_cast<unsigned>(fd) >= numbers) return {};
  forget_bound(fd);
  if (at_[fd].load(std::memory_order_relaxed) == nullptr) return {};
  return exchange(fd, Use());
}

void Descriptors::keep_port(int fd, Use port) noexcept {
  if (static_cast<unsigned>(fd) < numbers) port.socket_ = ports_[fd].exchange(port.socket_);
}

Use Descriptors::port_of(int fd) noexcept { return static_cast<unsigned>(fd) < numbers ? find(ports_[fd]) : Use(); }

void Descriptors::forget_bound(int fd) noexcept {
  if (bound_[fd].load(std::memory_order_relaxed) != 0) bound_[fd] = 0;
  if (ports_[fd].load(std::memory_order_relaxed) != nullptr) keep_port(fd, Use());
}

void Descriptors::copy_bound(int made, int fd) noexcept {
  if (static_cast<unsigned>(made) >= numbers || static_cast<unsigned>(fd) >= numbers) return;
  forget_bound(made);
  if (const std::uint32_t noted = bound_[fd].load(std::memory_order_relaxed); noted != 0) bound_[made] = noted;
  if (Use port = port_of(fd)) keep_port(made, std::move(port));
}

void Descriptors::note_bound(int fd, const SocketArea::Endpoint& at) noexcept {
  if (static_cast<unsigned>(fd) >= numbers) return;
  bound_[fd] = at.port | is_bound | (at.address.is_v4() ? 0 : is_ipv6);
}

std::optional<SocketArea::Endpoint> Descriptors::bound(int fd) const noexcept {
  const std::uint32_t noted = static_cast<unsigned>(fd) < numbers ? bound_[fd].load() : 0;
  if (noted == 0) return std::nullopt;
  const auto family = (noted & is_ipv6) != 0 ? wire::IpFamily::v6 : wire::IpFamily::v4;
  return SocketArea::Endpoint{program().policy().own(family), static_cast<std::uint16_t>(noted)};
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
  for (auto& each : ports_)
    if (Socket* const there = each.load(std::memory_order_relaxed)) there->own().users.fetch_add(1);
}

}  // namespace offpath::sockets
