#include "tcp/flow/flows.h"
#include "tcp/flow/waiting.h"

namespace offpath::tcp {

Flow* Flows::find(FlowId id) noexcept {
  if (id.index >= flows_.size()) return nullptr;
  Flow& flow = flows_[id.index];
  return flow.generation == id.generation && flow.slow != nullptr && !flow.gone_told ? &flow : nullptr;
}

Flow* Flows::new_flow(const FlowKey& key, std::uint64_t tag, std::uint64_t receive_bytes, const FlowOptions& options,
                      TimeNs now) {
  if (free_.empty() && flows_.size() >= context_.options.flows_max) free_oldest_time_wait();
  if (free_.empty()) {
    if (flows_.size() >= context_.options.flows_max) return nullptr;
    free_.push_back(static_cast<std::uint32_t>(flows_.size()));
    flows_.emplace_back();
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Flow& flow = flows_[index];
  const std::uint32_t generation = flow.generation;
  flow = Flow{};
  flow.index = index;
  flow.generation = generation;
  flow.key = key;
  flow.slow = std::make_unique<FlowSlow>();
  flow.slow->tag = tag;
  flow.begin_with(options);
  flow.slow->buffer_bytes = receive_bytes;
  flow.allowed = receive_bytes;
  flow.receive_scale = context_.own_scale();
  flow.timestamp_offset = static_cast<std::uint32_t>(keyed_hash(context_.timestamp_key, key));
  flow.heard_ms = context_.timestamp(0, now);
  flow.mss = static_cast<std::uint16_t>(context_.own_mss(key.family()) - 12);
  table_.insert(key, index);
  return &flow;
}

void Flows::make_ready(Flow& flow) {
  if (flow.is_ready) return;
  flow.is_ready = true;
  ready_.push_back(flow.index);
}

void Flows::note(Flow& flow, std::uint8_t changes) {
  flow.changes |= changes;
  if (flow.is_changed) return;
  flow.is_changed = true;
  changed_.push_back(flow.index);
}

void Flows::arm(Flow& flow) {
  const TimeNs due =
      std::min({flow.retransmit_due, flow.ack_due, keepalive_at(flow), flow.slow->mss_again_at, flow.slow->judge_at,
                give_up_at(flow), flow.paced_until != 0 ? flow.paced_until : never});
  // A later time is not set: the firing timer finds it, and the next acknowledgement usually postpones it anyway.
  if (due < wheel_.due(flow.index)) wheel_.set(flow.index, due);
}

void Flows::withdraw(Flow& flow) {
  table_.erase(flow.key, flow.index);
  free_flow(flow);
}

void Flows::begin_opening(Flow& flow, TimeNs now) const noexcept {
  flow.slow->iss = context_.initial_sequence(flow.key, now);
  flow.una = flow.next = flow.slow->iss;
  flow.state = FlowState::syn_sent;
  context_.control(flow).begin(flow.congestion, flow.mss, now);
}

void Flows::established(Flow& flow, TimeNs now) {
  flow.state = FlowState::established;
  flow.heard_ms = context_.timestamp(0, now);
  flow.retries = 0;
  flow.retransmit_due = never;
  flow.slow->waits_since = 0;
  note(flow, change::connected);
  arm(flow);
  make_ready(flow);
}

// It gets no segments any more.
void Flows::end(Flow& flow, FlowError error) {
  if (flow.state == FlowState::closed) return;
  if (flow.state == FlowState::time_wait) --time_wait_flows_;
  be_no_orphan(flow);
  if (flow.elsewhere || other_.fast != nullptr) other_.ended(flow, error);
  const bool told = flow.changes & change::closed || flow.state == FlowState::time_wait;
  flow.state = FlowState::closed;
  table_.erase(flow.key, flow.index);
  wheel_.cancel(flow.index);
  flow.retransmit_due = flow.ack_due = never;
  flow.paced_until = 0;
  flow.slow->scoreboard.reset();
  flow.slow->reassembly.reset();
  flow.slow->repair.reset();
  flow.slow->judge_at = never;
  flow.slow->error = error;
  ++(error == FlowError::none ? context_.counters.closed : context_.counters.failed);
  if (flow.released) {
    tell_gone(flow);
  } else if (!told) {
    note(flow, change::closed);
  }
  if (flow.gone_told) free_flow(flow);
}

void Flows::reset(Flow& flow, FlowError error, TimeNs now) {
  if (flow.state != FlowState::closed && flow.state != FlowState::syn_sent && flow.state != FlowState::time_wait)
    send_reset(flow, now);
  end(flow, error);
}

void Flows::tell_gone(Flow& flow) {
  if (!flow.gone_told) note(flow, change::gone);
}

// Its end has no receiver, but a peer that takes little would keep it, and its owner's handle, for good.
void Flows::become_orphan(Flow& flow, TimeNs now) {
  if (flow.state == FlowState::closed || flow.state == FlowState::time_wait) return;
  flow.slow->waits_since = 0;
  wait_on(flow, now);
  const FlowShare share = flow.slow->share;
  flow.slow->orphan = orphans_.add(share, id_of(flow));
  flow.slow->orphan_since = now;
  arm(flow);
  while (const auto oldest = orphans_.one_too_many(share)) {
    ++context_.counters.orphans_reset;
    reset(flows_[oldest->index], FlowError::timed_out, now);
  }
}

void Flows::be_no_orphan(Flow& flow) noexcept {
  if (const std::uint64_t number = std::exchange(flow.slow->orphan, 0); number != 0)
    orphans_.remove(flow.slow->share, number);
}

void Flows::free_flow(Flow& flow) {
  if (flow.is_changed || flow.is_ready) return;  // in a list by its index: freed when it leaves the list
  flow.slow.reset();
  ++flow.generation;
  free_.push_back(flow.index);
}

void Flows::free_oldest_time_wait() {
  while (!time_wait_.empty()) {
    const FlowId id = time_wait_.front();
    time_wait_.pop_front();
    Flow& flow = flows_[id.index];
    if (flow.generation != id.generation || flow.state != FlowState::time_wait) continue;
    end(flow, FlowError::none);
    if (!free_.empty()) return;
  }
}

void Flows::enter(Flow& flow, FlowState state, TimeNs now) {
  flow.state = state;
  if (state == FlowState::fin_wait_2 && flow.released) flow.retransmit_due = now + context_.options.fin_wait_ns;
  if (state == FlowState::time_wait) {
    be_no_orphan(flow);
    flow.retransmit_due = now + context_.options.time_wait_ns;
    flow.ack_due = never;
    flow.slow->scoreboard.reset();
    flow.slow->reassembly.reset();
    flow.slow->repair.reset();
    flow.slow->judge_at = never;
    const auto over = [&](FlowId id) {
      return flows_[id.index].generation != id.generation || flows_[id.index].state != FlowState::time_wait;
    };
    while (!time_wait_.empty() && over(time_wait_.front())) time_wait_.pop_front();
    if (time_wait_.size() > 2 * std::size_t{context_.options.time_wait_max} + 16) std::erase_if(time_wait_, over);
    time_wait_.push_back(id_of(flow));
    if (++time_wait_flows_ > context_.options.time_wait_max) free_oldest_time_wait();
    if (flow.state != FlowState::time_wait) return;
    note(flow, change::closed);
    if (flow.released) tell_gone(flow);
    if (other_.slow != nullptr) make_ready(flow);  // handed back after its last acknowledgement
  }
  arm(flow);
}

void Flows::challenge(Flow& flow, TimeNs now) {
  const std::uint32_t now_ms = context_.timestamp(0, now) | 1;  // 0: never
  const auto every = static_cast<std::uint32_t>(context_.options.challenge_every_ns / millisecond_ns);
  if (flow.slow->challenged_ms != 0 && now_ms - flow.slow->challenged_ms < every) return;
  flow.slow->challenged_ms = now_ms;
  ++context_.counters.challenges;
  flow.wants_ack = true;
  make_ready(flow);
}

std::optional<FlowChange> Flows::next_change() {
  while (!changed_.empty()) {
    Flow& flow = flows_[changed_.front()];
    changed_.pop_front();
    flow.is_changed = false;
    const std::uint8_t changes = std::exchange(flow.changes, std::uint8_t{0});
    if (flow.gone_told) {
      if (flow.state == FlowState::closed && flow.slow != nullptr) free_flow(flow);
      continue;
    }
    const FlowChange what{id_of(flow), flow.slow->tag, changes, flow.received, flow.acknowledged, flow.slow->error};
    if (changes & change::gone) {
      flow.gone_told = true;
      if (flow.state == FlowState::closed) free_flow(flow);
    }
    return what;
  }
  return std::nullopt;
}

// The deadline of the user's timeout.
TimeNs Flows::give_up_at(const Flow& flow) const noexcept {
  const FlowSlow& slow = *flow.slow;
  const TimeNs last = slow.orphan != 0 ? slow.orphan_since + context_.options.orphan_lifetime_ns : never;
  if (slow.waits_since == 0) return last;
  const TimeNs user = slow.options.user_timeout_ns != 0 ? slow.options.user_timeout_ns : never,
               orphan = flow.released && other_.fast == nullptr ? context_.options.orphan_ns : never;
  const TimeNs most = std::min(user, orphan);
  return most == never ? last : std::min(last, slow.waits_since + most);
}

void Flows::wake_waiting(TimeNs now) {
  while (const auto woken = routes_.next_woken(now)) {
    Flow& flow = flows_[woken->flow];
    if (flow.state == FlowState::closed) continue;
    // The waiting flow may be gone, and its number reused.
    const bool is_other = woken->generation != 0 ? flow.generation != woken->generation
                                                 : context_.next_hop(flow.key.remote.address) != woken->address;
    if (is_other) continue;
    if (woken->found) {
      make_ready(flow);
    } else if (flow.state == FlowState::syn_sent) {
      end(flow, FlowError::unreachable);
    } else {
      // The neighbour may return: the flow's own timers decide how long to wait.
      if (flow.retransmit_due == never)
        flow.retransmit_due = now + flow.rtt.timeout_ns(context_.options.rto, flow.retries);
      arm(flow);
    }
  }
}

void Flows::send_reset(const Flow& flow, TimeNs now) {
  const MacAddress* to = routes_.find(flow, now);
  if (to == nullptr) return;
  Segment segment;
  segment.key = flow.key;
  segment.sequence = flow.next;
  segment.acknowledgement = flow.receive_next;
  segment.flags = flag::rst | flag::ack;
  segment.traffic_class = flow.slow->options.traffic_class(flow.key.family());
  ++context_.counters.resets_out;
  frames_.send(segment, *to);
}

Flow* Flows::take_ready() {
  Flow& flow = flows_[ready_.front()];
  ready_.pop_front();
  flow.is_ready = false;
  if (flow.state != FlowState::closed) return &flow;
  if (flow.gone_told && flow.slow != nullptr) free_flow(flow);
  return nullptr;
}

Flow* Flows::next_due_flow(TimeNs now) {
  const std::uint32_t index = wheel_.fire(now);
  return index == TimerWheel::nobody ? nullptr : &flows_[index];
}

}  // namespace offpath::tcp
