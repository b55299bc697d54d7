// The descriptors of this process that are offloaded sockets. For other descriptors a lookup costs one load. The memory
// of sockets is never freed, so a call may take a reference first and then check that the descriptor still names the
// socket.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "sockets/socket.h"

namespace offpath::sockets {

// A reference to a socket. The last one to go ends the connection.
class Use {
 public:
  Use() = default;
  explicit Use(Socket* counted) noexcept : socket_(counted) {}
  [[nodiscard]] static Use of(Socket& socket) noexcept;  // empty if the process does not have it
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
  static constexpr int numbers = 1 << 20;  // descriptors beyond are left to the kernel

  [[nodiscard]] Use find(int fd) noexcept;
  // All descriptors about which anything is known are below this. `reach` raises it.
  [[nodiscard]] int end() const noexcept { return end_.load(std::memory_order_relaxed); }
  void reach(int fd) noexcept {
    for (int end = this->end(); end <= fd && !end_.compare_exchange_weak(end, fd + 1, std::memory_order_relaxed);) {
    }
  }
  void put(int fd, Use use) noexcept;         // `fd` is open; the socket that it named before is dropped
  [[nodiscard]] Use remove(int fd) noexcept;  // let_go() follows
  // If that was the socket's last descriptor, and no call uses it, the socket has ended afterwards.
  static void let_go(Use use) noexcept;
  // A kernel socket that the program bound to this address, which is the agent's own, and port.
  void note_bound(int fd, const SocketArea::Endpoint& name) noexcept;
  [[nodiscard]] std::optional<SocketArea::Endpoint> bound(int fd) const noexcept;
  // A kernel socket that was bound, with the agent's port that it will listen on.
  void keep_port(int fd, Use kept) noexcept;
  [[nodiscard]] Use port_of(int fd) noexcept;  // empty if it has none
  void note_congestion(int fd) noexcept;       // the program has set TCP_CONGESTION on a kernel socket
  [[nodiscard]] bool chose_congestion(int fd) const noexcept;
  void copy_notes(int made, int fd) noexcept;                     // dup
  [[nodiscard]] std::vector<int> of(const Socket& socket) const;  // scans them up to end(): for rare calls
  void count_again() noexcept;  // in a forked child, where calls of the parent's other threads do not run

 private:
  [[nodiscard]] Use exchange(int fd, Use use) noexcept;
  [[nodiscard]] static Use find(std::atomic_ref<Socket*> place) noexcept;
  void forget_notes(int fd) noexcept;
  std::atomic<int> end_ = 0;
};

[[nodiscard]] Descriptors& descriptors() noexcept;

}  // namespace offpath::sockets
