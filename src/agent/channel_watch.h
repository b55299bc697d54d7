// The descriptors of channels that wake the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>

#include "channel/agent_end.h"
#include "loop/loop.h"

namespace offpath::agent {

class ChannelWatch {
 public:
  // `handed_ended`: called when a channel ends whose connection was handed to this core. The loop outlives this.
  ChannelWatch(loop::Loop& loop, std::function<void()> handed_ended)
      : loop_(loop), handed_ended_(std::move(handed_ended)) {}

  // The descriptors wake the loop and end the channel's rest, and the channel's own poll reads the rings.
  void add(channel::AgentEnd& channel, bool handed);
  void remove(const channel::AgentEnd& channel);

  [[nodiscard]] std::size_t size() const noexcept { return watched_.size(); }
  [[nodiscard]] bool wakes_for_all() const noexcept { return unwatchable_ == 0; }

 private:
  struct Watched {
    int event_fd, life_fd, wake_fd;
    bool can_wake;
    bool handed = false;  // taken over, and counted with the core's connections
  };

  loop::Loop& loop_;
  std::function<void()> handed_ended_;
  std::unordered_map<std::uint64_t, Watched> watched_;  // by number of the channel
  std::size_t unwatchable_ = 0;                         // channels that have to be polled
};

}  // namespace offpath::agent
