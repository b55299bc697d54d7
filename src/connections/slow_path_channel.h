// How a process offers to do the slow path of an agent's TCP: the shared segment, and the descriptor by which the two
// wake each other. The contents of the segment: wire/areas/tcp_slow_path.h.
#pragma once

#include <memory>
#include <string>

#include "base/fd.h"
#include "channel/host_end.h"
#include "wire/areas/tcp_slow_path.h"

namespace offpath::channel {

class SlowPathChannel {
 public:
  // Opens a channel to the agent at `address`, such as unix:/run/offpath/agent.sock. Error::unsupported: the agent is
  // configured without one (tcp.slow_path), has no device, or is on another machine. Error::denied: the user is neither
  // root nor the agent's own. Error::exists: there is one already.
  [[nodiscard]] static Result<std::unique_ptr<SlowPathChannel>> connect(const std::string& address,
                                                                        const wire::TcpSlowLayout& layout,
                                                                        TimeNs deadline);
  ~SlowPathChannel();
  SlowPathChannel(const SlowPathChannel&) = delete;
  SlowPathChannel& operator=(const SlowPathChannel&) = delete;

  [[nodiscard]] MutableBytes memory() const noexcept { return memory_; }
  void wake() const noexcept;
  // Waits until the agent wakes this process, or `until` (0: only looks). Error::peer_lost: the agent is gone, or has
  // ended this slow path.
  [[nodiscard]] Status sleep(TimeNs until, TimeNs now) const;

 private:
  SlowPathChannel() = default;
  std::unique_ptr<HostEnd> end_;
  MutableBytes memory_;
  Fd wake_;
};

}  // namespace offpath::channel
