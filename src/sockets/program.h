// What this process has with the agent: opened with the first socket that is to be offloaded, and there until it exits. A thread of
// its own sleeps until the agent tells something, and shows at the descriptors what can be done now.
//
// A forked child inherits descriptors and may close them; anything else it does with them fails with EOPNOTSUPP, and sockets of its
// own are the kernel's. A child of vfork() lives in its parent's memory, and changes nothing there.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <memory>
#include <mutex>

#include "sockets/descriptors.h"
#include "sockets/policy.h"

namespace offpath::sockets {

class Program {
 public:
  Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  [[nodiscard]] const Policy& policy() const noexcept { return policy_; }
  [[nodiscard]] bool vforked() const noexcept;
  [[nodiscard]] bool forked() const noexcept { return mark_.in_child(); }
  [[nodiscard]] bool lost() const noexcept { return lost_.load(std::memory_order_relaxed); }

  // Opens the connections at the first call. Null: there is no agent for this process.
  [[nodiscard]] SocketArea* open();
  // For who has a socket, so that they are open.
  [[nodiscard]] SocketArea& area() noexcept { return *area_.load(std::memory_order_acquire); }

  [[nodiscard]] Use make(SocketArea::Handle handle, bool listener);
  void end(Socket& socket);
  void show(Socket& socket);
  // Whoever asked the area for anything may have taken in news about any socket.
  void show_changed();
  // Waits until the listener or connection is there, or is not to be. The look then.
  [[nodiscard]] SocketArea::Look decided(SocketArea::Handle handle);
  // At exit: what was sent goes out first.
  void leave();
  void in_child() noexcept;

 private:
  void listen_to_agent();
  void told();

  Policy policy_;
  channel::ForkMark mark_;
  pid_t pid_;
  std::mutex opening_;
  bool tried_ = false;
  std::unique_ptr<channel::Sockets> connections_;
  std::atomic<SocketArea*> area_ = nullptr;
  std::atomic<bool> lost_ = false;
  Socket* sockets_ = nullptr;  // by handle
  std::mutex telling_;
  std::condition_variable told_;
  std::uint64_t tellings_ = 0;
};

[[nodiscard]] Program& program() noexcept;

}  // namespace offpath::sockets
