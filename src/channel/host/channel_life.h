// Whether the channel can be used: until it is closed, or the agent is lost, and not in a forked child. Its end
// notifies every thread that waits.
#pragma once

#include <optional>

#include "base/status.h"
#include "channel/host/event_descriptor.h"
#include "channel/host/fork_mark.h"
#include "channel/host/sleep_turns.h"

namespace offpath::channel {

class ChannelLife {
 public:
  ChannelLife(EventDescriptor& events, SleepTurns& turns) noexcept : events_(events), turns_(turns) {}

  [[nodiscard]] Status usable() const {
    if (!fork_mark_.in_child() && !lost_ && !closed_) [[likely]]
      return {};
    return why_not();
  }
  [[nodiscard]] bool in_child() const noexcept { return fork_mark_.in_child(); }
  [[nodiscard]] bool is_lost() const noexcept { return lost_.has_value(); }
  [[nodiscard]] bool is_closed() const noexcept { return closed_; }

  // Returns the reason of the first loss, with which all calls fail from now on.
  [[nodiscard]] Status lose(Failure why);
  void close() noexcept;

 private:
  [[nodiscard]] Status why_not() const;
  void notify_all() noexcept;

  EventDescriptor& events_;
  SleepTurns& turns_;
  ForkMark fork_mark_;
  std::optional<Failure> lost_;
  bool closed_ = false;
};

}  // namespace offpath::channel
