// The agent's end over TCP or TLS: reads and writes are requests that the host's library answers.
//
// Requests are answered in the order they were sent, so the current answer always belongs to the oldest one, and its
// bytes are received straight into the read's target. A transfer is cut into parts that fit a frame; it ends with its
// last part. A part that writes to the channel segment alone (replies, lines) ends when it is sent: the host answers it
// only if it fails, which ends the link. Everything is checked here against the announcements, and again by the host.
//
// Read this first in src/link/stream, then stream_host_link.h, stream_server.h (how a program's memory is served) and
// stream_threads.h.
#pragma once

#include <sys/uio.h>

#include <memory>
#include <vector>

#include "base/queue.h"
#include "link/control/control_socket.h"
#include "link/event_queue.h"
#include "link/link.h"
#include "link/local/local_agent_link.h"
#include "link/region_table.h"

namespace offpath::link {

class StreamAgentLink final : public AgentLink {
 public:
  static constexpr TimeNs look_interval_ns =
      50 * microsecond_ns;                      // while nothing is outstanding, unless the owner watches
  static constexpr std::size_t parts_max = 64;  // requests sent and not answered

  [[nodiscard]] static Result<std::unique_ptr<StreamAgentLink>> create(ControlSocket socket,
                                                                       std::uint64_t channel_segment_bytes,
                                                                       const SegmentLimits& limits, std::string reason);

  const LinkTraits& traits() const override { return traits_; }
  Status attach_range(RegionId range, std::uint32_t generation, std::uint64_t base, std::uint64_t length,
                      std::uint32_t key) override;
  Status detach_range(RegionId range, std::uint32_t generation) override;
  MutableBytes mapped(RegionId) override { return {}; }
  void read(std::uint64_t token, std::span<const ReadPiece> pieces) override;
  void write(std::uint64_t token, std::span<const WritePiece> pieces) override;
  void wake() override;
  std::size_t poll(TimeNs now, std::span<LinkEvent> events) override;
  int event_fd() const override { return events_fd_.get(); }
  void on_watched() override { is_watched_ = true; }
  void on_readable() override { readable_ = true; }
  void refuse(const Failure& why) override { lose(why, true); }
  void close() override;

 private:
  struct Piece {
    wire::TransferPiece region;
    std::byte* memory;
  };
  struct Transfer {
    bool is_read = false;
    std::uint64_t token = 0;
    std::uint64_t number = 0;  // identifies it on the wire
    std::vector<Piece> pieces;
    std::size_t asked_piece = 0, asked_offset = 0;  // the range covered by the parts sent so far
    std::size_t moved_piece = 0, moved_offset = 0;  // received, or handed to the socket
    unsigned parts_under_way = 0;
    bool all_asked = false;
    Status status;
  };
  struct Part {
    Transfer* transfer;
    std::uint64_t bytes;  // still to come (reads)
  };

  StreamAgentLink(ControlSocket socket, std::uint64_t channel_segment_bytes, const SegmentLimits& limits,
                  std::string reason, Fd events_fd, Fd more_fd);

  [[nodiscard]] Transfer& new_transfer(bool is_read, std::uint64_t token);
  void begin(Transfer& transfer);
  void finish(Transfer& transfer);
  void end_part(Transfer& transfer);
  [[nodiscard]] Status pump();
  [[nodiscard]] Status send_part(Transfer& transfer);
  [[nodiscard]] Result<bool> send_bytes();
  [[nodiscard]] Status receive();
  [[nodiscard]] Status take_frame(const ControlSocket::Frame& frame);
  [[nodiscard]] Status begin_data(Bytes token);
  [[nodiscard]] Result<std::size_t> receive_data();
  [[nodiscard]] Status take_outcome(Bytes payload, bool of_read);
  void skip(Transfer& transfer, std::uint64_t bytes);
  [[nodiscard]] Status take_segment(Bytes payload);
  [[nodiscard]] Status drop_segment(Bytes payload);
  void look(TimeNs now);
  void watch();
  void lose(Failure why, bool tells = false);  // the host is told of errors, and of any reason if `tells`

  ControlSocket socket_;
  Fd events_fd_;  // an epoll of the socket, so that a sleeping loop also learns of room for output
  Fd more_fd_;    // always readable; in the epoll while received bytes are buffered outside of the socket
  bool room_watched_ = false, more_watched_ = false;
  LinkTraits traits_;
  SegmentLimits limits_;
  RegionTable regions_;
  std::vector<std::uint64_t> segments_;  // lengths by number; 0: none
  std::uint64_t segment_bytes_ = 0;
  std::uint32_t segment_count_ = 1;

  std::vector<std::unique_ptr<Transfer>> transfers_;  // all of them; idle ones are reused
  std::vector<Transfer*> idle_;
  Queue<Transfer*> waiting_;     // with parts that are still to be sent; only the first has started
  Queue<Part> parts_;            // sent and not answered, oldest first
  Transfer* sending_ = nullptr;  // the write whose bytes are being sent
  bool is_answered_ = false;     // that part of it
  std::uint64_t next_number_ = 1;

  EventQueue events_;
  std::vector<std::byte> scratch_, request_;
  std::vector<iovec> vectors_;
  TimeNs next_look_ = 0;
  unsigned polls_since_look_ = 0;
  bool woken_ = false, more_ = false;
  std::vector<std::byte> requests_sent_;       // with the newest wake
  bool readable_ = true, is_watched_ = false;  // readable: frames may have come with the handshake
  bool lost_ = false, told_ = false;
  Failure why_{Error::closed, "the link was closed"};
};

}  // namespace offpath::link
