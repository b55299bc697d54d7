// A program's TCP connections through its agent: the segment they lie in, and the descriptor by which the two wake each other. Read
// socket_area.h, which has the calls. A forked child goes on with area() and the descriptor, as long as the process that opened the
// channel lives.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/fd.h"
#include "channel/host_end.h"
#include "channel/socket_area.h"
#include "wire/region.h"

namespace offpath::channel {

class Sockets {
 public:
  // Error::unsupported: the agent has no device for connections, or is on another machine. `end` outlives it.
  [[nodiscard]] static Result<std::unique_ptr<Sockets>> open(HostEnd& end, const SocketOptions& options, TimeNs deadline);
  // The same over a channel of its own to the agent at `address`, such as unix:/run/offpath/agent.sock.
  [[nodiscard]] static Result<std::unique_ptr<Sockets>> connect(const std::string& address, const std::string& name, const SocketOptions& options,
                                                                TimeNs deadline);
  ~Sockets();
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  [[nodiscard]] SocketArea& area() noexcept { return *area_; }

  // To be polled together with others: after area().fall_asleep() has said true it becomes readable when there is something to take in,
  // or the agent is gone. clear() afterwards, or it stays so.
  [[nodiscard]] int wake_fd() const noexcept { return wake_.get(); }
  [[nodiscard]] Status clear();

  // Until the agent has told something, which is taken in: looks for `spin_ns`, then sleeps. Error::timeout; Error::peer_lost: the agent
  // is gone, and every connection with it.
  [[nodiscard]] Status wait(TimeNs deadline, TimeNs spin_ns = 20 * microsecond_ns);

 private:
  Sockets(HostEnd& end, wire::RegionId region) noexcept : end_(end), region_(region) {}

  std::unique_ptr<HostEnd> own_end_;  // of connect()
  HostEnd& end_;
  wire::RegionId region_;
  bool opened_ = false;
  Fd wake_;
  std::optional<SocketArea> area_;
  ForkMark mark_;
};

}  // namespace offpath::channel
