// The descriptor that a program's own event loop polls. It is readable while the link's is, and after another thread of
// the program took an event of the link, so that every waiter learns of each event.
#pragma once

#include "base/fd.h"

namespace offpath::channel {

class EventDescriptor {
 public:
  explicit EventDescriptor(int link_fd);
  [[nodiscard]] int fd() const noexcept { return both_ ? both_.get() : link_fd_; }
  void tell() noexcept;   // readable until clear()
  void clear() noexcept;  // free of charge if tell() was not called

  // The poller asked for a wake, which another thread may take.
  void watch(bool watched) noexcept { watched_ = watched; }
  // A thread took the link's event.
  void tell_watcher() noexcept {
    if (watched_) tell();
  }

 private:
  int link_fd_;
  Fd told_, both_;  // none if no descriptors are free: then only the link's is used
  bool readable_ = false;
  bool watched_ = false;
};

}  // namespace offpath::channel
