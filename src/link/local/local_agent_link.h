// The agent's end on one machine: segments are the host's sealed memfds, mapped; ranges are read in place, a whole plan
// by one process_vm_readv. Read sealed_memory.h, control/peer.h, control/witness.h, program_reads.h and user_readers.h
// first. The host's wakes are edges of an eventfd of this end's. It is not read, because the host could make a read of
// it block.
//
// Reads are gathered until poll, which makes one system call of them: for small reads the call is most of the cost. A
// program of another user is read not by poll but by that user's thread (user_readers.h), one batch at a time; poll
// takes the finished batch. After a batch the host's pidfd and socket are checked: bytes of a process that ended
// meanwhile do not count. Writes are complete when the call returns. Poll also looks at the socket and the pidfd, which
// are two system calls: when it is told that one of them is readable, or, if they are not watched, once in
// look_interval_ns.
#pragma once

#include <memory>
#include <set>
#include <vector>

#include "link/control/control_socket.h"
#include "link/control/peer.h"
#include "link/event_queue.h"
#include "link/link.h"
#include "link/local/program_reads.h"
#include "link/local/sealed_memory.h"
#include "link/local/user_readers.h"
#include "link/region_table.h"

namespace offpath::link {

struct SegmentLimits {
  std::uint32_t count_max = 4096;
  std::uint64_t bytes_max = 64ull << 30;  // of all segments of one host together
};

class LocalAgentLink final : public AgentLink {
 public:
  static constexpr TimeNs look_interval_ns = 50 * microsecond_ns;  // unless the owner watches

  // `wakes` is the eventfd that the host has, too. `channel_address` is the channel segment's address in the program;
  // `reader` reads its memory, null: poll does.
  LocalAgentLink(ControlSocket socket, Fd wakes, Peer peer, DirectReads direct, SegmentMemory channel_segment,
                 std::uint64_t channel_address, const SegmentLimits& limits,
                 std::shared_ptr<UserReaders::User> reader = nullptr);
  ~LocalAgentLink() override;

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
  void on_watched() override { is_watched_ = true; }
  void on_readable() override { readable_ = true; }
  int wake_fd() const override { return wakes_.get(); }
  void on_wake() override { woken_ = true; }
  int life_fd() const override { return life_.get(); }
  void refuse(const Failure& why) override { lose(why, true); }
  void close() override;

 private:
  struct Batch final : UserReaders::Work {
    Batch(pid_t pid, MutableBytes channel, std::uint64_t channel_address) : reads(pid, channel, channel_address) {}
    void run() override { reads.run(); }
    [[nodiscard]] std::uint64_t progress() const noexcept override { return reads.calls(); }
    ProgramReads reads;
  };

  [[nodiscard]] std::shared_ptr<Batch> make_batch();
  [[nodiscard]] Status gather(std::span<const ReadPiece> pieces);
  void finish_reads(TimeNs now);
  void finish_batch(TimeNs now);
  void start_batch();
  void judge(const ProgramReads& reads);
  void tell(const ProgramReads& reads, const Failure* why);
  void give_up_batch(const Failure& why);
  [[nodiscard]] Status write_now(std::span<const WritePiece> pieces);
  [[nodiscard]] bool host_lives();
  void look();
  void watch_room();
  [[nodiscard]] Status take_frames();
  [[nodiscard]] Status take_segment(Bytes payload);
  [[nodiscard]] Result<SegmentMemory> accept_segment(const wire::SegmentNotice& notice, std::uint32_t number);
  [[nodiscard]] Status drop_segment(Bytes payload);
  void lose(Failure why, bool tells = false);  // the host is told of errors, and of any reason if `tells`

  ControlSocket socket_;
  Fd wakes_;
  Peer peer_;
  LinkTraits traits_;
  SegmentLimits limits_;
  RegionTable regions_;
  std::vector<SegmentMemory> segments_;  // by number; empty if unused
  std::uint64_t segment_bytes_ = 0;
  std::uint32_t segment_count_ = 0;
  std::set<RegionId> refused_;  // that the host has not withdrawn

  std::uint64_t channel_address_;
  std::shared_ptr<Batch> batch_;  // being gathered
  // With a reader: the batch that it works on, and a finished one for reuse.
  std::shared_ptr<UserReaders::User> reader_;
  std::shared_ptr<Batch> outstanding_, spare_;
  // epoll over the pidfd and the socket's hang-up: ready when the program has ended. And, while output waits, when the
  // socket has room for it.
  Fd life_;
  bool room_watched_ = false;

  EventQueue events_;
  TimeNs next_look_ = 0;
  unsigned polls_since_look_ = 0;
  bool readable_ = true, is_watched_ = false;  // readable: frames may have come with the handshake
  bool woken_ = false;
  std::size_t offers_ = 0;  // since the last poll
  bool lost_ = false, told_ = false;
  Failure why_{Error::closed, "the link was closed"};
};

}  // namespace offpath::link
