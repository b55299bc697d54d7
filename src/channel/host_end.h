// The host's end of a channel. Posting takes a few stores to the program's own memory; everything else is read from
// memory that the agent writes.
//
// Thread-safe: every public call takes the channel's lock; waiting releases it. A forked child gets Error::forked from
// every call. The calls join the parts in host/, which have the state.
//
// Read this first in src/channel, then host/channel_words.h (the parts) and agent_end.h, and for the details of each
// ring.h (entries), reply.h, rhythm.h and look_out.h (when the agent looks). wire/channel_layout.h, which both ends
// share, comes before all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "base/clock.h"
#include "base/status.h"
#include "channel/host/announced_memory.h"
#include "channel/host/announcements.h"
#include "channel/host/channel_clock.h"
#include "channel/host/channel_life.h"
#include "channel/host/channel_words.h"
#include "channel/host/event_descriptor.h"
#include "channel/host/host_posts.h"
#include "channel/host/host_streams.h"
#include "channel/host/host_waits.h"
#include "channel/host/replies.h"
#include "channel/host/request_ring.h"
#include "channel/host/sleep_turns.h"
#include "channel/host/wake_requests.h"
#include "channel/reply.h"
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
  using Clock = ChannelClock::Read;

  HostEnd(std::unique_ptr<link::HostLink> link, const wire::ChannelLayout& layout, Clock clock = nullptr,
          void* clock_context = nullptr);
  ~HostEnd();

  // ---- memory
  using RangeName = channel::RangeName;
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
  // Memory for requests outside of the rings, if none was posted there since `before`: the link may keep less of it
  // pinned until the next one.
  void withdraw_outside(TimeNs before);

  // The channel's lock, held while memory is named and requests that use it are posted: one lock for a batch.
  class Posting {
   private:
    friend class HostEnd;
    explicit Posting(std::mutex& mutex) : lock(mutex) {}
    std::unique_lock<std::mutex> lock;
  };
  [[nodiscard]] Posting begin() { return Posting(mutex_); }
  // Grows whenever an issued name may have become invalid.
  [[nodiscard]] std::uint64_t memory_epoch(Posting&) const noexcept { return memory_.epoch(); }
  // Bytes of buffer sets that the agent remembers for this channel (wire::sets_bytes_max), counted as the agent counts
  // them.
  [[nodiscard]] std::uint64_t& sets_bytes(Posting&) noexcept { return sets_bytes_; }
  // Announces that a request of about that many bytes is being composed.
  void expect(Posting&, std::uint64_t payload_bytes) const noexcept { requests_.expect(payload_bytes); }

  // Names [address, address + length) as part of announced memory or of a segment; Error::unannounced if it is in
  // neither. `hint` remembers the range of the caller's last answer, so that the same column costs one compare.
  [[nodiscard]] Result<BufferRef> name_memory(Posting&, const void* address, std::uint64_t length,
                                              std::uint32_t& hint) const {
    return memory_.name(address, length, hint);
  }
  // The same if `hint` still holds, at the cost of a few compares; false otherwise. Fills everything in `name` except
  // stride and bits.
  [[nodiscard]] bool name_again(Posting&, const void* address, std::uint64_t length, std::uint32_t hint,
                                BufferRef& name) const noexcept {
    return memory_.name_again(address, length, hint, name);
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
                                                std::span<const RangeName> uses, TimeNs deadline) {
    return posts_.post_data(posting.lock, kind, stream, payload, charge, bytes, uses, deadline);
  }
  // A post_data that waited has failed: other streams may have the credit that it asked for, unless other threads wait
  // for this stream's.
  void give_up_credit(Posting&, std::uint32_t stream) {
    if (!life_.is_lost()) streams_.give_up_credit(stream);
  }
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
  // Asks for a wake when the agent has emptied the ring.
  void arm_room();
  // Before a sleep on event_fd(): asks for a wake at the next reply. False: one has arrived already.
  [[nodiscard]] bool arm_replies();

  [[nodiscard]] std::uint64_t pulled(std::uint32_t stream) const noexcept { return words_.pulled(stream); }
  [[nodiscard]] std::uint64_t stored(std::uint32_t stream) const noexcept { return words_.stored(stream); }
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
  [[nodiscard]] TimeNs now() const { return clock_.now(); }
  // Then time passes only in sleeps: waits do not spin.
  [[nodiscard]] bool in_virtual_time() const noexcept { return clock_.is_virtual(); }
  // Waits for the leases (at most `wait_ns`), then closes the channel and frees everything.
  void close(TimeNs wait_ns);

 private:
  using Lock = std::unique_lock<std::mutex>;

  mutable std::mutex mutex_;
  std::unique_ptr<link::HostLink> link_;
  // Each of these uses those before it.
  ChannelClock clock_;
  ChannelWords words_;
  EventDescriptor events_;
  SleepTurns turns_;
  ChannelLife life_;
  RequestRing requests_;
  Replies replies_;
  WakeRequests wakes_;
  HostStreams streams_;
  AnnouncedMemory memory_;
  HostWaits waits_;
  HostPosts posts_;
  Announcements announcements_;
  std::uint64_t sets_bytes_ = 0;
  std::uint64_t offers_ = 0;
};

}  // namespace offpath::channel
