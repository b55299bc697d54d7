// A program's TCP connections through its agent: the segment for them, and the descriptors by which program and agent
// wake each other. Read this first, then socket_area.h, which has the calls.
//
// A forked child continues with the same area, as a separate process: call prepare_child() before the fork and join()
// in the child; the parent drops the Newcomer. A program that replaces a process by exec() uses inherit(). Connections
// last as long as any of these processes, whichever opened the channel.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fd.h"
#include "channel/host_end.h"
#include "connections/socket_area.h"
#include "wire/region.h"

namespace offpath::channel {

class Sockets {
 public:
  // Error::unsupported: the agent has no device for connections, or is on another machine. `end` outlives this.
  [[nodiscard]] static Result<std::unique_ptr<Sockets>> open(HostEnd& end, const SocketOptions& options,
                                                             TimeNs deadline);
  // The same with its own channel to the agent at `address`, such as unix:/run/offpath/agent.sock.
  [[nodiscard]] static Result<std::unique_ptr<Sockets>> connect(const std::string& address, const std::string& name,
                                                                const SocketOptions& options, TimeNs deadline);
  // A process that is about to start: its number, and its ends of the two sockets that it shares with the agent.
  struct Newcomer {
    std::uint32_t process;
    Fd wake, notices;
  };
  // The new process holds everything that this one holds, or only `handles`. From then on the agent notices when no
  // process has the sockets open any more, and the newcomer's handles are released.
  [[nodiscard]] Result<Newcomer> prepare_child();
  [[nodiscard]] Result<Newcomer> prepare_child(std::span<const SocketArea::Handle> handles);
  void join(Newcomer newcomer) noexcept;
  // `memory`: a descriptor of the area, see memory_fd(). `doorbells`: those of the program.
  [[nodiscard]] static Result<std::unique_ptr<Sockets>> inherit(int memory, Newcomer newcomer,
                                                                const SocketOptions& options,
                                                                std::vector<Fd> doorbells = {});
  // From now on the agent is woken by `write`, for processes whose seccomp filter allows no `sendto`. They ignore
  // SIGPIPE, which this raises once the agent is gone.
  void write_wakes() noexcept { writes_wakes_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] int memory_fd() const noexcept { return memory_fd_; }
  // Gives the two sockets other numbers, which `move` returns. Before any thread waits for them.
  void renumber(int (*move)(int)) noexcept;
  void renumber_doorbells(int (*move)(int)) noexcept;
  // Eventfds that wake the agent's cores, from core 1 on. The processes of the program share them.
  [[nodiscard]] std::span<const Fd> doorbells() const noexcept { return doorbells_; }

  ~Sockets();
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  [[nodiscard]] SocketArea& area() noexcept { return *area_; }

  // For a poll together with other descriptors: after area().fall_asleep() has returned true it becomes readable when
  // there are events, or the agent is gone. Call clear() afterwards, or it stays readable.
  [[nodiscard]] int wake_fd() const noexcept { return wake_.get(); }
  [[nodiscard]] Status clear();
  // Also readable when a process with these connections has ended; then call clear_notices() and take_in().
  [[nodiscard]] int notice_fd() const noexcept { return notices_.get(); }
  void clear_notices() noexcept;

  // Waits until the agent has sent events, which are taken in: spins for `spin_ns`, then sleeps. Error::timeout;
  // Error::peer_lost: the agent and all connections are gone.
  [[nodiscard]] Status wait(TimeNs deadline, TimeNs spin_ns = 20 * microsecond_ns);

 private:
  Sockets(HostEnd* end, wire::RegionId region) noexcept : end_(end), region_(region) {}
  [[nodiscard]] SocketArea::Wake waker() const;
  [[nodiscard]] Result<Newcomer> introduce(std::uint32_t process);

  std::unique_ptr<HostEnd> own_end_;  // of connect()
  HostEnd* end_;                      // null: inherited
  wire::RegionId region_;
  bool opened_ = false;
  std::atomic<bool> writes_wakes_ = false;
  Fd wake_, notices_;
  std::vector<Fd> doorbells_;  // by core, without core 0
  int memory_fd_ = -1;
  link::SegmentMemory inherited_;
  std::optional<SocketArea> area_;
  ForkMark mark_;
};

}  // namespace offpath::channel
