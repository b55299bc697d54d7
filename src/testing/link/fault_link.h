// fault_link: a link that misbehaves, by a seed. It decorates the ends of any other link, keeps what link.h
// promises (one completion for each operation, nothing after `closed`, no wake lost), and makes everything else worse.
//
// Its time is that of poll(now). It has a descriptor to sleep on if the inner link has one.
#pragma once

#include <map>
#include <memory>

#include "link/held_events.h"
#include "link/link.h"
#include "testing/link/seeded_random.h"

namespace offpath::link {

// Probabilities, each drawn once for the thing it names.
struct AgentFaults {
  double read_fails = 0;            // a read completes with Error::io; nothing was read
  double read_unreadable = 0;       // a read completes with Error::unreadable, as if the program had unmapped its array
  double write_fails = 0;           // a write completes with Error::io; nothing was written
  double completion_delayed = 0;    // a completion arrives up to delay_max_ns late
  double completion_reordered = 0;  // a completion overtakes, or falls behind, others of the same moment
  double wake_delayed = 0;          // a wake, either way, takes up to delay_max_ns
  double wake_repeated = 0;         // a wake, either way, comes twice
  double stall = 0;                 // of each poll: no events for up to stall_max_ns
  double close = 0;                 // of each operation: the link breaks (Error::peer_lost)
  TimeNs delay_max_ns = 100 * microsecond_ns;
  TimeNs stall_max_ns = 1 * millisecond_ns;
};

struct HostFaults {
  double allocate_fails = 0;  // Error::no_memory
  double announce_fails = 0;  // segments: Error::timeout, ranges: Error::io; the agent knows nothing of it
  double wake_repeated = 0;
  double wait_spurious = 0;  // a wait returns at once
  double offer_fails = 0;    // Error::io
  double close = 0;          // of each look: the link breaks (Error::peer_lost)
};

struct FaultCounters {
  std::uint64_t reads_failed = 0;
  std::uint64_t reads_unreadable = 0;
  std::uint64_t writes_failed = 0;
  std::uint64_t completions_delayed = 0;
  std::uint64_t completions_reordered = 0;
  std::uint64_t wakes_delayed = 0;
  std::uint64_t wakes_repeated = 0;
  std::uint64_t stalls = 0;
  std::uint64_t closes = 0;
  std::uint64_t allocations_failed = 0;
  std::uint64_t announcements_failed = 0;
  std::uint64_t offers_failed = 0;
  std::uint64_t waits_spurious = 0;
};

class FaultAgentLink final : public AgentLink {
 public:
  FaultAgentLink(std::unique_ptr<AgentLink> inner, const AgentFaults& faults, std::uint64_t seed);

  void set_faults(const AgentFaults& faults) noexcept { faults_ = faults; }  // operations under way stay as they are
  [[nodiscard]] const FaultCounters& counters() const noexcept { return counters_; }
  // When poll would let something out that is held back now; `never` if nothing is.
  [[nodiscard]] TimeNs next_event() const noexcept;

  [[nodiscard]] const LinkTraits& traits() const override { return inner_->traits(); }
  Status attach_range(RegionId range, std::uint32_t generation, std::uint64_t base, std::uint64_t length,
                      std::uint32_t key) override;
  Status detach_range(RegionId range, std::uint32_t generation) override;
  [[nodiscard]] MutableBytes mapped(RegionId segment) override;
  void read(std::uint64_t token, std::span<const ReadPiece> pieces) override;
  void write(std::uint64_t token, std::span<const WritePiece> pieces) override;
  void wake() override;
  Status hand_over(std::uint64_t ticket, int fd) override;
  std::size_t poll(TimeNs now, std::span<LinkEvent> events) override;
  [[nodiscard]] int event_fd() const override { return due_fd_.fd(); }
  void on_watched() override { inner_->on_watched(); }
  void on_readable() override { inner_->on_readable(); }
  [[nodiscard]] int wake_fd() const override { return inner_->wake_fd(); }
  void on_wake() override { inner_->on_wake(); }
  [[nodiscard]] int life_fd() const override { return inner_->life_fd(); }
  void refuse(const Failure& why) override { inner_->refuse(why); }
  void close() override;

 private:
  using Kind = LinkEvent::Kind;
  void take(LinkEvent event);
  void take_completion(LinkEvent event);
  void complete_in_place(Kind kind, std::uint64_t token, Failure failure);
  [[nodiscard]] bool breaks();
  void end(Failure why);

  std::unique_ptr<AgentLink> inner_;
  AgentFaults faults_;
  SeededRandom random_;
  FaultCounters counters_;
  HeldEvents held_;
  DueFd due_fd_;
  std::map<std::pair<Kind, std::uint64_t>, bool> outstanding_;  // operations the inner link has
  TimeNs now_ = 0;
  TimeNs stalled_until_ = 0;
  TimeNs wake_due_ = never;  // an outgoing wake held back
  TimeNs ended_at_ = 0;
  bool ended_ = false;  // `closed` is held or delivered
  bool done_ = false;   // `closed` was delivered
};

class FaultHostLink final : public HostLink {
 public:
  FaultHostLink(std::unique_ptr<HostLink> inner, const HostFaults& faults, std::uint64_t seed);

  void set_faults(const HostFaults& faults) noexcept { faults_ = faults; }
  [[nodiscard]] const FaultCounters& counters() const noexcept { return counters_; }

  [[nodiscard]] const LinkTraits& traits() const override { return inner_->traits(); }
  [[nodiscard]] const wire::Welcome& welcome() const override { return inner_->welcome(); }
  [[nodiscard]] MutableBytes channel_memory() override { return inner_->channel_memory(); }
  Result<SegmentMemory> allocate(std::uint64_t length) override;
  Status announce_segment(RegionId segment, const SegmentMemory& memory, TimeNs deadline) override;
  void retire_segment(RegionId segment) override;
  Result<std::uint32_t> announce_range(RegionId range, std::uint32_t generation, const void* base,
                                       std::uint64_t length) override;
  void retire_range(RegionId range, std::uint32_t generation) override;
  void withdraw_range(RegionId range, std::uint32_t generation) override { inner_->withdraw_range(range, generation); }
  [[nodiscard]] bool is_withdrawn(RegionId range, std::uint32_t generation) override {
    return inner_->is_withdrawn(range, generation);
  }
  Status offer_outside() override { return inner_->offer_outside(); }
  void withdraw_outside() override { inner_->withdraw_outside(); }
  void wake() override;
  void wake_with(Bytes requests) override;
  void wait(TimeNs deadline) override;
  [[nodiscard]] int event_fd() const override { return inner_->event_fd(); }
  Status look() override;
  Result<Fd> take_descriptor(std::uint64_t ticket, TimeNs deadline) override;
  Status offer(std::uint64_t number, int fd) override;
  void abandon() override;
  void close() override;

 private:
  [[nodiscard]] Status alive() const;

  std::unique_ptr<HostLink> inner_;
  std::vector<std::byte> requests_before_;  // of the newest wake_with
  HostFaults faults_;
  SeededRandom random_;
  FaultCounters counters_;
  bool broken_ = false;
};

}  // namespace offpath::link
