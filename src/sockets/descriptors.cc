#include "sockets/descriptors.h"

#include "sockets/program.h"

namespace offpath::sockets {

namespace {
constinit Descriptors table{};
}

Descriptors& descriptors() noexcept { return table; }

Use::~Use() {
  if (socket_ != nullptr && socket_->users.fetch_sub(1) == 1) program().end(*socket_);
}

Use Descriptors::find(int fd) noexcept {
  if (static_cast<unsigned>(fd) >= numbers) return {};
  for (;;) {
    Socket* const there = at_[fd].load(std::memory_order_acquire);
    if (there == nullptr) return {};
    std::uint32_t users = there->users.load();
    while (users != 0 && !there->users.compare_exchange_weak(users, users + 1)) {}
    if (users == 0) continue;
    Use use(there);
    if (at_[fd].load() == there) return use;
  }
}

void Descriptors::put(int fd, Use use) noexcept {
  if (static_cast<unsigned>(fd) >= numbers) return;
  use.socket_ = at_[fd].exchange(use.socket_);
}

Use Descriptors::remove(int fd) noexcept {
  if (static_cast<unsigned>(fd) >= numbers) return {};
  if (bound_[fd].load(std::memory_order_relaxed) != 0) bound_[fd] = 0;
  if (at_[fd].load(std::memory_order_relaxed) == nullptr) return {};
  return Use(at_[fd].exchange(nullptr));
}

void Descriptors::note_bound(int fd, std::uint16_t port) noexcept {
  if (static_cast<unsigned>(fd) < numbers) bound_[fd] = port + 1u;
}

std::optional<std::uint16_t> Descriptors::bound(int fd) const noexcept {
  if (static_cast<unsigned>(fd) >= numbers || bound_[fd].load() == 0) return std::nullopt;
  return static_cast<std::uint16_t>(bound_[fd].load() - 1);
}

void Descriptors::count_again() noexcept {
  for (auto& each : at_)
    if (Socket* const there = each.load(std::memory_order_relaxed)) there->users.fetch_add(1);
}

}  // namespace offpath::sockets
