// State that the two ends of a loopback_link share: the host's announced memory, operations under way, and
// who is still there. The ends themselves are in loopback_link.cc.
#pragma once

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "link/guarded_copy.h"
#include "link/region_table.h"
#include "testing/link/loopback_link.h"

namespace offpath::link {

class LoopbackConnection final : public LoopbackFate, public std::enable_shared_from_this<LoopbackConnection> {
 public:
  LoopbackConnection(std::shared_ptr<LoopbackFabric> fabric, const LoopbackOptions& options);

  // ---- the host's end
  [[nodiscard]] Status host_usable() const;
  [[nodiscard]] Status attach_channel(const SegmentMemory& memory);  // at once, as the handshake does
  [[nodiscard]] Status announce_segment(RegionId segment, const SegmentMemory& memory, TimeNs deadline);
  void retire_segment(RegionId segment);
  [[nodiscard]] Result<std::uint32_t> announce_range(RegionId range, std::uint32_t generation, const void* base,
                                                     std::uint64_t length);
  void retire_range(RegionId range, std::uint32_t generation);
  void withdraw_range(RegionId range, std::uint32_t generation);
  [[nodiscard]] bool is_withdrawn(RegionId range, std::uint32_t generation) const;
  void host_wakes(std::vector<std::byte> requests);
  void host_waits(TimeNs deadline);
  [[nodiscard]] Status host_looks();
  [[nodiscard]] int host_event_fd() const noexcept { return event_.get(); }
  [[nodiscard]] Result<Fd> take_descriptor(std::uint64_t ticket, TimeNs deadline);
  [[nodiscard]] Status offer(std::uint64_t number, int fd);
  void host_closes();
  void host_abandons() noexcept { host_alive_ = false; }

  // ---- the agent's end
  [[nodiscard]] Status attach_range(RegionId range, std::uint32_t generation, std::uint64_t base, std::uint64_t length,
                                    std::uint32_t key);
  [[nodiscard]] Status detach_range(RegionId range, std::uint32_t generation);
  [[nodiscard]] MutableBytes mapped(RegionId segment);
  void read(std::uint64_t token, std::span<const ReadPiece> pieces);
  void write(std::uint64_t token, std::span<const WritePiece> pieces);
  void agent_wakes();
  [[nodiscard]] Status hand_over(std::uint64_t ticket, int fd);
  std::size_t poll(std::span<LinkEvent> events);
  void agent_closes();

  [[nodiscard]] const LinkTraits& traits() const noexcept { return traits_; }
  [[nodiscard]] const wire::Welcome& welcome() const noexcept { return options_.welcome; }

  // ---- the test
  void kill_host() override;
  void kill_agent() override;
  void stop_host() override { host_stopped_ = true; }
  void continue_host() override;
  void stop_agent() override { agent_stopped_ = true; }
  void continue_agent() override;
  void partition() override;
  void heal() override;
  [[nodiscard]] bool host_runs() const override { return host_alive_ && !host_stopped_; }
  [[nodiscard]] bool agent_runs() const override { return agent_alive_ && !agent_stopped_; }
  [[nodiscard]] std::uint64_t withdrawal_asks() const override { return withdrawal_asks_; }

 private:
  using Kind = LinkEvent::Kind;
  struct Operation {
    Kind kind;
    std::uint64_t token;
    std::optional<Failure> failure;
    bool over = false;  // completed or given up: nothing of it may touch memory any more
  };
  using OperationPointer = std::shared_ptr<Operation>;
  // A stretch of a piece that moves at one moment.
  struct Part {
    std::uint64_t offset;
    std::uint64_t length;
  };
  // Ways on which things stay in order, and stand still together.
  enum Way { operations, to_agent, to_host, ways };

  [[nodiscard]] bool blocked(Way way) const noexcept;
  void schedule(Way way, TimeNs time, std::function<void()> happen);
  void send(Way way, std::function<void()> happen);  // on the control socket, after earlier messages
  void resume();

  [[nodiscard]] OperationPointer post(Kind kind, std::uint64_t token);
  [[nodiscard]] std::vector<Part> cut(std::uint64_t start, std::uint64_t length, std::uint64_t border);
  void read_part(const OperationPointer& operation, const ReadPiece& piece, Part part);
  [[nodiscard]] bool read_memory(const std::byte* from, std::byte* to, std::uint64_t length);
  void write_part(const OperationPointer& operation, const WritePiece& piece, Part part);
  void complete_at(const OperationPointer& operation, TimeNs time);
  void complete(Operation& operation);
  void deliver(LinkEvent event);
  [[nodiscard]] Status check_registration(const ReadPiece& piece) const;
  [[nodiscard]] Status attach_segment(RegionId segment, SegmentMemory view);

  void end_host(Failure why);   // the host is gone; the agent will learn it
  void end_agent(Failure why);  // the agent is gone; the host will learn it
  void tell_agent(Failure why);
  void signal_host();
  void end_range(RegionId range, std::uint32_t generation);
  void tell_host(Failure why);

  std::shared_ptr<LoopbackFabric> fabric_;
  LoopbackOptions options_;
  LinkTraits traits_;
  SeededRandom random_;

  bool host_alive_ = true, agent_alive_ = true;
  bool host_stopped_ = false, agent_stopped_ = false;
  bool partitioned_ = false, severed_ = false;
  std::uint64_t partitions_ = 0;
  std::array<TimeNs, ways> last_{};  // of sent messages, in order
  std::array<std::vector<std::function<void()>>, ways> standing_;

  // The host's memory: registered ranges and their announcements.
  RegionTable registered_, announced_;
  std::map<RegionId, SegmentMemory> views_;  // a mapping of the agent's own for each segment
  std::vector<SegmentMemory> withdrawn_;     // unmapped at the agent's next poll
  std::vector<OperationPointer> pending_;    // in the order posted
  std::optional<GuardedCopy> guarded_;       // made when the first range is read
  TimeNs write_clock_ = -1;                  // when the last write posted will be visible

  std::deque<LinkEvent> ready_;  // the result of the agent's next poll
  bool told_agent_ = false;      // `closed` is among it, or was

  Fd event_;  // the host's eventfd
  bool signalled_ = false;
  bool woken_ = false, arrived_ = false;
  std::optional<Failure> told_host_;
  std::set<RegionId> acknowledged_;
  std::set<std::pair<RegionId, std::uint32_t>> leaving_;  // ranges whose end the agent has not confirmed
  mutable std::uint64_t withdrawal_asks_ = 0;
  std::map<std::uint64_t, Fd> descriptors_;
};

}  // namespace offpath::link
