// A program's TCP connections through its agent: the segment they lie in, and the descriptor by which the two wake each
// other. Read socket_area.h, which has the calls.
//
// A forked child goes on with the same area, as a process of its own: prepare_child() before the fork, then join() in
// the child, and the Newcomer is dropped in the parent. A program that takes the place of one by exec() does by
// inherit(). Connections last as long as any of them, whichever opened the channel.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/fd.h"
#include "channel/host_end.h"
#include "connections/socket_area.h"
#include "wire/region.h"

namespace offpath::channel {

class Sockets {
 public:
  // Error::unsupported: the agent has no device for connections, or is on another machine. `end` outlives it.
  [[nodiscard]] static Result<std::unique_ptr<Sockets>> open(HostEnd& end, const SocketOptions& options,
                                                             TimeNs deadline);
  // The same over a channel of its own to the agent at `address`, such as unix:/run/offpath/agent.sock.
  [[nodiscard]] static Result<std::unique_ptr<Sockets>> connect(const std::string& address, const std::string& name,
                                                                const SocketOptions& options, TimeNs deadline);
  // What a process to come is made of: its number, and its ends of the two sockets that it shares with the agent.
  struct Newcomer {
    std::uint32_t process;
    Fd wake, notices;
  };
  // It holds what this process does, or only `handles`. Once this has returned, the agent tells when no process has the
  // sockets open any more: what the newcomer held is let go of.
  [[nodiscard]] Result<Newcomer> prepare_child();
  [[nodiscard]] Result<Newcomer> prepare_child(std::span<const SocketArea::Handle> handles);
  void join(Newcomer newcomer) noexcept;
  // `memory`: a descriptor of the area, see memory_fd().
  [[nodiscard]] static Result<std::unique_ptr<Sockets>> inherit(int memory, Newcomer newcomer,
                                                                const SocketOptions& options);
  [[nodiscard]] int memory_fd() const noexcept { return memory_fd_; }
  // The two sockets are at other numbers from now on: `move` says where. Before anybody waits for them.
  void renumber(int (*move)(int)) noexcept;

  ~Sockets();
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  [[nodiscard]] SocketArea& area() noexcept { return *area_; }

  // To be polled together with others: after area().fall_asleep() has said true it becomes readable when there is
  // something to take in, or the agent is gone. clear() afterwards, or it stays so.
  [[nodiscard]] int wake_fd() const noexcept { return wake_.get(); }
  [[nodiscard]] Status clear();
  // Readable when a process has ended that had these connections, too; clear_notices() afterwards, and take_in().
  [[nodiscard]] int notice_fd() const noexcept { return notices_.get(); }
  void clear_notices() noexcept;

  // Until the agent has told something, which is taken in: looks for `spin_ns`, then sleeps. Error::timeout;
  // Error::peer_lost: the agent is gone, and every connection with it.
  [[nodiscard]] Status wait(TimeNs deadline, TimeNs spin_ns = 20 * microsecond_ns);

 private:
  Sockets(HostEnd* end, wire::RegionId region) noexcept : end_(end), region_(region) {}
  [[nodiscard]] SocketArea::Wake waker() const;
  [[nodiscard]] Result<Newcomer> introduce(std::uint32_t process);

  std::unique_ptr<HostEnd> own_end_;  // of connect()
  HostEnd* end_;                      // null: inherited
  wire::RegionId region_;
  bool opened_ = false;
  Fd wake_, notices_;
  int memory_fd_ = -1;
  link::SegmentMemory inherited_;
  std::optional<SocketArea> area_;
  ForkMark mark_;
};

}  // namespace offpath::channel
