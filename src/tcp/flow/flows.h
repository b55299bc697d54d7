// All flows of a stack: found by number or by key, ready to send, changed, in TIME-WAIT or orphaned, each with its
// timer. It makes and ends flows, and knows nothing about segments.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "tcp/flow/context.h"
#include "tcp/flow/flow_table.h"
#include "tcp/flow/frame_queue.h"
#include "tcp/flow/orphans.h"
#include "tcp/flow/owner.h"
#include "tcp/flow/routes.h"
#include "tcp/flow/timer_wheel.h"

namespace offpath::tcp {

class Flows {
 public:
  Flows(StackContext& context, const OtherStack& other, FrameQueue& frames, Routes& routes, TimeNs now)
      : context_(context),
        other_(other),
        frames_(frames),
        routes_(routes),
        table_(derived_key(context.options.secret, 4)),
        wheel_(now),
        orphans_(context.options.orphans_max) {}

  // ---- finding
  [[nodiscard]] Flow* find(FlowId id) noexcept;  // null: the flow is gone
  [[nodiscard]] std::uint32_t index_of(const FlowKey& key) const noexcept {
    return table_.find(key, [this](std::uint32_t index) -> const FlowKey& { return flows_[index].key; });
  }
  [[nodiscard]] Flow& at(std::uint32_t index) noexcept { return flows_[index]; }
  [[nodiscard]] static FlowId id_of(const Flow& flow) noexcept { return {flow.index, flow.generation}; }
  [[nodiscard]] std::size_t size() const noexcept { return table_.size(); }
  [[nodiscard]] std::deque<Flow>& all() noexcept { return flows_; }  // closed ones too

  // ---- beginning and ending
  [[nodiscard]] Flow* new_flow(const FlowKey& key, std::uint64_t tag, std::uint64_t receive_bytes,
                               const FlowOptions& options, TimeNs now);  // null: there are too many
  void withdraw(Flow& flow);                                             // a flow that the owner declined; no event
  void begin_opening(Flow& flow, TimeNs now) const noexcept;
  void established(Flow& flow, TimeNs now);
  void enter(Flow& flow, FlowState state, TimeNs now);
  void end(Flow& flow, FlowError error);                // it gets no segments any more
  void reset(Flow& flow, FlowError error, TimeNs now);  // with a RST to the peer
  void become_orphan(Flow& flow, TimeNs now);

  // ---- work for flows
  void make_ready(Flow& flow);
  [[nodiscard]] std::size_t ready() const noexcept { return ready_.size(); }
  [[nodiscard]] Flow* take_ready();             // only if one is ready; null: that one is closed
  void challenge(Flow& flow, TimeNs now);       // repeats the expected number, at a limited rate (RFC 5961)
  void note(Flow& flow, std::uint8_t changes);  // for next_change()
  void tell_gone(Flow& flow);
  [[nodiscard]] std::optional<FlowChange> next_change();

  // ---- time
  void wake_waiting(TimeNs now);  // flows whose next hop was found or given up
  void arm(Flow& flow);
  void doubt_next_hop(const Flow& flow, TimeNs now) { routes_.doubt(flow, now); }  // it has timed out
  [[nodiscard]] Flow* next_due_flow(TimeNs now);                                   // null: none is due
  [[nodiscard]] TimeNs next_due() const noexcept { return wheel_.next_due(); }
  [[nodiscard]] TimeNs give_up_at(const Flow& flow) const noexcept;  // when its wait for the peer becomes too long

 private:
  void be_no_orphan(Flow& flow) noexcept;
  void free_flow(Flow& flow);
  void free_oldest_time_wait();
  void send_reset(const Flow& flow, TimeNs now);

  StackContext& context_;
  const OtherStack& other_;
  FrameQueue& frames_;
  Routes& routes_;
  std::deque<Flow> flows_;
  std::vector<std::uint32_t> free_;
  FlowTable table_;
  TimerWheel wheel_;
  std::deque<std::uint32_t> ready_, changed_;
  std::deque<FlowId> time_wait_;  // the oldest first; some have gone already
  std::size_t time_wait_flows_ = 0;
  Orphans orphans_;
};

}  // namespace offpath::tcp
