#include "channel/host/event_descriptor.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <utility>

namespace offpath::channel {

EventDescriptor::EventDescriptor(int link_fd) : link_fd_(link_fd) {
  Fd told(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  Fd both(epoll_create1(EPOLL_CLOEXEC));
  if (!told || !both || link_fd < 0) return;
  for (const int fd : {link_fd, told.get()}) {
    epoll_event event{EPOLLIN, {}};
    if (epoll_ctl(both.get(), EPOLL_CTL_ADD, fd, &event) != 0) return;
  }
  told_ = std::move(told);
  both_ = std::move(both);
}

void EventDescriptor::tell() noexcept {
  if (!told_ || readable_) return;
  readable_ = eventfd_write(told_.get(), 1) == 0;
}

void EventDescriptor::clear() noexcept {
  if (!readable_) return;
  eventfd_t count = 0;
  (void)eventfd_read(told_.get(), &count);
  readable_ = false;
}

}  // namespace offpath::channel
