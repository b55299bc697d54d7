// The agent's end on one machine: segments are the host's sealed memfds, mapped; ranges are read where they lie,
// a whole plan by one process_vm_readv, whose first vector is the witness. Read sealed_memory.h, peer.h and witness.h
// first.
//
// The witness and the data come in one call, so data are there before they are known to be the program's. Where another
// process may have the target mapped (ReadPiece::unshared is false), they come into a bounce buffer of the link, and go
// to the target once the witness was seen.
//
// Reads are gathered until poll, which makes one system call of them: for small ones it is most of what they cost.
// After it the host's pidfd and socket are looked at: bytes of a process that ended meanwhile do not count. Writes are
// over when the call returns. The socket is also looked at by poll, but at most once in look_interval_ns, because a
// look is a system call.
#pragma once

#include <sys/uio.h>

#include <array>
#include <memory>
#include <set>
#include <vector>

#include "link/control/control_socket.h"
#include "link/control/peer.h"
#include "link/control/witness.h"
#include "link/event_queue.h"
#include "link/link.h"
#include "link/local/sealed_memory.h"
#include "link/region_table.h"

namespace offpath::link {

struct SegmentLimits {
  std::uint32_t count_max = 4096;
  std::uint64_t bytes_max = 64ull << 30;  // of all segments of one host together
};

class LocalAgentLink final : public AgentLink {
 public:
  static constexpr TimeNs look_interval_ns = 50 * microsecond_ns;

  // `channel_address` is where the program has the channel segment mapped.
  LocalAgentLink(ControlSocket socket, Peer peer, DirectReads direct, SegmentMemory channel_segment,
                 std::uint64_t channel_address, const SegmentLimits& limits);

  const LinkTraits& traits() const override { return traits_; }
  Status attach_range(RegionId range, std::uint32_t generation, std::uint64_t base, std::uint64_t length,
                      std::uint32_t key) override;
  Status detach_range(RegionId range, std::uint32_t generation) override;
  MutableBytes mapped(RegionId segment) override;
  void read(std::uint64_t token, std::span<const ReadPiece> pieces) override;
  void write(std::uint64_t token, std::span<const WritePiece> pieces) override;
  void wake() override;
  Status hand_over(std::uint64_t ticket, int fd) override;
  std::size_t poll(TimeNs now, std::span<LinkEvent> events) override;
  int event_fd() const override { return socket_.fd(); }
  int life_fd() const override { return peer_.pidfd.get(); }
  void refuse(const Failure& why) override { lose(why); }
  void close() override;

 private:
  static constexpr std::size_t vector_max = 1024;  // IOV_MAX
  static constexpr std::size_t first_vector = 1;   // the one before it is the witness

  // A read whose vectors are [first, end) of those gathered.
  struct Read {
    std::uint64_t token;
    std::size_t first, end;
    Status status;
  };

  [[nodiscard]] Status gather(std::span<const ReadPiece> pieces);
  [[nodiscard]] std::uint64_t add_vector(const ReadPiece& piece, std::uint64_t address, std::uint64_t done);
  void read_gathered();
  void deliver(std::size_t vector, std::uint64_t length) noexcept;
  void finish_reads();
  [[nodiscard]] Read& read_of(std::size_t vector) noexcept;
  [[nodiscard]] tl::unexpected<Failure> call_failure(int error_number);
  [[nodiscard]] tl::unexpected<Failure> unreadable(std::size_t vector) const;
  [[nodiscard]] Status write_now(std::span<const WritePiece> pieces);
  [[nodiscard]] bool host_lives();
  void look();
  [[nodiscard]] Status take_frames();
  [[nodiscard]] Status take_segment(Bytes payload);
  [[nodiscard]] Result<SegmentMemory> accept_segment(const wire::SegmentNotice& notice, std::uint32_t number);
  [[nodiscard]] Status drop_segment(Bytes payload);
  void lose(Failure why);

  ControlSocket socket_;
  Peer peer_;
  LinkTraits traits_;
  SegmentLimits limits_;
  RegionTable regions_;
  std::vector<SegmentMemory> segments_;  // by number; empty where there is none
  std::uint64_t segment_bytes_ = 0;
  std::uint32_t segment_count_ = 0;
  std::set<RegionId> refused_;  // that the host has not taken back yet

  // Of the call being put together.
  std::array<iovec, vector_max> to_, from_;
  std::array<std::byte*, vector_max> targets_;  // where each vector is to end: at to_, or copied from there
  std::array<RegionId, vector_max> ranges_;     // where each vector is from
  std::size_t vectors_ = first_vector;
  std::vector<Read> reads_;
  std::unique_ptr<std::byte[]> bounce_;  // made when it is first needed
  std::uint64_t bounced_ = 0;            // bytes of it that vectors name
  Witness witness_;
  Fd life_;  // epoll over the pidfd and the socket's other end: ready when the program has ended

  EventQueue events_;
  TimeNs next_look_ = 0;
  unsigned polls_since_look_ = 0;
  bool woken_ = false;
  std::size_t offers_ = 0;  // since the last poll
  bool lost_ = false, told_ = false;
  Failure why_{Error::closed, "the link was closed"};
};

}  // namespace offpath::link
