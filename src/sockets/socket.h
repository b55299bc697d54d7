// An offloaded socket, as all descriptors that name it share it (an open file description), in memory that forked children share.
//
// Its descriptors are one end of a pair of Unix sockets; this library holds the other. So poll, select and epoll, nested and with
// whatever flags, are the kernel's own: readable is a byte that lies there to be read, not writable is a full buffer, and an end of
// the peer's is a shutdown of the other end. O_NONBLOCK and close-on-exec are those of the descriptor. Who took news in shows what can
// be done now; who finds that nothing can be done hides it.
#pragma once

#include <sys/time.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#include "channel/sockets.h"

namespace offpath::sockets {

using channel::SocketArea;

struct Socket {
  std::atomic<std::uint32_t> users = 0;  // descriptors, and calls at work; 0: it is nobody's
  SocketArea::Handle handle = 0;
  bool listener = false;
  bool error_told = false;   // by SO_ERROR or a failed call, once
  bool resets = false;       // SO_LINGER with no time
  std::atomic<bool> reads_ended = false;  // shutdown(SHUT_RD)
  SocketArea::Endpoint bound{};
  timeval receive_timeout{}, send_timeout{};
  int no_delay = 0, keepalive = 0, reuse_address = 0, send_buffer = 0, receive_buffer = 0;

  // Takes the place of the kernel's socket at `fd`, or of none (-1) at the lowest number. The descriptor; -1: errno tells.
  [[nodiscard]] int take_place(int fd, int flags);
  void show(const SocketArea::Look& look);
  void hide_readable(int fd, SocketArea& area);
  void hide_writable(int fd, SocketArea& area);
  void end_signal();

 private:
  std::mutex showing_;
  int signal_ = -1;  // the other end
  bool readable_ = false, full_ = false, finished_ = false, closed_ = false;
};

}  // namespace offpath::sockets
