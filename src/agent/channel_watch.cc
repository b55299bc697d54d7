#include "agent/channel_watch.h"

#include <sys/epoll.h>

#include <utility>

#include "base/log.h"
#include "link/link.h"

namespace offpath::agent {

void ChannelWatch::add(channel::AgentEnd& channel, bool handed) {
  channel::AgentEnd* const end = &channel;
  link::AgentLink* const link = &end->link();
  Watched descriptors{link->event_fd(), link->life_fd(), link->wake_fd(), link->event_fd() >= 0};
  const bool is_card = channel.traits().one_sided && !channel.traits().mapped;  // it looks for completions anyway
  for (int* fd : {&descriptors.event_fd, &descriptors.life_fd, &descriptors.wake_fd}) {
    if (*fd < 0) continue;
    loop::Loop::OnReady on_ready;
    if (fd == &descriptors.wake_fd)
      on_ready = [end](std::uint32_t, TimeNs) {
        end->link().on_wake();
        end->end_rest();
      };
    else if (!is_card)
      on_ready = [end](std::uint32_t, TimeNs) {
        end->link().on_readable();
        end->end_rest();
      };
    const std::uint32_t events = fd == &descriptors.wake_fd ? EPOLLIN | EPOLLET : EPOLLIN;
    if (Status watched = loop_.watch(*fd, events, std::move(on_ready), loop::Loop::After::sleep); !watched) {
      log(LogLevel::warning, "channel {}: {}; it will be polled", channel.number(), watched.error().message);
      *fd = -1;
      descriptors.can_wake = false;
    }
  }
  if (descriptors.can_wake) {
    link->on_watched();  // its looks are system calls, which it makes only when it is told from now on
    if (!is_card) end->may_rest();
  } else {
    ++unwatchable_;
  }
  descriptors.handed = handed;
  watched_.insert_or_assign(channel.number(), descriptors);
}

void ChannelWatch::remove(const channel::AgentEnd& channel) {
  const auto node = watched_.extract(channel.number());
  if (!node) return;
  if (!node.mapped().can_wake) --unwatchable_;
  if (node.mapped().handed) handed_ended_();
  for (int fd : {node.mapped().event_fd, node.mapped().life_fd, node.mapped().wake_fd}) {
    if (fd >= 0) loop_.unwatch(fd);
  }
}

}  // namespace offpath::agent
