// The pair of Unix sockets in place of a TCP socket: the program has one end, under the number that a socket would get,
// and the supervisor the other. Reading, writing, waiting and passing it on are the kernel's own.
//
// How the program's end shows what a TCP socket would show:
//  - An abrupt end is ECONNRESET. The kernel reports it when the supervisor's end is closed with bytes unread there.
//    One byte therefore always stays unread: first a byte that comes with the pair, then the last one of the stream,
//    which was read in advance. So at any end of the supervisor the program cannot mistake half a stream for the
//    whole. Closing without an error takes that byte out first.
//  - While a connection is attempted, the program's end is full, so that poll does not report it writable.
//  - A listener is readable while there is a byte to read.
#pragma once

#include <sys/types.h>

#include <cstddef>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/status.h"

namespace offpath::supervise {

class StreamPair {
 public:
  struct Made;
  // `non_blocking`: of the program's end.
  [[nodiscard]] static Result<Made> make(bool non_blocking);
  StreamPair() = default;

  [[nodiscard]] int descriptor() const noexcept { return own_.get(); }
  [[nodiscard]] bool is_open() const noexcept { return static_cast<bool>(own_); }

  // ---- bytes
  // The number of bytes that the program has written and the supervisor has not taken.
  [[nodiscard]] std::size_t waiting() const noexcept;
  // Takes at most as many bytes as wait. Returns the number taken.
  [[nodiscard]] std::size_t take(MutableBytes to) noexcept;
  // Returns the number given; 0: the program's end is full. `reads`: false once the program does not read any more.
  struct Given {
    std::size_t bytes;
    bool reads;
  };
  [[nodiscard]] Given give(Bytes from) noexcept;
  void end_stream() noexcept;  // the program reads the end, after all given bytes

  // ---- readiness. `programs`: a copy of the program's end.
  void fill(int programs) noexcept;
  void drain() noexcept;  // the bytes of fill()
  void show_readable() noexcept;
  void hide_readable(int programs) noexcept;
  [[nodiscard]] bool shows_readable() const noexcept { return readable_; }

  // ---- the end
  [[nodiscard]] bool was_left_unread() const noexcept;  // the program's end was closed before it had read everything
  void close() noexcept;                                // the program reads all given bytes, then the end
  void reset() noexcept;                                // …then ECONNRESET

 private:
  Fd own_;
  bool kept_ = true;  // a byte stays unread
  std::size_t filling_ = 0;
  bool readable_ = false;
};

struct StreamPair::Made {
  StreamPair pair;
  Fd programs;
  ino_t inode;  // of the program's end
};

}  // namespace offpath::supervise
