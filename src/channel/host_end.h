// The host's end of a channel. Posting takes a few stores to the program's own memory; everything else is read from
// memory that the agent writes.
//
// Thread-safe: every public call takes the channel's lock; waiting releases it. A forked child gets Error::forked from
// every call.
//
// Read this first in src/channel, then agent_end.h, and for the details of each ring.h (entries), leases.h (memory in
// use), reply.h, rhythm.h and look_out.h (when the agent looks). wire/channel_layout.h, which both ends share, comes
// before all of them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/queue.h"
#include "base/status.h"
#include "channel/event_descriptor.h"
#include "channel/fork_mark.h"
#include "channel/leases.h"
#include "channel/reply.h"
#include "channel/ring.h"
#include "link/link.h"
#include "wire/channel_layout.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"
#include "wire/messages/stream_messages.h"
#include "wire/region.h"

namespace offpath::channel {

using wire::BufferRef;
using wire::RegionId;

struct HostCounters {
  std::uint64_t posted = 0;
  std::uint64_t bytes_posted = 0;
  std::uint64_t failed = 0;
  std::uint64_t wakes_sent = 0;
  std::uint64_t pulled = 0;  // the newest ticket of any open stream
  std::uint64_t sleeps = 0;  // of waiting threads
};

class HostEnd {
 public:
  // The clock is monotonic_ns, or virtual time in a simulation.
  using Clock = TimeNs (*)(void* context);

  HostEnd(std::unique_ptr<link::HostLink> link, const wire::ChannelLayout& layout, Clock clock = nullptr,
          void* clock_context = nullptr);
  ~HostEnd();

  // ---- memory
  struct RangeName {
    RegionId region;
    std::uint32_t generation;
  };
  [[nodiscard]] Result<RangeName> announce(const void* base, std::uint64_t length);
  // Keeps the number with the next generation; unpulled requests with the old name fail as stale.
  [[nodiscard]] Result<RangeName> reannounce(RangeName range, const void* base, std::uint64_t length);
  // Waits until no posted request uses the range.
  [[nodiscard]] Status retire(RangeName range, TimeNs deadline);
  // For callers that may not wait, such as an agent's loop. No posted request may use the range any more. Its memory
  // has to stay until is_withdrawn returns true or the channel is closed; the event descriptor tells when to look.
  [[nodiscard]] Status withdraw(RangeName range);
  [[nodiscard]] bool is_withdrawn(RangeName range);
  // No posted request uses the range: retire would not wait.
  [[nodiscard]] bool idle(RangeName range);

  [[nodiscard]] Result<RegionId> allocate(std::uint64_t length, TimeNs deadline);
  // A segment of memory that was mapped elsewhere, as a multiple of pages. Not over a Unix socket, which needs a memfd.
  [[nodiscard]] Result<RegionId> adopt(link::SegmentMemory memory, TimeNs deadline);
  [[nodiscard]] MutableBytes segment(RegionId region);
  [[nodiscard]] int segment_fd(RegionId region);  // its memfd; -1: none
  void free(RegionId region);

  // The channel's lock, held while memory is named and requests that use it are posted: one lock for a batch.
  class Posting {
   private:
    friend class HostEnd;
    explicit Posting(std::mutex& mutex) : lock(mutex) {}
    std::unique_lock<std::mutex> lock;
  };
  [[nodiscard]] Posting begin() { return Posting(mutex_); }
  // Grows whenever an issued name may have become invalid.
  [[nodiscard]] std::uint64_t memory_epoch(Posting&) const noexcept { return memory_epoch_; }
  // Bytes of buffer sets that the agent remembers for this channel (wire::sets_bytes_max), counted as the agent counts
  // them.
  [[nodiscard]] std::uint64_t& sets_bytes(Posting&) noexcept { return sets_bytes_; }
  // Announces that a request of about that many bytes is being composed.
  void expect(Posting&, std::uint64_t payload_bytes) const noexcept;

  // Names [address, address + length) as part of announced memory or of a segment; Error::unannounced if it is in
  // neither. `hint` remembers the range of the caller's last answer, so that the same column costs one compare.
  [[nodiscard]] Result<BufferRef> name_memory(Posting& posting, const void* address, std::uint64_t length,
                                              std::uint32_t& hint);
  // The same if `hint` still holds, at the cost of a few compares; false otherwise. Fills everything in `name` except
  // stride and bits.
  [[nodiscard]] bool name_again(Posting&, const void* address, std::uint64_t length, std::uint32_t hint,
                                BufferRef& name) const noexcept {
    const auto& table = wire::is_segment(hint) ? segments_ : ranges_;
    const std::uint32_t index = hint & ~wire::segment_flag;
    if (index >= table.size()) return false;
    const Region& region = table[index];
    const std::uint64_t offset =
        reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(region.base);
    // An offset before the base wraps to a very large one; a missing region has length 0 or is not live.
    if (!region.live || offset > region.length || length > region.length - offset) return false;
    name = {.region = hint, .generation = region.generation, .offset = offset, .length = length};
    return true;
  }
  // As name_memory; announces exactly [address, address + length) if it is not announced. With a deadline of 0 it never
  // waits (Error::would_block); otherwise it waits for ring space.
  [[nodiscard]] Result<BufferRef> name_or_announce(Posting& posting, const void* address, std::uint64_t length,
                                                   std::uint32_t& hint, TimeNs deadline);

  // ---- streams
  // Opens with the next free number and sets `open.stream`. Waits for the answer.
  [[nodiscard]] Result<wire::Opened> open_stream(wire::OpenStream& open, TimeNs deadline);
  [[nodiscard]] Status close_stream(std::uint32_t stream, TimeNs deadline);

  // Posts a request with data of a stream: takes `charge` of its credit, and leases the memory in `uses` (each region
  // once, see find_uses) until it is pulled. With a deadline of 0 it never waits (Error::would_block); otherwise it
  // waits for ring space and credit.
  [[nodiscard]] Result<std::uint64_t> post_data(Posting& posting, wire::EntryKind kind, std::uint32_t stream,
                                                Bytes payload, std::uint64_t charge, std::uint64_t bytes,
                                                std::span<const RangeName> uses, TimeNs deadline);
  // A post_data that waited has failed: other streams may have the credit that it asked for, unless other threads wait
  // for this stream's.
  void give_up_credit(Posting&, std::uint32_t stream);
  // Posts a request without data.
  [[nodiscard]] Result<std::uint64_t> post(wire::EntryKind kind, Bytes payload, TimeNs deadline);
  // Posts, and waits for the reply. A `failed` reply becomes the failure.
  [[nodiscard]] Result<Reply> call(wire::EntryKind kind, Bytes payload, TimeNs deadline);

  // For callers that do not wait for the answer, such as an agent that asks another one. `ask` posts, or returns
  // Error::would_block if there is no room before the deadline. The reply is available after take_in() (which only
  // looks at memory) or poll(), until it is taken or forgotten.
  [[nodiscard]] Result<std::uint64_t> ask(wire::EntryKind kind, Bytes payload, TimeNs deadline = 0);
  // The same, but where the agent maps the ring this does not wake it: an agent that sleeps takes the request when
  // something else wakes it.
  [[nodiscard]] Result<std::uint64_t> ask_without_wake(wire::EntryKind kind, Bytes payload, TimeNs deadline = 0);
  // One of `tickets` whose reply has arrived. Waits for it, but returns none at the next other reply, since the caller
  // may then wait for more tickets, or at the deadline.
  [[nodiscard]] Result<std::optional<std::uint64_t>> wait_reply(std::span<const std::uint64_t> tickets,
                                                                TimeNs deadline);
  [[nodiscard]] Status take_in();
  [[nodiscard]] std::optional<Reply> take_reply(std::uint64_t ticket);
  void forget(std::uint64_t ticket);
  // Whether a request of about that many bytes, and one that names or withdraws memory, would not have to wait.
  [[nodiscard]] bool has_room(std::uint64_t payload_bytes);
  // Waits until there is room for a request of that size, the next reply, or the deadline.
  [[nodiscard]] Status wait_room(std::uint64_t payload_bytes, TimeNs deadline);
  // Asks for a wake when the agent has taken what is in the ring.
  void arm_room();
  // Before a sleep on event_fd(): asks for a wake at the next reply. False: one has arrived already.
  [[nodiscard]] bool arm_replies();

  [[nodiscard]] std::uint64_t pulled(std::uint32_t stream) const noexcept;
  [[nodiscard]] std::uint64_t stored(std::uint32_t stream) const noexcept;
  [[nodiscard]] std::uint64_t credit_left(std::uint32_t stream) const;
  // Returns the ticket's failure if it failed; fails at the deadline, or when the agent is gone.
  [[nodiscard]] Status wait(std::uint32_t stream, std::uint64_t ticket, Progress progress, TimeNs deadline);
  // Asks for a wake without waiting.
  [[nodiscard]] Status arm(std::uint32_t stream, std::uint64_t ticket, Progress progress);

  // Takes in replies and notices a lost agent. Never blocks.
  [[nodiscard]] Status poll();
  // The same for a thread that looks by itself: it also notifies pollers of the event descriptor.
  [[nodiscard]] Status poll_beside();
  [[nodiscard]] int event_fd() const { return events_.fd(); }
  [[nodiscard]] Result<Fd> take_descriptor(std::uint64_t ticket, TimeNs deadline);
  [[nodiscard]] Result<std::uint64_t> offer(int fd);  // its number, for use in a request

  [[nodiscard]] const link::LinkTraits& traits() const { return link_->traits(); }
  [[nodiscard]] const wire::Welcome& welcome() const { return link_->welcome(); }
  [[nodiscard]] HostCounters counters() const;
  [[nodiscard]] TimeNs now() const;
  // Then time passes only in sleeps: waits do not spin.
  [[nodiscard]] bool in_virtual_time() const noexcept { return clock_ != nullptr; }
  // Waits for the leases (at most `wait_ns`), then tells the agent and frees everything.
  void close(TimeNs wait_ns);

 private:
  static constexpr std::uint64_t nobody = ~0ull;  // no word reaches this value: no wake is requested
  struct Region {
    bool live = false;
    bool leaving = false;  // the agent has not confirmed its end: its number is not reused
    std::uint32_t generation = 0;
    const std::byte* base = nullptr;
    std::uint64_t length = 0;
    Leases leases;
    link::SegmentMemory memory;
  };
  struct Stream {
    bool open = false;
    std::uint64_t charged = 0;      // sum of charges
    std::uint64_t credit_seen = 0;  // the line's word at the last look; it only grows
    std::uint64_t last_ticket = 0;  // of its newest data request
    std::uint64_t credit_asked = 0;
    unsigned credit_waiters = 0;                                   // threads
    std::array<std::uint64_t, 3> wake_at{nobody, nobody, nobody};  // of pulled, stored, credit, as asked of the agent
  };
  using Lock = std::unique_lock<std::mutex>;

  [[nodiscard]] Status usable();
  [[nodiscard]] std::uint64_t line_word(std::uint32_t stream, std::size_t word) const noexcept;
  [[nodiscard]] std::uint64_t progress_of(std::uint32_t stream, Progress progress) const noexcept;
  [[nodiscard]] std::uint64_t request_head() const noexcept;
  [[nodiscard]] bool outside(std::uint64_t payload_bytes) const noexcept {
    return payload_bytes > wire::entry_slots_max(layout_.request_slots) * wire::slot_payload_bytes;
  }
  [[nodiscard]] std::uint64_t publish(wire::EntryKind kind, Bytes payload);
  [[nodiscard]] std::uint64_t write_request(wire::EntryKind kind, Bytes payload, bool alone);
  void wake_agent();
  [[nodiscard]] bool fits(std::uint64_t payload_bytes, std::uint64_t spare) const noexcept;
  [[nodiscard]] std::uint64_t word_of(std::uint32_t stream, wire::WakeWord word) const noexcept;
  void ask_wake(std::uint32_t stream, wire::WakeWord word, std::uint64_t value);
  void ask_room_wake();
  void ask_replies_wake() { ask_wake(0, wire::WakeWord::replies, replies_.position() + 1); }
  void ask_armed();
  [[nodiscard]] Status look();
  [[nodiscard]] Status make_room(Lock& lock, std::uint64_t payload_bytes, TimeNs deadline);
  [[nodiscard]] Result<std::uint64_t> post_locked(Lock& lock, wire::EntryKind kind, Bytes payload, TimeNs deadline);
  [[nodiscard]] Status wait_locked(Lock& lock, std::uint32_t stream, std::uint64_t ticket, Progress progress,
                                   TimeNs deadline);
  [[nodiscard]] Status make_credit(Lock& lock, std::uint32_t stream, std::uint64_t charge, TimeNs deadline);
  [[nodiscard]] Status sleep(Lock& lock, TimeNs deadline);
  void follow(Lock& lock, TimeNs deadline);
  void next_turn() noexcept;
  [[nodiscard]] Status look_beside(bool tells);
  static void spin(Lock& lock, TimeNs since, TimeNs time);
  template <class There>
  [[nodiscard]] Status await_replies(Lock& lock, TimeNs deadline, const There& there);
  [[nodiscard]] Status drain_replies();
  [[nodiscard]] Status take_failure(std::uint64_t ticket);
  [[nodiscard]] std::vector<Region>& regions(RegionId id) noexcept {
    return wire::is_segment(id) ? segments_ : ranges_;
  }
  [[nodiscard]] Region* find(RegionId id) noexcept;
  [[nodiscard]] Status check_announced(RangeName range);
  [[nodiscard]] Result<RegionId> announce_segment(link::SegmentMemory memory, TimeNs deadline);
  [[nodiscard]] Result<RangeName> announce_locked(Lock& lock, RegionId id, const void* base, std::uint64_t length,
                                                  TimeNs deadline);
  [[nodiscard]] Result<RangeName> announce_new(Lock& lock, const void* base, std::uint64_t length, TimeNs deadline);
  [[nodiscard]] static RegionId unused(std::vector<Region>& regions, RegionId flag);
  void index(RegionId id);
  void unindex(RegionId id);
  [[nodiscard]] const Region* covering(std::uintptr_t address, std::uint64_t length,
                                       std::uint32_t& hint) const noexcept;
  void take_back(RegionId id);
  [[nodiscard]] Status tell_retired(Lock& lock, RangeName range);
  [[nodiscard]] Status wait_idle(Lock& lock, RegionId id, TimeNs deadline);
  [[nodiscard]] Status lose(Failure why);

  mutable std::mutex mutex_;
  // Of the sleeping threads one (the leader) waits on the link; the others wait for it. Otherwise one thread could take
  // the wake of another.
  std::atomic<std::uint32_t> turns_ = 0;  // grows after each look at the link; the other threads sleep on it
  unsigned followers_ = 0;                // threads that sleep on it, or are about to
  bool leader_ = false;
  ForkMark fork_mark_;
  std::unique_ptr<link::HostLink> link_;
  EventDescriptor events_;
  bool watched_ = false;  // the poller of events_ asked for a wake
  wire::ChannelLayout layout_;
  Clock clock_;
  void* clock_context_;
  std::byte* memory_;  // the channel segment
  RingWriter requests_;
  // The agent's head at the last look: its cache line is the agent's and expensive to read.
  mutable std::uint64_t head_seen_ = 0;
  std::uint64_t sent_until_ = 0;   // the ring's tail when requests were last sent with a wake
  std::uint64_t outside_end_ = 0;  // the position after the newest request whose payload is stored outside of the ring
  EntryReader replies_;
  std::uint64_t ticket_ = 0;
  std::vector<Region> ranges_, segments_;
  std::uint64_t memory_epoch_ = 1;
  std::uint64_t sets_bytes_ = 0;
  std::vector<RegionId> by_address_;  // live ranges and segments, ordered by base
  std::vector<Stream> streams_;
  std::vector<std::byte> scratch_;
  std::unordered_map<std::uint64_t, std::optional<Reply>> awaited_;  // tickets of calls and of ask()
  // The wakes that the agent owes: at most one for each word, at the smallest value that any thread waits for (the
  // others are in Stream::wake_at). Until the word reaches that value the wake is still to come, and only a smaller
  // value has to be requested.
  std::uint64_t replies_wake_at_ = nobody,
                room_wake_at_ = 0;  // positions; of room: the one after the request for it
  std::set<std::tuple<std::uint32_t, wire::WakeWord, std::uint64_t>> armed_;  // requested by arm(), and still to come
  std::unordered_map<std::uint64_t, Failure> failures_;                       // of data requests, until queried
  Queue<std::uint64_t> failures_order_;
  std::uint64_t offers_ = 0;
  HostCounters counters_;
  std::optional<Failure> lost_;
  bool closed_ = false;
};

// The regions of buffers, each once. Buffers without bytes use none.
void find_uses(std::span<const BufferRef> buffers, std::vector<HostEnd::RangeName>& uses);

}  // namespace offpath::channel
