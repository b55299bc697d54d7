// Which of this process's descriptors are offloaded sockets. A look costs one load for those that are not. Sockets lie
// in memory that is never given back, so that a call may count itself in before it knows that the descriptor still
// names what it found.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "sockets/socket.h"

namespace offpath::sockets {

// A socket while somebody uses it: the last one to go ends the connection.
class Use {
 public:
  Use() = default;
  explicit Use(Socket* counted) noexcept : socket_(counted) {}
  [[nodiscard]] static Use of(Socket& socket) noexcept;  // none, if the process does not have it
  Use(Use&& other) noexcept : socket_(std::exchange(other.socket_, nullptr)) {}
  Use& operator=(Use&& other) noexcept {
    std::swap(socket_, other.socket_);
    return *this;
  }
  ~Use();
  explicit operator bool() const noexcept { return socket_ != nullptr; }
  Socket* operator->() const noexcept { return socket_; }
  Socket& operator*() const noexcept { return *socket_; }

 private:
  friend class Descriptors;
  Socket* socket_ = nullptr;
};

class Descriptors {
 public:
  static constexpr int numbers = 1 << 16;  // descriptors beyond are the kernel's

  [[nodiscard]] Use find(int fd) noexcept;
  void put(int fd, Use use) noexcept;  // the descriptor is open; what it was before is dropped
  [[nodiscard]] Use remove(int fd) noexcept;
  // A descriptor of the kernel's that the program bound to the agent's address, at this port.
  void note_bound(int fd, std::uint16_t port) noexcept;
  [[nodiscard]] std::optional<std::uint16_t> bound(int fd) const noexcept;
  [[nodiscard]] std::vector<int> of(const Socket& socket) const;  // a look at all: for what is seldom
  void count_again() noexcept;  // in a forked child: what calls were at work is the parent's

 private:
  [[nodiscard]] Use exchange(int fd, Use use) noexcept;
  std::atomic<Socket*> at_[numbers];
  std::atomic<std::uint32_t> bound_[numbers];  // the port, and 1 more
};

[[nodiscard]] Descriptors& descriptors() noexcept;

}  // namespace offpath::sockets
