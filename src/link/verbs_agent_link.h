// The agent's end over RDMA: reads and writes are work requests that its card serves with the host's, whatever the
// host's processor does. Read verbs_link.h and verbs_connection.h first.
//
// An operation becomes one chain of linked work requests, handed to the card by one call; only the last one of a chain is
// signalled. Chains are cut where the queue pair or the bounce buffer has no more room; the rest waits, in order.
// The queue pair completes requests in order, so the completion under way is always that of the oldest chain.
// Writes up to 64 bytes, which is what rings and lines mostly are, travel inside their work request.
//
// A request that fails puts the whole queue pair into its error state, and what was posted behind it is flushed: the link
// ends, with the reason. So that no program can bring that about by chance, everything is checked here before it
// is posted, and the host asks before it takes a key away (`withdraw`): it is told once nothing that uses the key is left.
// What remains are a host that lies about its memory, and a card that fails.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "link/control_socket.h"
#include "link/event_queue.h"
#include "link/link.h"
#include "link/local_agent_link.h"
#include "link/region_table.h"
#include "link/verbs_connection.h"
#include "link/verbs_link.h"
#include "link/verbs_memory.h"

namespace offpath::link {

class VerbsAgentLink final : public AgentLink {
 public:
  static constexpr TimeNs look_interval_ns = 50 * microsecond_ns;  // at socket and events, where completions come besides

  [[nodiscard]] static Result<std::unique_ptr<VerbsAgentLink>> create(ControlSocket socket, const VerbsProofs& proofs,
                                                                      std::uint64_t channel_segment_bytes,
                                                                      const SegmentLimits& limits,
                                                                      std::shared_ptr<const LastingMemory> lasting, TimeNs deadline);
  ~VerbsAgentLink() override;

  const LinkTraits& traits() const override { return traits_; }
  Status attach_range(RegionId range, std::uint32_t generation, std::uint64_t base, std::uint64_t length,
                      std::uint32_t key) override;
  Status detach_range(RegionId range, std::uint32_t generation) override;
  MutableBytes mapped(RegionId) override { return {}; }
  void read(std::uint64_t token, std::span<const ReadPiece> pieces) override;
  void write(std::uint64_t token, std::span<const WritePiece> pieces) override;
  void wake() override;
  void refuse(const Failure& why) override { lose(why); }
  std::size_t poll(TimeNs now, std::span<LinkEvent> events) override;
  int event_fd() const override { return events_fd_.get(); }
  void close() override;

 private:
  struct Piece {
    std::uint64_t address;  // on the host; of the channel segment before the link is open: the offset
    std::uint32_t key;
    bool early;             // the channel segment's, before the link is open
    std::byte* memory;
    std::uint64_t length;
  };
  // From the bounce buffer to where the read was to go.
  struct CopyBack {
    std::byte* to;
    const std::byte* from;
    std::uint64_t length;
  };
  struct Operation {
    bool is_read = false, covered = false;
    std::uint64_t token = 0;
    std::uint64_t number = 0;              // counts the link's operations; they end in this order
    std::vector<Piece> pieces;
    std::size_t piece = 0, offset = 0;     // the next byte to post
    std::vector<CopyBack> copies;
    OperationRegions regions;
    Status status;
  };
  struct Chain {
    Operation* operation;
    unsigned requests;
    bool last;                             // of its operation
    std::uint64_t bounce_position;         // given back with it
    std::size_t copies_begin, copies_end;  // of its operation's
  };
  struct Leaving {
    std::uint64_t before;  // operations with a smaller number may still use it
    wire::Withdrawal withdrawal;
  };

  VerbsAgentLink(ControlSocket socket, const VerbsProofs& proofs, VerbsConnection connection, std::uint64_t channel_segment_bytes,
                 const SegmentLimits& limits, std::shared_ptr<const LastingMemory> lasting, TimeNs deadline, Fd events_fd,
                 Fd more_fd);

  [[nodiscard]] Operation* new_operation(bool is_read, std::uint64_t token);
  [[nodiscard]] Result<const Region*> resolve(const ReadPiece& piece) const;
  void begin(Operation& operation);
  void finish(Operation& operation);
  void add_piece(Operation& operation, RegionId id, const Region& region, std::uint64_t offset, std::byte* memory,
                 std::uint64_t length);
  void cover(Operation& operation);
  [[nodiscard]] Status pump();
  [[nodiscard]] Status post_chain(Operation& operation);
  [[nodiscard]] bool add_request(Operation& operation);

  [[nodiscard]] Status take_completions();
  [[nodiscard]] Result<bool> take_some_completions();
  void complete_oldest();
  void fail_oldest(const ibv_wc& completion);
  void drain_completion_events();
  [[nodiscard]] Status look(TimeNs now);
  [[nodiscard]] Status advance_connection();
  [[nodiscard]] Status take_frames();
  [[nodiscard]] Status take_frame(const ControlSocket::Frame& frame);
  [[nodiscard]] Status take_segment(Bytes payload);
  [[nodiscard]] Status let_go(Bytes payload);
  [[nodiscard]] std::uint64_t first_without(const wire::Withdrawal& withdrawal) const;
  [[nodiscard]] Status tell_withdrawn();
  void watch();
  void lose(Failure why);

  ControlSocket socket_;
  VerbsProofs proofs_;
  TimeNs deadline_;       // for the queue pair to come about
  VerbsConnection connection_;
  KeptRegions kept_;
  std::unique_ptr<BounceRing> bounce_;  // from when the queue pair is there
  bool open_ = false;                   // and the host said where the channel segment lies
  Fd events_fd_;  // an epoll of the socket, completions, rdmacm's events
  Fd more_fd_;    // always readable; in the epoll while poll has something to tell that none of these knows of
  bool room_watched_ = false, more_watched_ = false, armed_ = false, more_ = false;

  LinkTraits traits_;
  SegmentLimits limits_;
  RegionTable regions_;
  std::vector<std::uint32_t> range_gone_;  // by number: the newest generation that the host withdrew
  std::uint64_t channel_bytes_, segment_bytes_;
  std::uint32_t segment_count_ = 1;
  std::deque<Leaving> leaving_;

  std::vector<std::unique_ptr<Operation>> operations_;  // all there are; idle ones are used again
  std::vector<Operation*> idle_;
  std::deque<Operation*> waiting_;  // not posted to their end; only the first has begun
  std::deque<Chain> chains_;        // posted, oldest first
  unsigned requests_under_way_ = 0;
  std::uint64_t next_number_ = 1;

  EventQueue events_;
  std::vector<ibv_send_wr> requests_;  // of the chain being put together
  std::vector<ibv_sge> local_;
  std::vector<OperationRegions::Piece> stretches_;
  std::vector<std::byte> scratch_;
  TimeNs next_look_ = 0;
  unsigned polls_since_look_ = 0;
  bool woken_ = false, lost_ = false, told_ = false;
  Failure why_{Error::closed, "the link was closed"};
};

}  // namespace offpath::link
