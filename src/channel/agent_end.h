// The agent's end of a channel: looks at the host's ring, pulls, and writes what it owes.
//
// A state machine over an AgentLink: it is polled with the time, passes requests and completions to its handler, and
// never blocks. If the link maps segments, a look is one load; otherwise operations of the link read and write ring,
// replies and completion lines. Belongs to one loop.
//
// The order of one poll, and why:
//   1. link events      completions free buffers and advance lines; a closed link ends everything else
//   2. ring             new requests, at most look_slots_max, so that one host cannot delay the others
//   3. one pull slice   512 KiB, so that a batch of 1 GiB does not delay the next look
//   4. lines, replies   all changes of the steps above, written together
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/full_ring.h"
#include "base/queue.h"
#include "base/status.h"
#include "channel/look_out.h"
#include "channel/ring.h"
#include "link/link.h"
#include "wire/channel_layout.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"
#include "wire/messages/stream_messages.h"

namespace offpath::channel {

class AgentEnd;

// A channel's calls to its owner, made from within AgentEnd::poll.
class AgentEvents {
 public:
  virtual ~AgentEvents() = default;
  // Whether the request's kind exists. A failure ends the channel.
  [[nodiscard]] virtual Status check(const Entry&) const { return {}; }
  // Every request except those that the channel serves itself (ranges, wakes, probes).
  virtual void on_request(AgentEnd& channel, const Entry& request, TimeNs now) = 0;
  // A pull or push ended. A pull succeeds only if the host was alive after it.
  virtual void on_transfer(AgentEnd& channel, std::uint64_t token, Status status, TimeNs now) = 0;
  // `fd`: the descriptor, or the reason why it was refused.
  virtual void on_offer(AgentEnd& channel, std::uint64_t number, Result<Fd> fd, TimeNs now) = 0;
  // The channel's descriptors are about to be closed; their numbers may then be reused by other threads.
  virtual void on_closing(AgentEnd&) {}
  // The last call for this channel. Afterwards nothing is written to memory given to pull().
  virtual void on_closed(AgentEnd& channel, const Failure& why, TimeNs now) = 0;
};

struct AgentEndOptions {
  std::uint64_t pull_slice_bytes = 512 * 1024;
  std::uint64_t asked_slice_bytes = 2 * 1024 * 1024;  // the same if the host has to answer each slice
  std::uint64_t gathered_bytes = 256 * 1024;          // of small pulls that are posted together on one machine
  unsigned pulls_outstanding = 8;                     // slices outstanding if the link completes later
  unsigned look_slots_max = 256;
  TimeNs idle_before_sleep_ns = millisecond_ns;
  unsigned look_out_percent = 5;      // the share of a core for looking out for posts, of all channels together
  LookBudget* look_budget = nullptr;  // null: it never looks out
  // Read after slow work within a poll; null: a poll takes no time, as in a simulation.
  TimeNs (*clock)() = nullptr;
};

struct AgentEndCounters {
  std::uint64_t requests = 0, replies = 0, pulls = 0, pushes = 0, bytes_pulled = 0, bytes_pushed = 0;
  std::uint64_t looks = 0, wakes_sent = 0, sleeps = 0, failures = 0;
  std::uint64_t misses = 0;  // requests whose object was not there, or not in time, or no longer wanted: no failures
};

// Whether the answer only says that an object is not there, has not come in time, or is no longer wanted. A get that
// waits, or that is repeated until its object comes, has not failed. Requests of streams have.
[[nodiscard]] constexpr bool is_miss(std::uint32_t stream, Error code) noexcept {
  return stream == wire::any_reply && (code == Error::not_found || code == Error::timeout || code == Error::cancelled);
}

class AgentEnd {
 public:
  AgentEnd(std::uint64_t number, std::string program, std::unique_ptr<link::AgentLink> link,
           const wire::ChannelLayout& layout, AgentEvents& events, const AgentEndOptions& options = {});
  ~AgentEnd();

  // True if it did work: poll again soon.
  bool poll(TimeNs now);

  // Called when polls have found nothing for idle_before_sleep_ns. Sets the asleep flag and looks once more; true when
  // it is safe to sleep on descriptors(). The next poll() ends the sleep.
  [[nodiscard]] bool fall_asleep(TimeNs now);
  [[nodiscard]] bool asleep() const noexcept { return sleep_ == Sleep::asleep; }
  [[nodiscard]] TimeNs idle_since() const noexcept { return idle_since_; }
  // The earliest time at which poll() has to be called even without an event: a post is expected soon.
  [[nodiscard]] TimeNs next_look_out() const noexcept { return closed_ ? never : look_out_.next(); }

  // How many bytes of pulls should be under way. On one machine a system call of this size is as efficient as a larger
  // one, and its buffers stay in the processor's cache.
  [[nodiscard]] std::uint64_t pull_ahead_bytes() const noexcept {
    return mapped_ != nullptr ? options_.gathered_bytes : options_.pulls_outstanding * slice_bytes_;
  }
  // While held, no requests are taken, and the program sees a full ring.
  void hold_requests(bool held) noexcept { held_ = held; }
  [[nodiscard]] bool holds_requests() const noexcept { return held_; }
  // The newest request is one after which no other is likely to follow soon: the channel sleeps without a pause.
  void set_background(bool background) noexcept { background_ = background; }
  [[nodiscard]] bool background() const noexcept { return background_; }
  // Pulls of one channel are served in order. The channel uses `pieces` until on_transfer.
  void pull(std::uint64_t token, std::vector<link::ReadPiece> pieces);
  // A small read at once, beside the pulls. The memory stays until on_transfer.
  void fetch(std::uint64_t token, std::span<const link::ReadPiece> pieces);
  // Writes to segments of the host, before any later reply or line.
  void push(std::uint64_t token, std::vector<link::WritePiece> pieces);
  // Cancels the part that is not posted; on_transfer follows with Error::cancelled. Posted slices finish first.
  void cancel(std::uint64_t token);

  void set_pulled(std::uint32_t stream, std::uint64_t ticket) noexcept;
  void set_stored(std::uint32_t stream, std::uint64_t ticket) noexcept;
  void set_credit(std::uint32_t stream, std::uint64_t total) noexcept;
  void reset_line(std::uint32_t stream) noexcept;  // before a stream's number is reused
  template <class Message>
  void reply(wire::ReplyKind kind, std::uint64_t ticket, const Message& message) {
    scratch_.clear();
    encode(message, scratch_);  // found in namespace wire by argument-dependent lookup
    reply_bytes(kind, ticket, scratch_);
  }
  // `stream` is wire::any_reply if no stream is concerned.
  void reply_failure(std::uint64_t ticket, std::uint32_t stream, const Failure& failure);
  [[nodiscard]] Status hand_over(std::uint64_t ticket, int fd) { return link_->hand_over(ticket, fd); }

  // Ends the channel: on_closed follows in the next poll.
  void close(Failure why);
  [[nodiscard]] bool closed() const noexcept { return closed_; }

  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  [[nodiscard]] const std::string& program() const noexcept { return program_; }
  [[nodiscard]] const link::LinkTraits& traits() const { return link_->traits(); }
  [[nodiscard]] link::AgentLink& link() noexcept { return *link_; }
  [[nodiscard]] const link::AgentLink& link() const noexcept { return *link_; }
  [[nodiscard]] const wire::ChannelLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] const AgentEndCounters& counters() const noexcept { return counters_; }
  // As of the last look. The program can only lie about its own ring: a tail that cannot be ends the channel.
  [[nodiscard]] const FullRing& requests_full() const noexcept { return requests_full_; }
  [[nodiscard]] const FullRing& replies_full() const noexcept { return replies_full_; }
  // Why no requests are taken.
  [[nodiscard]] std::string_view why_requests_wait() const noexcept;

 private:
  enum class Sleep { awake, falling, looking, asleep };

  struct Pull {
    std::uint64_t number;  // numbers the channel's pulls
    std::uint64_t token;
    std::vector<link::ReadPiece> pieces;
    std::size_t piece = 0;     // the next one to post
    std::uint64_t offset = 0;  // within it
    unsigned outstanding = 0;  // slices posted
    bool all_posted = false;
    Status status;
  };
  static constexpr std::uint64_t nobody = ~0ull;  // no word reaches this value: no wake is due
  struct Line {
    wire::CompletionLine words{};    // as set
    wire::CompletionLine written{};  // as the program may see them
    std::size_t failures = 0;        // of the stream, among the answers
    bool dirty = false;
    // The smallest values at which the program asked to be woken: of pulled, stored, credit.
    std::array<std::uint64_t, 3> wake_at{nobody, nobody, nobody};
  };
  struct Answer {
    wire::ReplyKind kind;
    std::uint64_t ticket;
    std::vector<std::byte> payload;
    std::uint32_t failed_stream = wire::any_reply;  // whose operation this says has failed
  };

  [[nodiscard]] TimeNs time(TimeNs now) const { return options_.clock != nullptr ? options_.clock() : now; }
  bool take_link_events(TimeNs now);
  bool take_completion(std::uint64_t token, Status status, TimeNs now);
  bool look(TimeNs now);
  bool look_mapped(TimeNs now);
  [[nodiscard]] std::byte* next_slot() const noexcept;
  void prefetch_slots() const noexcept;
  [[nodiscard]] bool saturated() const noexcept;
  // The position up to which requests were copied out of the program's memory.
  [[nodiscard]] std::uint64_t request_head() const noexcept { return requests_.position() - (fetching_ ? 1 : 0); }
  void note_requests(std::uint64_t tail, TimeNs now) noexcept;
  void post_look();
  bool finish_look(Status status, TimeNs now);
  bool take_sent(Bytes requests, TimeNs now);
  struct Looked {
    std::uint64_t position, certain;  // of the first slot; slots below `certain` are whole
    std::uint64_t tail, reply_head;
    Bytes slots;
  };
  bool take_looked(const Looked& looked, TimeNs now);
  [[nodiscard]] Status check_tail(std::uint64_t tail) const;
  bool take_slot(const wire::Slot& slot, TimeNs now);
  [[nodiscard]] Status take_outside(const Entry& entry, TimeNs now);
  [[nodiscard]] Status serve_outside(TimeNs now);
  [[nodiscard]] Status serve(const Entry& entry, TimeNs now);
  bool post_slices(std::uint64_t& budget);
  std::uint64_t post_slice(Pull& pull, std::uint64_t bytes_max);
  bool finish_pulls(TimeNs now);
  [[nodiscard]] bool may_sleep_with_flush() const noexcept;
  bool flush(TimeNs now);
  const wire::CompletionLine& publish(std::uint32_t stream) noexcept;
  void flush_mapped();
  void flush_remote();
  bool compose_replies();
  void reply_bytes(wire::ReplyKind kind, std::uint64_t ticket, Bytes payload);
  void ask_wake(const wire::WakeAt& wake) noexcept;
  void settle_wakes(Line& line) noexcept;
  bool pay_wake();
  void wake_up(TimeNs now);
  void rouse() noexcept;  // without work: idle_since_ stays
  [[nodiscard]] TimeNs idle_before_sleep_ns() const;
  void note_post(const Entry& entry, TimeNs now);
  void end(TimeNs now);
  Line& line(std::uint32_t stream) noexcept;

  std::uint64_t number_;
  std::string program_;
  std::unique_ptr<link::AgentLink> link_;
  wire::ChannelLayout layout_;
  AgentEvents& events_;
  AgentEndOptions options_;
  std::byte* mapped_ = nullptr;  // the channel segment if the link maps it
  std::uint64_t slice_bytes_;

  EntryReader requests_;
  std::uint64_t tail_ = 0;          // request tail as last seen
  std::uint64_t reply_head_ = 0;    // as last seen
  std::uint64_t head_written_ = 0;  // request head that the host knows
  FullRing requests_full_, replies_full_;
  bool held_ = false, background_ = false;
  bool looking_ = false;  // a look over the link is under way
  bool look_again_ = false;
  std::uint64_t look_position_ = 0, look_slots_ = 0, look_tail_before_ = 0;
  std::vector<std::byte> look_buffer_;  // tail line, then slots
  // The newest request whose payload is stored outside of the ring. While it is fetched, which takes a separate read if
  // the segment is not mapped, no later request is taken and its slot is not released.
  Entry outside_;
  std::uint32_t outside_crc32c_ = 0;
  std::vector<std::byte> outside_payload_;
  bool fetching_ = false;

  RingWriter replies_;
  // Where replies are composed if the reply ring is not mapped. Not initialised: a page takes memory when a reply is
  // written to it, and slots are written whole before they are sent.
  std::unique_ptr<std::byte[]> reply_mirror_;
  std::uint64_t reply_written_ = 0;  // position that the host knows
  Queue<Answer> answers_;            // waiting for room in the reply ring
  std::uint64_t answer_slots_ = 0;   // slots of the first of them that are already written
  std::vector<Line> lines_;
  std::vector<std::uint32_t> dirty_;
  std::vector<std::byte> flush_buffer_;  // source of a remote flush, until it has completed
  unsigned flushing_ = 0;                // writes of it under way
  // A program asks for one wake of each word, at the smallest value that any of its threads waits for, and then for the
  // next one.
  std::uint64_t wake_beyond_ = nobody;  // of the reply ring: a position
  bool wake_now_ = false;
  bool wake_owed_ = false;     // its cause is written, or the write is under way
  std::uint64_t full_at_ = 0;  // the reply ring's position when its reader was last woken because the ring was full

  std::list<Pull> pulls_;  // they are large
  std::uint64_t next_pull_ = 0;
  unsigned slices_outstanding_ = 0;
  Queue<std::pair<std::uint64_t, std::uint64_t>> pushes_;  // {number, token}; and of reads by fetch()
  std::uint64_t next_push_ = 0;
  std::vector<link::ReadPiece> slice_;  // these two are reused
  std::array<link::LinkEvent, 8> events_taken_;

  Sleep sleep_ = Sleep::awake;
  bool agent_line_dirty_ = false;
  TimeNs idle_since_ = 0;
  LookOut look_out_{nullptr};
  unsigned rounds_ = 0;
  std::vector<std::byte> scratch_;
  AgentEndCounters counters_;
  bool closed_ = false, closing_ = false;
  Failure why_{Error::closed, "closed"};
};

}  // namespace offpath::channel
