// The agent's end of a channel: looks at the host's ring, pulls, and writes replies and completion lines.
//
// A state machine over an AgentLink: it is polled with the time, passes requests and completions to its handler, and
// never blocks. If the link maps segments, a look is one load; otherwise operations of the link read and write ring,
// replies and completion lines. Belongs to one loop. agent/ has the parts that keep state of their own.
//
// The order of one poll, and why:
//   1. link events      completions free buffers and advance lines; a closed link ends everything else
//   2. ring             new requests, at most look_slots_max, so that one host cannot delay the others
//   3. one pull slice   512 KiB, so that a batch of 1 GiB does not delay the next look
//   4. lines, replies   all changes of the steps above, written together
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/full_ring.h"
#include "base/status.h"
#include "channel/agent/line_writer.h"
#include "channel/agent/transfers.h"
#include "channel/agent_end_options.h"
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
  // A channel that rested has to be polled again. Also called from outside of AgentEnd::poll.
  virtual void on_rest_ended(AgentEnd&) noexcept {}
  // `fd`: the descriptor, or the reason why it was refused.
  virtual void on_offer(AgentEnd& channel, std::uint64_t number, Result<Fd> fd, TimeNs now) = 0;
  // The channel's descriptors are about to be closed; their numbers may then be reused by other threads.
  virtual void on_closing(AgentEnd&) {}
  // The last call for this channel. Afterwards nothing is written to memory given to pull().
  virtual void on_closed(AgentEnd& channel, const Failure& why, TimeNs now) = 0;
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

  // ---- an owner of many channels polls those alone that do not rest
  // From now on end_rest() is called when a descriptor of the link is ready. Only then may the channel rest.
  void may_rest() noexcept { may_rest_ = true; }
  // Called after a poll that did nothing: falls asleep. True if nothing is left to do, so that no poll is needed before
  // AgentEvents::on_rest_ended, which follows when the link, the owner or a service has something for the channel. The
  // owner ends the rest at next_look_out().
  [[nodiscard]] bool rest(TimeNs now);
  void end_rest() noexcept {
    if (rests_) [[unlikely]] {
      rests_ = false;
      events_.on_rest_ended(*this);
    }
  }

  // How many bytes of pulls should be under way. On one machine a system call of this size is as efficient as a larger
  // one, and its buffers stay in the processor's cache.
  [[nodiscard]] std::uint64_t pull_ahead_bytes() const noexcept {
    return mapped_ != nullptr ? options_.gathered_bytes : options_.pulls_outstanding * transfers_.slice_bytes();
  }
  // While held, no requests are taken, and the program sees a full ring.
  void hold_requests(bool held) noexcept { held_ = held; }
  [[nodiscard]] bool holds_requests() const noexcept { return held_; }
  // The newest request is one after which no other is likely to follow soon: the channel sleeps without a pause.
  void set_background(bool background) noexcept { background_ = background; }
  [[nodiscard]] bool background() const noexcept { return background_; }
  // Pulls of one channel are served in order. The channel uses `pieces` until on_transfer.
  void pull(std::uint64_t token, std::vector<link::ReadPiece> pieces) {
    end_rest();
    transfers_.pull(token, std::move(pieces));
  }
  // A small read at once, beside the pulls. The memory stays until on_transfer.
  void fetch(std::uint64_t token, std::span<const link::ReadPiece> pieces) {
    end_rest();
    transfers_.fetch(token, pieces);
  }
  // Writes to segments of the host, before any later reply or line.
  void push(std::uint64_t token, const std::vector<link::WritePiece>& pieces) {
    end_rest();
    transfers_.push(token, pieces);
  }
  // Cancels the part that is not posted; on_transfer follows with Error::cancelled. Posted slices finish first.
  void cancel(std::uint64_t token) { transfers_.cancel(token); }

  void set_pulled(std::uint32_t stream, std::uint64_t ticket) noexcept {
    end_rest();
    lines_.set_pulled(stream, ticket);
  }
  void set_stored(std::uint32_t stream, std::uint64_t ticket) noexcept {
    end_rest();
    lines_.set_stored(stream, ticket);
  }
  void set_credit(std::uint32_t stream, std::uint64_t total) noexcept {
    end_rest();
    lines_.set_credit(stream, total);
  }
  void reset_line(std::uint32_t stream) noexcept {  // before a stream's number is reused
    end_rest();
    wakes_.forget(stream);
    lines_.reset(stream);
  }
  template <class Message>
  void reply(wire::ReplyKind kind, std::uint64_t ticket, const Message& message) {
    end_rest();
    scratch_.clear();
    encode(message, scratch_);  // found in namespace wire by argument-dependent lookup
    ++counters_.replies;
    answers_.add(kind, ticket, scratch_);
  }
  // `stream` is wire::any_reply if no stream is concerned.
  void reply_failure(std::uint64_t ticket, std::uint32_t stream, const Failure& failure);
  [[nodiscard]] Status hand_over(std::uint64_t ticket, int fd) { return link_->hand_over(ticket, fd); }

  // Ends the channel: on_closed follows in the next poll. The program gets errors, and any reason if `tells`.
  void close(Failure why, bool tells = false);
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
  bool finish_pulls(TimeNs now);
  [[nodiscard]] bool may_sleep_with_flush() const noexcept;
  bool flush(TimeNs now);
  [[nodiscard]] bool compose_replies();
  void ask_wake(const wire::WakeAt& wake) noexcept;
  bool pay_wake();
  void wake_up(TimeNs now);
  void rouse() noexcept;  // without work: idle_since_ stays
  [[nodiscard]] TimeNs idle_before_sleep_ns() const;
  void note_post(const Entry& entry, TimeNs now);
  void end(TimeNs now);

  std::uint64_t number_;
  std::string program_;
  std::unique_ptr<link::AgentLink> link_;
  wire::ChannelLayout layout_;
  AgentEvents& events_;
  AgentEndOptions options_;
  AgentEndCounters counters_;
  std::byte* mapped_;  // the channel segment if the link maps it

  EntryReader requests_;
  std::uint64_t tail_ = 0;        // request tail as last seen
  std::uint64_t reply_head_ = 0;  // as last seen
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

  CompletionLines lines_;
  OwedWakes wakes_;
  Answers answers_;
  LineWriter writer_;
  Transfers transfers_;
  std::array<link::LinkEvent, 8> events_taken_;

  Sleep sleep_ = Sleep::awake;
  TimeNs idle_since_ = 0;
  LookOut look_out_{nullptr};
  unsigned rounds_ = 0;
  std::vector<std::byte> scratch_;
  bool may_rest_ = false, rests_ = false;
  bool closed_ = false, closing_ = false, tells_ = false;
  Failure why_{Error::closed, "closed"};
};

}  // namespace offpath::channel
