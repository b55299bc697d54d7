// The link: ways to the other side's memory. Read this first, then handshake/handshake.h (how a link is made),
// local/local_agent_link.h and stream/stream_agent_link.h; for cards card/card_agent_link.h, verbs/verbs_link.h and
// doca/doca_link.h.
//
// A link has two ends. The host's end offers memory: it allocates segments and permits reads of ranges. The agent's end
// accesses it: it reads from ranges and segments, and writes only to segments. The host's end has no operation that
// reaches the agent's memory.
//
// | link          | segments                    | ranges               | proof of life       |
// |---------------|-----------------------------|----------------------|---------------------|
// | local_link    | sealed memfds, mapped twice | process_vm_readv     | pidfd and socket    |
// | stream_link   | framed reads and writes     | framed reads         | socket              |
// | verbs_link    | RDMA READ and WRITE         | RDMA READ            | queue pair, socket  |
// | doca_link     | the card's DMA over PCIe    | same                 | socket              |
// | loopback_link | same process, virtual time  | same                 | the test decides    |
//
// Neither end starts a thread, except the host's end of stream_link, whose memory a thread serves.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/received_fds.h"
#include "base/status.h"
#include "wire/control.h"
#include "wire/region.h"

namespace offpath::link {

using wire::RegionId;

struct LinkTraits {
  std::string name;        // "local", "tcp", "verbs", "doca", "loopback"
  bool one_sided = false;  // transfers do not use the host's processor
  bool staged = false;     // ranges cannot be read: the host copies through segments
  unsigned host_threads = 0;
  std::string reason;    // a sentence that gives the reasons for these values
  bool ordered = false;  // reads and writes take effect in the order of posting, and so do the pieces of a write
  bool mapped =
      false;  // the agent maps segments, so that it sees a request in any of its rounds, at the cost of a load
};

// A read from a region to `to`. The region is named as in the request; the link checks it against the announcements
// (Error::unannounced, stale, too_large), even if the channel has checked it.
struct ReadPiece {
  RegionId region;
  std::uint32_t generation;
  std::uint64_t offset;
  std::byte* to;
  std::uint64_t length;
  // True: no other process can map `to` before the read has ended. Only then may bytes be written there before the link
  // knows that they are the program's; otherwise it reads into its own memory, checks, and copies.
  bool unshared = false;
};

struct WritePiece {
  RegionId segment;
  std::uint64_t offset;
  const std::byte* from;  // stays valid until the completion
  std::uint64_t length;
};

struct LinkEvent {
  enum class Kind { read_done, write_done, woken, offered, closed } kind;
  std::uint64_t token = 0;            // of the read or write; the number of the offer
  Status status;                      // of the operation; of `closed`: the reason; of `offered`: why it was refused
  Fd fd;                              // offered: a descriptor for the agent to use
  std::vector<std::byte> requests{};  // woken: wire::SentRequests that came with the wake; empty if none did
};

// The agent's end. Used by one thread; nothing blocks.
class AgentLink {
 public:
  static constexpr std::size_t operations_max = 4096;  // posted, with events that poll has not returned

  virtual ~AgentLink() = default;
  [[nodiscard]] virtual const LinkTraits& traits() const = 0;

  // Ranges arrive by the request ring. Announcing an id again replaces it. Segments arrive by themselves.
  virtual Status attach_range(RegionId range, std::uint32_t generation, std::uint64_t base, std::uint64_t length,
                              std::uint32_t key) = 0;
  virtual Status detach_range(RegionId range, std::uint32_t generation) = 0;

  // The agent's own view of a segment, empty where it cannot be mapped. Valid until the segment is
  // withdrawn or the link destroyed, even after close(); what is read there may change at any time.
  [[nodiscard]] virtual MutableBytes mapped(RegionId segment) = 0;

  // One logical transfer each; it completes by an event with `token`, and succeeds only if the host was alive after it.
  // Pieces are used only during the call; the memory that they name until the event. Reads and writes may complete in
  // any order; writes become visible in the order of posting. An ordered link may complete a write to the channel
  // segment when it is on its way: a read that is posted later sees it.
  virtual void read(std::uint64_t token, std::span<const ReadPiece> pieces) = 0;
  virtual void write(std::uint64_t token, std::span<const WritePiece> pieces) = 0;

  virtual void wake() = 0;                                 // makes a sleeping host look
  virtual Status hand_over(std::uint64_t ticket, int fd);  // sends the host a duplicate of `fd`; unsupported remotely

  // Events since the last call, at most events.size(): if it returns that many there may be more. After `closed` no
  // events follow, and posted operations are forgotten.
  virtual std::size_t poll(TimeNs now, std::span<LinkEvent> events) = 0;
  // Readable when poll would return something: for a loop that wants to sleep. -1: poll only.
  [[nodiscard]] virtual int event_fd() const = 0;
  // From now on the owner calls on_readable() each time that it finds event_fd() or life_fd() readable. Then the link
  // need not look by itself while nothing is under way.
  virtual void on_watched() {}
  virtual void on_readable() {}
  // A descriptor of which each edge (EPOLLET) is a wake of the host's, and what to call then; poll returns `woken`. It
  // stays readable. -1: wakes come by event_fd().
  [[nodiscard]] virtual int wake_fd() const { return -1; }
  virtual void on_wake() {}
  // A second descriptor to sleep on (local: the program has ended, or has read its socket again); -1 if none.
  [[nodiscard]] virtual int life_fd() const { return -1; }
  // Tells the host the reason for the channel's end, if the link can: its calls fail with it. Then call close().
  virtual void refuse(const Failure& why) = 0;
  virtual void close() = 0;
};

// Memory from HostLink::allocate: zeroed, page aligned, unmapped when destroyed.
class SegmentMemory {
 public:
  SegmentMemory() = default;
  // `user`: the user who is charged for the mapping.
  SegmentMemory(std::byte* data, std::uint64_t length, Fd fd,
                std::shared_ptr<ReceivedFds::User> user = nullptr) noexcept
      : data_(data), length_(length), fd_(std::move(fd)), user_(std::move(user)) {}
  SegmentMemory(SegmentMemory&& other) noexcept { *this = std::move(other); }
  SegmentMemory& operator=(SegmentMemory&& other) noexcept;
  ~SegmentMemory() { unmap(); }
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::uint64_t length() const noexcept { return length_; }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] MutableBytes bytes() const noexcept { return {data_, length_}; }

 private:
  void unmap() noexcept;

  std::byte* data_ = nullptr;
  std::uint64_t length_ = 0;
  Fd fd_;  // the memfd, if any
  std::shared_ptr<ReceivedFds::User> user_;
};

// The host's end. Calls are made under the channel's lock; only `wait` may block without it.
class HostLink {
 public:
  virtual ~HostLink() = default;
  [[nodiscard]] virtual const LinkTraits& traits() const = 0;
  [[nodiscard]] virtual const wire::Welcome& welcome() const = 0;
  // The channel segment, allocated by the link because the handshake announces it.
  [[nodiscard]] virtual MutableBytes channel_memory() = 0;

  virtual Result<SegmentMemory> allocate(std::uint64_t length) = 0;
  // Returns when the agent has it, so that a request may name it.
  virtual Status announce_segment(RegionId segment, const SegmentMemory& memory, TimeNs deadline) = 0;
  virtual void retire_segment(RegionId segment) = 0;
  // Makes a range readable; returns the key for the announcement (0 if none is needed).
  virtual Result<std::uint32_t> announce_range(RegionId range, std::uint32_t generation, const void* base,
                                               std::uint64_t length) = 0;
  // Returns when nothing reads the range any more. The agent may have to confirm this; the wait is at most a second.
  virtual void retire_range(RegionId range, std::uint32_t generation) = 0;
  // The same without waiting: the range may be read until is_withdrawn returns true, or the link ends. If that takes
  // time, the event descriptor announces it.
  virtual void withdraw_range(RegionId range, std::uint32_t generation) { retire_range(range, generation); }
  [[nodiscard]] virtual bool is_withdrawn(RegionId /*range*/, std::uint32_t /*generation*/) { return true; }

  // Before a request is stored outside of the rings: lets the agent read that part of the channel segment, if it is not
  // announced. Does not wait.
  [[nodiscard]] virtual Status offer_outside() { return {}; }
  // No request is stored there: the part is withdrawn until the next offer, where that spares memory.
  virtual void withdraw_outside() {}

  virtual void wake() = 0;  // makes a sleeping agent look
  // The same, with wire::SentRequests. A link that has no room for them only wakes.
  virtual void wake_with(Bytes /*requests*/) { wake(); }
  // Sleeps until woken, something arrived, or the deadline; may return early.
  virtual void wait(TimeNs deadline) = 0;
  // A descriptor that becomes readable when the agent has woken this program or is gone. Only look() clears it, and
  // only look() consumes the events for which wait() returns: another thread may sleep there.
  [[nodiscard]] virtual int event_fd() const = 0;
  // Clears the event, then looks at the socket without blocking; fails when the agent is gone.
  virtual Status look() = 0;
  virtual Result<Fd> take_descriptor(std::uint64_t ticket,
                                     TimeNs deadline);  // the descriptor that hand_over sent; unsupported remotely
  virtual Status offer(std::uint64_t number, int fd);   // unsupported remotely
  // In a forked child: releases inherited objects without informing the agent.
  virtual void abandon() = 0;
  virtual void close() = 0;
};

}  // namespace offpath::link
