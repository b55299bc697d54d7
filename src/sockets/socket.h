// An offloaded socket: the open file description that its descriptors share, in memory that all processes of the
// program share; and the part of it that each process has for itself.
//
// Its descriptors are one end of a pair of Unix sockets. This library holds the other end, in every process that has
// the socket. Once the program asks the kernel about the socket, the pair shows its readiness: a byte to read means
// readable, a full buffer means not writable, and a shutdown of the library's end means that the peer has finished. So
// poll and select are the kernel's own, with any mix of descriptors. The thread that takes in an event shows readiness;
// a call that finds nothing to do hides it. Epoll does not use the pair (epoll_sets.h), and a socket that the kernel
// was never asked about shows nothing. Close-on-exec is the descriptor's own flag.
//
// Read this first in src/sockets, then calls.h and program.h (used by each call), descriptors.h, transfer.h (bytes),
// epoll_sets.h (waits), policy.h and left_to_kernel.h (sockets that are not offloaded).
#pragma once

#include <sys/time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "connections/process_mutex.h"
#include "connections/sockets.h"
#include "sockets/hints.h"

namespace offpath::sockets {

using channel::SocketArea;

// The part of a socket that each process has for itself.
struct OwnPart {
  std::atomic<std::uint32_t> users = 0;  // descriptors, and calls in progress; 0: the process does not have the socket
  std::atomic<std::uint32_t> descriptors = 0;
  std::atomic<std::uint32_t> showings = 0;  // users that take no longer than to show its readiness
  std::atomic<bool> listens = false;        // counted in Program's listeners, since the first wait for it
  std::atomic<bool> shows = false;          // this process shows readiness at the descriptor
  std::atomic<int> signal = -1;             // the library's end of the pair
};

inline constexpr int keepalive_s_max = 32767, keepalive_probes_max = 127;  // the kernel's bounds

// Options set by setsockopt. An accepted connection inherits them from its listener; a socket that begins anew keeps
// them.
struct Settings {
  int family = AF_INET;  // AF_INET6: IPv4 addresses are shown mapped
  int ipv6_only = 0;
  linger lingers{};
  timeval receive_timeout{}, send_timeout{};
  int no_delay = 0, cork = 0, reuse_address = 0, reuse_port = 0;
  int keepalive = 0, keepalive_idle_s = 7200, keepalive_interval_s = 75, keepalive_probes = 9;  // as in the kernel
  int user_timeout_ms = 0;
  int receive_low_water = 1;  // SO_RCVLOWAT
  HintValues hints{};
  wire::TcpCongestion congestion = wire::TcpCongestion::agents;  // TCP_CONGESTION

  // Its end is a reset: SO_LINGER with time 0.
  [[nodiscard]] bool resets() const noexcept { return lingers.l_onoff != 0 && lingers.l_linger == 0; }
  // The stack sends the bytes of a ring in large segments, so flows need no Nagle algorithm.
  [[nodiscard]] channel::FlowSettings flow_settings() const noexcept {
    return {.gathers = cork != 0,
            .keepalive_probes = static_cast<std::uint8_t>(keepalive_probes),
            .congestion = congestion,
            .keepalive_idle_s = static_cast<std::uint16_t>(keepalive != 0 ? keepalive_idle_s : 0),
            .keepalive_interval_s = static_cast<std::uint16_t>(keepalive_interval_s),
            .traffic_class4 = static_cast<std::uint8_t>(hints.of(traffic_class4)),
            .traffic_class6 = static_cast<std::uint8_t>(hints.of(traffic_class6)),
            .user_timeout_ms = static_cast<std::uint32_t>(user_timeout_ms)};
  }
};

// The pair of a future socket.
class Ends {
 public:
  // `flags` as for socketpair. nullopt: see errno.
  [[nodiscard]] static std::optional<Ends> make(int flags);
  Ends(Ends&& other) noexcept
      : programs_(std::exchange(other.programs_, -1)), own_(std::exchange(other.own_, -1)), flags_(other.flags_) {}
  Ends& operator=(Ends&& other) noexcept {
    std::swap(programs_, other.programs_);
    std::swap(own_, other.own_);
    flags_ = other.flags_;
    return *this;
  }
  ~Ends();

 private:
  friend struct Socket;
  Ends(int programs, int own, int flags) noexcept : programs_(programs), own_(own), flags_(flags) {}
  int programs_, own_, flags_;
};

struct Socket : Settings {
  SocketArea::Handle handle = 0;
  bool listener = false;
  bool error_told = false;  // SO_ERROR or a failed call has returned the error
  // a listener that was shut down, or a connection attempt that failed and was reported: it may begin anew
  std::atomic<bool> unconnected = false;
  std::atomic<bool> reads_ended = false;      // shutdown(SHUT_RD)
  std::atomic<bool> non_blocking = false;     // as its descriptors are
  std::atomic<std::uint32_t> times_full = 0;  // sends that found no room
  SocketArea::Endpoint bound{};
  // of the program's end of the pair: an executed program finds its descriptors by it
  std::uint64_t inode = 0;
  int send_buffer = 0, receive_buffer = 0;

  [[nodiscard]] OwnPart& own() const noexcept;
  // As poll and epoll see it.
  [[nodiscard]] bool is_readable(const SocketArea::Look& look) const noexcept {
    return look.readable &&
           (listener || look.finished || look.closed || look.unread >= static_cast<std::uint64_t>(receive_low_water));
  }
  // Bounded as in the kernel: the awaited bytes must fit into the ring.
  void set_receive_low_water(int asked) noexcept {
    receive_low_water = asked < 0 ? receive_buffer / 2 : std::clamp(asked, 1, receive_buffer / 2);
  }
  // Makes the sockets of all handles, once, in the process that made the memory.
  static void make_all(MutableBytes memory) noexcept;
  // Takes the ends; the descriptor keeps its number, or replaces `fd`. Returns the descriptor; -1: see errno.
  [[nodiscard]] int take(Ends ends);
  [[nodiscard]] int take_place(int fd, int flags);
  // From now on the descriptor shows readiness.
  void begin_showing(int fd, SocketArea& area);
  // Shows the current readiness, looked up under the lock, so it cannot undo a later hide. `lost`: the agent is gone.
  void show(SocketArea& area, bool lost);
  void hide_readable(int fd, SocketArea& area);
  void hide_writable(int fd, SocketArea& area);
  void end_signal();  // of this process
  // The program needs this number. False: the library's end does not have it, or no other number is free.
  [[nodiscard]] bool make_way(int number);

 private:
  void show_locked(const SocketArea::Look& look);
  void fill(int fd);
  channel::ProcessMutex showing_;
  // Without the lock: a thread that begins to show looks at the area after it has set this, so it sees what a call on
  // the area did before that call found this false.
  std::atomic<bool> shown_ = false;
  bool readable_ = false, full_ = false, finished_ = false, closed_ = false;
};

}  // namespace offpath::sockets
