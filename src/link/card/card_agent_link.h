// The agent's end of links whose bytes a card moves by itself: verbs_link (RDMA) and doca_link (DMA over PCIe). This is
// their common part: operations and their order, the control connection, segments and their limits, and the withdrawal
// of host memory. The virtual functions at the end differ by card.
//
// An operation becomes a chain of requests that is handed to the card as a whole. Chains are cut if the card or the
// bounce buffer has no more room; the rest waits, in order. A card may complete requests in any order: an operation
// ends with its last request, and space in the bounce buffer is released in the order of posting.
//
// Every operation is checked before it is posted, and the host asks before it withdraws memory (`withdraw`): it gets an
// answer when no operation uses the memory. So programs cannot cause errors of the card by chance, and an error ends
// the link with its reason.
//
// Read this first in src/link/card, then card_device.h (what all channels share), registered_memory.h (the agent's
// memory) and announced_memory.h (the program's).
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "link/card/bounce_buffer.h"
#include "link/card/card_device.h"
#include "link/card/registered_memory.h"
#include "link/control/control_socket.h"
#include "link/event_queue.h"
#include "link/link.h"
#include "link/local/local_agent_link.h"
#include "link/region_table.h"

namespace offpath::link {

class CardAgentLink : public AgentLink {
 public:
  // between looks at the socket and at events, if completions arrive otherwise
  static constexpr TimeNs look_interval_ns = 50 * microsecond_ns;

  const LinkTraits& traits() const override { return traits_; }
  Status attach_range(RegionId range, std::uint32_t generation, std::uint64_t base, std::uint64_t length,
                      std::uint32_t key) override;
  Status detach_range(RegionId range, std::uint32_t generation) override;
  MutableBytes mapped(RegionId) override { return {}; }
  void read(std::uint64_t token, std::span<const ReadPiece> pieces) override;
  void write(std::uint64_t token, std::span<const WritePiece> pieces) override;
  void wake() override;
  void refuse(const Failure& why) override { lose(why, true); }
  std::size_t poll(TimeNs now, std::span<LinkEvent> events) override;
  int event_fd() const override { return events_fd_.get(); }
  void close() override;

 protected:
  // Where a piece lies. Memory that the host announces later is known by its offset in the channel segment until the
  // piece is posted.
  enum class Place : std::uint8_t { announced, early, outside };
  struct Piece {
    std::uint64_t address;  // on the host; `early` and `outside`: the offset
    std::uint32_t key;
    Place place;
    std::byte* memory;
    std::uint64_t length;
  };
  struct Remote {
    std::uint64_t address;
    std::uint32_t key;
  };
  // A copy from the bounce buffer to the read's target.
  struct CopyBack {
    std::byte* to;
    const std::byte* from;
    std::uint64_t length;
  };
  struct Operation {
    bool is_read = false, covered = false;
    std::uint64_t token = 0;
    std::uint64_t number = 0;  // counts the link's operations
    std::vector<Piece> pieces;
    std::size_t piece = 0, offset = 0;  // the next byte to post
    unsigned under_way = 0;             // requests
    std::vector<CopyBack> copies;
    OperationRegions regions;
    Status status;
    [[nodiscard]] bool posted() const noexcept { return piece == pieces.size(); }
  };
  struct Chain {
    Operation* operation;                  // null: all of it was moved
    unsigned requests, left;               // that the card has still to move
    std::uint64_t bounce_position;         // released with the chain
    std::size_t copies_begin, copies_end;  // of its operation's copies
  };
  // The bytes of one work request or task.
  struct Request {
    std::uint64_t address;  // on the host
    std::uint32_t key;      // the host's
    bool inside;            // the bytes travel inside the request: no `local_key`
    std::byte* local;
    std::uint64_t local_key;  // a Registration's
    std::uint64_t length;
  };
  struct CardLimits {
    unsigned requests_max = 0;  // under way
    std::uint64_t request_bytes_max = 0;
    std::uint64_t inside_bytes_max = 0;
  };
  // Whether writes become visible in the order of posting. If the card does not promise it, a write is posted after the
  // one before it has completed; reads may overtake it.
  enum class WriteOrder { of_posting, none };

  CardAgentLink(ControlSocket socket, LinkTraits traits, WriteOrder order, const ChannelBytes& channel,
                const SegmentLimits& limits, TimeNs deadline);
  // Sets up the descriptors to sleep on, including the socket's.
  [[nodiscard]] Status watch_descriptors();
  [[nodiscard]] Status watch_descriptor(int fd);
  // The card is ready: requests within these limits may be posted once the channel segment is announced.
  [[nodiscard]] Status begin_posting(const CardLimits& limits, std::shared_ptr<CardDevice> device);
  [[nodiscard]] bool can_post() const noexcept { return bounce_.has_value(); }
  [[nodiscard]] bool is_open() const noexcept { return open_; }
  [[nodiscard]] bool lost() const noexcept { return lost_; }
  [[nodiscard]] TimeNs time() const noexcept { return now_; }  // time of the current poll
  void stop_posting() noexcept { halted_ = true; }
  // Asks for another poll that no descriptor will announce.
  void look_again() noexcept { again_ = true; }

  // Checks a segment that the host announced against the agent's limits.
  [[nodiscard]] Status check_segment(RegionId segment, std::uint64_t length) const;
  [[nodiscard]] Status attach_segment(RegionId segment, std::uint64_t address, std::uint64_t length, std::uint32_t key);
  // The part of the channel segment behind its rings, of which the host announces the rings alone at first.
  [[nodiscard]] Status attach_outside(std::uint64_t address, std::uint64_t length, std::uint32_t key);

  // Requests of a chain were moved; settle() completes their operations. The second form is for the oldest chain, on
  // cards that keep the order.
  void moved(Chain& chain, unsigned requests);
  void settle();
  [[nodiscard]] bool under_way() const noexcept { return !chains_.empty(); }
  [[nodiscard]] Chain& oldest() noexcept { return chains_.front(); }
  void fail_operation(Chain& chain, const Failure& why);

  [[nodiscard]] Status take_frames();
  ControlSocket& socket() noexcept { return socket_; }
  void lose(Failure why, bool tells = false);  // the host is told of errors, and of any reason if `tells`

  // ---- differs by card
  // `chain` is valid until settle() finds it moved. On entry left == requests.
  [[nodiscard]] virtual Status post(bool is_read, Chain& chain, std::span<const Request> requests) = 0;
  [[nodiscard]] virtual Status take_completions() = 0;
  [[nodiscard]] virtual Status look_at(int fd) = 0;  // a descriptor that became readable
  [[nodiscard]] virtual Status take_announcement(const ControlSocket::Frame& frame) = 0;
  [[nodiscard]] virtual Failure why_not_open() const = 0;   // the error at the deadline
  virtual void forget(const wire::Withdrawal&) noexcept {}  // no operation uses it any more
  virtual void break_off() noexcept = 0;                    // nothing is moved after it returns
  virtual void end_card() noexcept = 0;                     // nothing stays registered

 private:
  struct Leaving {
    std::uint64_t before;  // operations with a smaller number may still use it
    wire::Withdrawal withdrawal;
  };

  [[nodiscard]] Operation* new_operation(bool is_read, std::uint64_t token);
  [[nodiscard]] Result<const Region*> resolve(const ReadPiece& piece) const;
  void begin(Operation& operation);
  void finish(Operation& operation);
  void add_piece(Operation& operation, RegionId id, const Region& region, std::uint64_t offset, std::byte* memory,
                 std::uint64_t length);
  void cover(Operation& operation);
  [[nodiscard]] bool takes_turns(const Operation& operation) const noexcept {
    return order_ == WriteOrder::none && !operation.is_read;
  }
  [[nodiscard]] Status pump();
  [[nodiscard]] Status pump(std::deque<Operation*>& lane);
  [[nodiscard]] Status post_chain(Operation& operation);
  [[nodiscard]] std::optional<Remote> find_remote(const Piece& piece) const;
  [[nodiscard]] bool add_request(Operation& operation);
  [[nodiscard]] Status look(TimeNs now);
  [[nodiscard]] Status look_at_memory(TimeNs now);
  [[nodiscard]] Status take_frame(const ControlSocket::Frame& frame);
  [[nodiscard]] Status let_go(Bytes payload);
  [[nodiscard]] std::uint64_t first_without(const wire::Withdrawal& withdrawal) const;
  [[nodiscard]] std::uint64_t oldest_under_way() const noexcept;
  [[nodiscard]] Status tell_withdrawn();
  void watch();

  ControlSocket socket_;
  TimeNs deadline_;  // until which the card's connection to the host has to be ready
  const WriteOrder order_;
  std::shared_ptr<CardDevice> device_;
  std::optional<BounceBuffer> bounce_;
  TimeNs refused_since_ = never;  // when the device had no memory for the next request
  CardLimits card_;
  bool open_ = false;  // the host has announced the channel segment
  bool halted_ = false;
  Fd events_fd_;  // an epoll of the socket and the card's descriptors
  Fd more_fd_;    // always readable; in the epoll while poll has events that no other descriptor announces
  bool room_watched_ = false, more_watched_ = false, more_ = false, again_ = false;

  LinkTraits traits_;
  SegmentLimits limits_;
  RegionTable regions_;
  std::vector<std::uint32_t> range_gone_;  // by number: the newest generation that the host withdrew
  ChannelBytes channel_;
  std::uint64_t channel_announced_ = 0;  // bytes of the channel segment's first announcement
  std::optional<Region> outside_;        // the rest of it, while the host has announced it
  std::uint64_t segment_bytes_;
  std::uint32_t segment_count_ = 1;
  std::deque<Leaving> leaving_;

  std::vector<std::unique_ptr<Operation>> operations_;  // all of them; idle ones are reused
  std::vector<Operation*> idle_;
  // Not completely posted; only the first of each lane has started. Writes have a lane of their own if the card keeps
  // no order.
  std::array<std::deque<Operation*>, 2> waiting_;
  Operation* writing_ = nullptr;  // if the card keeps no order: the write that the others wait for
  std::deque<Chain> chains_;      // posted, oldest first
  unsigned requests_under_way_ = 0;
  std::uint64_t next_number_ = 1;

  EventQueue events_;
  std::vector<Request> requests_;  // of the chain being built
  std::vector<OperationRegions::Piece> stretches_;
  std::vector<std::byte> scratch_;
  TimeNs next_look_ = 0, now_ = 0;
  unsigned polls_since_look_ = 0;
  bool woken_ = false, lost_ = false, told_ = false;
  std::vector<std::byte> requests_sent_;  // with the newest wake
  Failure why_{Error::closed, "the link was closed"};
};

}  // namespace offpath::link
