// The descriptor that a program's own loop polls. It is readable while the link's is, and after another thread of the
// program took an event of the link: of several that wait, each learns of it.
#pragma once

#include "base/fd.h"

namespace offpath::channel {

class EventDescriptor {
 public:
  explicit EventDescriptor(int link_fd);
  [[nodiscard]] int fd() const noexcept { return both_ ? both_.get() : link_fd_; }
  void tell() noexcept;   // readable until clear()
  void clear() noexcept;  // costs nothing where nothing was told

 private:
  int link_fd_;
  Fd told_, both_;  // none where descriptors have run out: then the link's alone has to do
  bool readable_ = false;
};

}  // namespace offpath::channel
