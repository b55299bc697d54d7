// Frames of wire/control.h over a Unix stream socket (with descriptors), TCP, or TLS over TCP.
//
// Never blocks and never raises SIGPIPE; memory is bounded. A protocol error of the other side is Error::protocol, its
// end Error::peer_lost; after either the socket is unusable. Belongs to one thread at a time.
//
// Descriptors travel with the first byte of their frame, and a frame with a descriptor is sent by a separate system
// call. So descriptors that arrive with a frame's bytes belong to it, and a number that differs from the frame type's
// is an error.
//
// Streamed frames (read_data, write_data) carry a token and then bytes that go straight from and to the memory
// concerned: they begin here, and their owner moves the bytes as the socket accepts them.
//
// Read this first in src/link/control, then host_control.h (the host's side of it), peer.h and witness.h (who is at the
// other end), and for networks authentication.h, tls.h and crypto.h.
#pragma once

#include <poll.h>
#include <sys/uio.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/queue.h"
#include "base/received_fds.h"
#include "base/status.h"
#include "link/control/silence_watch.h"
#include "link/control/tls.h"
#include "wire/control.h"

namespace offpath::link {

class ControlSocket {
 public:
  static constexpr std::size_t output_bytes_max = 256 * 1024;
  enum class Kind { unix_socket, network };

  struct Frame {
    wire::ControlType type{};
    Bytes payload;  // of a streamed frame: the token; valid until the next call of next()
  };

  ControlSocket() = default;
  // `socket` is connected and non-blocking. `user`: the user who is charged for the socket and received descriptors;
  // for Unix sockets of the agent.
  ControlSocket(Fd socket, Kind kind, std::unique_ptr<TlsSession> tls = nullptr,
                std::shared_ptr<ReceivedFds::User> user = nullptr);
  ControlSocket(ControlSocket&&) noexcept = default;
  ControlSocket& operator=(ControlSocket&&) noexcept = default;
  ~ControlSocket() { close(); }

  [[nodiscard]] int fd() const noexcept { return socket_.get(); }
  [[nodiscard]] bool open() const noexcept { return static_cast<bool>(socket_); }
  [[nodiscard]] const std::shared_ptr<ReceivedFds::User>& user() const noexcept { return user_; }
  [[nodiscard]] const TlsSession* tls() const noexcept { return tls_.get(); }
  // For network sockets; see address.h.
  void end_when_silent(TimeNs silence_ns) noexcept;
  [[nodiscard]] TimeNs silence_ns() const noexcept { return silence_ns_; }
  // From now on a process that does not read for that time is waited for, as long as its machine answers. The owner
  // calls look_for_silence() whenever silence_fd() is readable. Only connections to other machines have one; else -1.
  [[nodiscard]] Status outlast_closed_windows();
  [[nodiscard]] int silence_fd() const noexcept { return silence_watch_ ? silence_watch_->fd() : -1; }
  [[nodiscard]] bool silence_due(TimeNs now) const noexcept { return silence_watch_ && silence_watch_->due(now); }
  [[nodiscard]] Status look_for_silence(TimeNs now);
  // The other machine was given up because it did not answer. The error is still Error::peer_lost.
  [[nodiscard]] bool silent() const noexcept { return std::atomic_ref(silent_).load(std::memory_order_relaxed); }
  // Whether to wait for room as well as for input. (TLS may wait for input before it can send.)
  [[nodiscard]] bool wants_write() const noexcept { return tls_ ? tls_->wants_write() : output_waits(); }

  // ---- receiving
  // The next frame, if there is one; ends the use of the previous frame. `again`: the caller took one just now, and
  // waits for the socket's next event if there is none. Then no system call is made only to find nothing.
  [[nodiscard]] Result<bool> next(Frame& frame, bool again = false);
  // A descriptor of the frame from next(); there are as many as its type has.
  [[nodiscard]] Fd take_descriptor();
  // Allows a streamed frame type, which is refused otherwise.
  void allow_streamed(wire::ControlType type) noexcept { streamed_allowed_ |= 1u << static_cast<unsigned>(type); }
  [[nodiscard]] std::uint32_t streamed_left() const noexcept { return streamed_left_; }
  // Receives bytes of the streamed frame, as many as are available and fit. 0: none now. Memory that cannot be written
  // is Error::unreadable; no bytes are lost then.
  [[nodiscard]] Result<std::size_t> receive(std::span<const iovec> to);
  [[nodiscard]] Result<std::size_t> discard();
  // Discards the socket's input with at most that many system calls; no frames follow.
  void empty(unsigned calls) noexcept;

  // ---- sending
  // Sends or queues a frame. Error::would_block, and nothing sent, if the queue has no room.
  [[nodiscard]] Status send(wire::ControlType type, Bytes payload, int descriptor = -1);
  // Makes the other side look. On a Unix socket a wake that does not fit is dropped: the other side then has unread
  // bytes, and looks at its rings after reading them.
  [[nodiscard]] Status send_wake();
  // Sends queued frames; call it when the socket is writable.
  [[nodiscard]] Status flush();
  [[nodiscard]] bool output_waits() const noexcept { return output_at_ < output_.size() || streams(); }
  [[nodiscard]] std::size_t output_room() const noexcept { return output_bytes_max - (output_.size() - output_at_); }

  // Begins a streamed frame of `length` bytes after the token. The queue has to be empty. `before`: a whole frame to
  // send in front of it, by the same system call.
  void begin_stream(wire::ControlType type, std::uint64_t token, std::uint32_t length, Bytes before = {});
  [[nodiscard]] std::uint32_t stream_left() const noexcept { return stream_left_; }
  // Sends the next bytes, as many as the socket accepts. 0: none now. Memory that cannot be read is Error::unreadable;
  // the frame's bytes are still due then. `more_follows`: another frame follows at once.
  [[nodiscard]] Result<std::size_t> stream(std::span<const iovec> from, bool more_follows = false);
  [[nodiscard]] bool streams() const noexcept { return stream_left_ > 0 || head_at_ < head_.size(); }

  // Ends the connection for every process that holds the socket.
  void shut_down() noexcept;
  void close() noexcept;

 private:
  static constexpr std::size_t descriptors_max = 8;  // waiting for their frames
  static constexpr std::size_t input_bytes_first = 4096;
  static constexpr std::size_t pieces_max = 256;  // of one system call
  struct Arrived {
    std::uint64_t position;  // the end of the bytes that it arrived with
    Fd fd;
  };
  struct Leaving {
    std::uint64_t position;  // the first byte of its frame
    Fd fd;
  };

  [[nodiscard]] Result<bool> parse(Frame& frame);
  [[nodiscard]] Status collect_descriptors(wire::ControlType type, std::uint64_t frame_end);
  [[nodiscard]] Result<std::size_t> fill();
  void release_input() noexcept;
  [[nodiscard]] tl::unexpected<Failure> ended() const;
  [[nodiscard]] tl::unexpected<Failure> given_up();
  [[nodiscard]] tl::unexpected<Failure> failure(int error_number, std::string_view call);
  [[nodiscard]] tl::unexpected<Failure> tls_failure(Failure why);
  [[nodiscard]] Result<std::size_t> receive_into(std::span<iovec> to);
  [[nodiscard]] Result<std::size_t> taken(ssize_t got);
  [[nodiscard]] Result<std::size_t> send_from(std::span<const iovec> from, int descriptor, int flags = 0);
  [[nodiscard]] std::size_t buffered() const noexcept { return input_end_ - input_at_; }

  Fd socket_;
  Kind kind_ = Kind::unix_socket;
  std::shared_ptr<ReceivedFds::User> user_;
  std::unique_ptr<TlsSession> tls_;
  TimeNs silence_ns_ = 0;
  std::optional<SilenceWatch> silence_watch_;
  // The kernel reports it once, to the first caller: the receiving thread of the stream link, or a sending thread of
  // the program.
  mutable bool silent_ = false;

  std::vector<std::byte> input_;
  std::size_t input_at_ = 0, input_end_ = 0;
  bool emptied_ = false;          // the last system call took all that was there
  std::size_t input_wanted_ = 0;  // bytes that the current frame needs in all
  std::size_t frame_bytes_ = 0;   // of the frame returned by next()
  std::uint64_t taken_ = 0;       // position in the incoming bytes of input_at_
  std::vector<Fd> received_;      // from one system call
  Queue<Arrived> arrived_;
  Queue<Fd> frame_descriptors_;
  std::uint32_t streamed_allowed_ = 0;
  std::uint32_t streamed_left_ = 0;

  std::vector<std::byte> output_;
  std::size_t output_at_ = 0;
  std::uint64_t sent_ = 0;  // position in the outgoing bytes of output_at_
  Queue<Leaving> leaving_;
  bool wake_waits_ = false;
  std::vector<std::byte> head_;  // of the streamed frame
  std::size_t head_at_ = 0;
  std::uint32_t stream_left_ = 0;
};

// The number of descriptors that a frame of this type carries on a Unix socket.
[[nodiscard]] constexpr std::size_t descriptors_of(wire::ControlType type) noexcept {
  using enum wire::ControlType;
  return type == hello || type == welcome || type == segment || type == descriptor || type == offer ? 1 : 0;
}

// The error for a frame that is not allowed at this point.
[[nodiscard]] tl::unexpected<Failure> unexpected_frame(wire::ControlType type, std::string_view where);

// Keeps the payload of a frame `requests` until the wake is taken. Only its size is checked.
[[nodiscard]] Status take_requests(Bytes payload, std::vector<std::byte>& to);

// Sends and reads the reason why a side ends the connection. Sending is best effort: the other side may be gone.
void send_refusal(ControlSocket& socket, const Failure& why);
// `said` precedes the other side's reason: "the agent ended the channel".
[[nodiscard]] tl::unexpected<Failure> refused(Bytes payload, std::string_view said);

// Blocks until one of them is ready or the deadline; returns the result of ppoll. Negative descriptors are ignored.
int poll_until(std::span<pollfd> looks, TimeNs deadline) noexcept;

// Blocks until the next frame; meanwhile sends queued frames. Error::timeout.
[[nodiscard]] Result<ControlSocket::Frame> await_frame(ControlSocket& socket, TimeNs deadline);

}  // namespace offpath::link
