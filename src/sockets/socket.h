// An offloaded socket, as all descriptors that name it share it (an open file description), in memory that all
// processes of the program share; and what each of them has of it for itself.
//
// Its descriptors are one end of a pair of Unix sockets; this library holds the other, in every process that has the
// socket. Once somebody asks the kernel what can be done with one, the pair shows it: readable is a byte that lies
// there to be read, not writable is a full buffer, and an end of the peer's is a shutdown of the other end. So poll and
// select, with whatever descriptors, are the kernel's own. Who took events in shows what can be done now; who finds that
// nothing can be done hides it. What epoll is told is told without the pair (epoll_sets.h), and a socket that nobody
// asked the kernel about shows nothing. Close-on-exec is that of the descriptor.
#pragma once

#include <sys/time.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "connections/process_mutex.h"
#include "connections/sockets.h"

namespace offpath::sockets {

using channel::SocketArea;

// What a process has of a socket.
struct OwnPart {
  std::atomic<std::uint32_t> users = 0;  // descriptors, and calls at work; 0: the process does not have it
  std::atomic<std::uint32_t> descriptors = 0;
  std::atomic<bool> listens = false;  // counted among Program's listeners: since somebody waited for it first
  std::atomic<bool> shows = false;    // sees to it that the descriptor shows what can be done
  std::atomic<int> signal = -1;       // the other end
  std::atomic<std::uint32_t> changes = 0, waiting = 0;  // how often it changed; threads that sleep until it does
};

inline constexpr int keepalive_s_max = 32767, keepalive_probes_max = 127;  // the kernel's own bounds

// What a program has set by setsockopt: a connection has it from its listener, and a socket that begins anew from what
// it was.
struct Settings {
  bool resets = false;  // SO_LINGER with no time
  timeval receive_timeout{}, send_timeout{};
  int no_delay = 0, cork = 0, reuse_address = 0;
  int keepalive = 0, keepalive_idle_s = 7200, keepalive_interval_s = 75, keepalive_probes = 9;  // as in the kernel
  int user_timeout_ms = 0;
};

// The pair of a socket that is to be.
class Ends {
 public:
  // As socketpair's flags are. None: errno tells.
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
  bool error_told = false;  // by SO_ERROR or a failed call, once
  // a listener that was shut down, or a connection that failed, as connect told: it may begin anew
  std::atomic<bool> unconnected = false;
  std::atomic<bool> reads_ended = false;      // shutdown(SHUT_RD)
  std::atomic<bool> non_blocking = false;     // as the descriptor is
  std::atomic<std::uint32_t> times_full = 0;  // that a send found no room
  SocketArea::Endpoint bound{};
  // of the end that the program has: who takes the place of a process by exec() finds its descriptors by it
  std::uint64_t inode = 0;
  int send_buffer = 0, receive_buffer = 0;

  [[nodiscard]] OwnPart& own() const noexcept;
  [[nodiscard]] channel::FlowSettings flow_settings() const noexcept {
    return {.gathers = cork != 0,
            .keepalive_probes = static_cast<std::uint8_t>(keepalive_probes),
            .keepalive_idle_s = static_cast<std::uint16_t>(keepalive != 0 ? keepalive_idle_s : 0),
            .keepalive_interval_s = static_cast<std::uint16_t>(keepalive_interval_s),
            .user_timeout_ms = static_cast<std::uint32_t>(user_timeout_ms)};
  }
  // Of handles from 0 on, once, by the process that makes the memory.
  static void make_all(MutableBytes memory) noexcept;
  // The socket's descriptor is at the number that it has, or takes the place of `fd`. The descriptor; -1: errno tells.
  [[nodiscard]] int take(Ends ends);
  [[nodiscard]] int take_place(int fd, int flags);
  // From now on the descriptor shows what can be done.
  void begin_showing(int fd, const SocketArea& area);
  // What can be done now: nobody shows what another has hidden since. `lost`: so is the agent.
  void show(const SocketArea& area, bool lost);
  void hide_readable(int fd, const SocketArea& area);
  void hide_writable(int fd, const SocketArea& area);
  void end_signal();  // of this process
  // The program wants this number for itself. False: it is not the one of the other end, or there is no other.
  [[nodiscard]] bool make_way(int number);

 private:
  void show_locked(const SocketArea::Look& look);
  void fill(int fd);
  channel::ProcessMutex showing_;
  bool shown_ = false;
  bool readable_ = false, full_ = false, finished_ = false, closed_ = false;
};

}  // namespace offpath::sockets
