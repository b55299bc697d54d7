#include "tcp/stack/stack.h"

namespace offpath::tcp {
namespace {

HashKey derived(const HashKey& secret, std::uint64_t purpose) noexcept {
  const FlowKey none{};
  return {keyed_hash(secret, none, 2 * purpose), keyed_hash(secret, none, 2 * purpose + 1)};
}

std::uint8_t scale_for(std::uint64_t window_bytes) noexcept {
  std::uint8_t scale = 0;
  while (scale < window_scale_max && (std::uint64_t{65'535} << scale) < window_bytes) ++scale;
  return scale;
}

}  // namespace

Stack::Stack(const StackOptions& options, const PortCapabilities& port, const CongestionControl& congestion,
             Owner& owner, TimeNs now)
    : options_(options),
      port_(port),
      congestion_(congestion),
      owner_(owner),
      sequence_key_(derived(options.secret, 1)),
      timestamp_key_(derived(options.secret, 2)),
      port_key_(derived(options.secret, 3)),
      table_(derived(options.secret, 4)),
      wheel_(now),
      half_open_(options.half_open_max, derived(options.secret, 5), now),
      cookies_(derived(options.secret, 6)),
      neighbours_(options.address, port.mac, options.neighbours),
      orphans_(options.orphans_max) {
  OFP_ASSERT(port.mtu >= 576);
}

// The hash differs for each connection, the clock ticks every 4 us (RFC 6528, RFC 9293, 3.4.1).
Sequence Stack::initial_sequence(const FlowKey& key, TimeNs now) const noexcept {
  return Sequence(static_cast<std::uint32_t>(keyed_hash(sequence_key_, key)) + static_cast<std::uint32_t>(now / 4000));
}

std::uint8_t Stack::own_scale() const noexcept { return scale_for(options_.window_max); }

Flow* Stack::find(FlowId id) noexcept {
  if (id.index >= flows_.size()) return nullptr;
  Flow& flow = flows_[id.index];
  return flow.generation == id.generation && flow.slow != nullptr && !flow.gone_told ? &flow : nullptr;
}

Flow* Stack::new_flow(const FlowKey& key, std::uint64_t tag, std::uint64_t receive_bytes, const FlowOptions& options,
                      TimeNs now) {
  if (free_.empty() && flows_.size() >= options_.flows_max) free_oldest_time_wait();
  if (free_.empty()) {
    if (flows_.size() >= options_.flows_max) return nullptr;
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
  flow.slow->options = options;
  flow.slow->buffer_bytes = receive_bytes;
  flow.nagle = options.nagle;
  flow.allowed = receive_bytes;
  flow.receive_scale = own_scale();
  flow.timestamp_offset = static_cast<std::uint32_t>(keyed_hash(timestamp_key_, key));
  flow.heard_ms = timestamp(0, now);
  flow.mss = static_cast<std::uint16_t>(own_mss() - 12);
  table_.insert(key, index);
  return &flow;
}

void Stack::make_ready(Flow& flow) {
  if (flow.is_ready) return;
  flow.is_ready = true;
  ready_.push_back(flow.index);
}

void Stack::note(Flow& flow, std::uint8_t changes) {
  flow.changes |= changes;
  if (flow.is_changed) return;
  flow.is_changed = true;
  changed_.push_back(flow.index);
}

void Stack::arm(Flow& flow) {
  const TimeNs due = std::min({flow.retransmit_due, flow.ack_due, keepalive_at(flow), flow.slow->mss_again_at,
                               give_up_at(flow), flow.paced_until != 0 ? flow.paced_until : never});
  // One that is later is found to be so when the timer fires: most are put off by the next acknowledgement anyhow.
  if (due < wheel_.due(flow.index)) wheel_.set(flow.index, due);
}

// No segment belongs to it any more.
void Stack::end(Flow& flow, FlowError error) {
  if (flow.state == FlowState::closed) return;
  if (flow.state == FlowState::time_wait) --time_wait_flows_;
  be_no_orphan(flow);
  if (flow.elsewhere || fast_ != nullptr) ended_elsewhere(flow, error);
  const bool told = flow.changes & change::closed || flow.state == FlowState::time_wait;
  flow.state = FlowState::closed;
  table_.erase(flow.key);
  wheel_.cancel(flow.index);
  flow.retransmit_due = flow.ack_due = never;
  flow.paced_until = 0;
  flow.slow->scoreboard.reset();
  flow.slow->reassembly.reset();
  flow.slow->error = error;
  ++(error == FlowError::none ? counters_.closed : counters_.failed);
  if (flow.released) {
    tell_gone(flow);
  } else if (!told) {
    note(flow, change::closed);
  }
  if (flow.gone_told) free_flow(flow);
}

void Stack::reset(Flow& flow, FlowError error, TimeNs now) {
  if (flow.state != FlowState::closed && flow.state != FlowState::syn_sent && flow.state != FlowState::time_wait)
    send_reset(flow, now);
  end(flow, error);
}

void Stack::tell_gone(Flow& flow) {
  if (!flow.gone_told) note(flow, change::gone);
}

// Nobody waits for what becomes of it, but a peer that takes little would keep it, and its owner's handle, for good.
void Stack::become_orphan(Flow& flow, TimeNs now) {
  if (flow.state == FlowState::closed || flow.state == FlowState::time_wait) return;
  flow.slow->waits_since = 0;
  wait_on(flow, now);
  const FlowShare share = flow.slow->share;
  flow.slow->orphan = orphans_.add(share, id_of(flow));
  flow.slow->orphan_since = now;
  arm(flow);
  while (const auto oldest = orphans_.one_too_many(share)) {
    ++counters_.orphans_reset;
    reset(flows_[oldest->index], FlowError::timed_out, now);
  }
}

void Stack::be_no_orphan(Flow& flow) noexcept {
  if (const std::uint64_t number = std::exchange(flow.slow->orphan, 0); number != 0)
    orphans_.remove(flow.slow->share, number);
}

void Stack::free_flow(Flow& flow) {
  if (flow.is_changed || flow.is_ready) return;  // in a list by its index: freed when it comes out
  flow.slow.reset();
  ++flow.generation;
  free_.push_back(flow.index);
}

void Stack::free_oldest_time_wait() {
  while (!time_wait_.empty()) {
    const FlowId id = time_wait_.front();
    time_wait_.pop_front();
    Flow& flow = flows_[id.index];
    if (flow.generation != id.generation || flow.state != FlowState::time_wait) continue;
    end(flow, FlowError::none);
    if (!free_.empty()) return;
  }
}

void Stack::enter(Flow& flow, FlowState state, TimeNs now) {
  flow.state = state;
  if (state == FlowState::fin_wait_2 && flow.released) flow.retransmit_due = now + options_.fin_wait_ns;
  if (state == FlowState::time_wait) {
    be_no_orphan(flow);
    flow.retransmit_due = now + options_.time_wait_ns;
    flow.ack_due = never;
    flow.slow->scoreboard.reset();
    flow.slow->reassembly.reset();
    const auto over = [&](FlowId id) {
      return flows_[id.index].generation != id.generation || flows_[id.index].state != FlowState::time_wait;
    };
    while (!time_wait_.empty() && over(time_wait_.front())) time_wait_.pop_front();
    if (time_wait_.size() > 2 * std::size_t{options_.time_wait_max} + 16) std::erase_if(time_wait_, over);
    time_wait_.push_back(id_of(flow));
    if (++time_wait_flows_ > options_.time_wait_max) free_oldest_time_wait();
    if (flow.state != FlowState::time_wait) return;
    note(flow, change::closed);
    if (flow.released) tell_gone(flow);
    if (slow_ != nullptr) make_ready(flow);  // when it has sent its last acknowledgement it is handed back
  }
  arm(flow);
}

std::optional<FlowChange> Stack::next_change() {
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

TimeNs Stack::next_due() const noexcept {
  return std::min({wheel_.next_due(), half_open_.next_due(), neighbours_.next_due()});
}

void Stack::on_time(TimeNs now) {
  for (std::uint32_t index; (index = wheel_.fire(now)) != TimerWheel::nobody;) timer_due(flows_[index], now);
  half_open_due(now);
  neighbours_.on_time(now);
  wake_waiting(now);
  send_neighbour_messages();
}

std::size_t Stack::transmit(std::span<FrameToSend> frames, TimeNs now) {
  out_ = frames;
  out_used_ = 0;
  while (room_to_send() && !strays_.empty()) {
    out_[out_used_++] = strays_.front();
    strays_.pop_front();
  }
  // Each flow at most once: one that has more is at the end of the list then.
  for (std::size_t left = ready_.size(); left > 0 && room_to_send(); --left) {
    Flow& flow = flows_[ready_.front()];
    ready_.pop_front();
    flow.is_ready = false;
    if (flow.state == FlowState::closed) {
      if (flow.gone_told && flow.slow != nullptr) free_flow(flow);
      continue;
    }
    serve(flow, now);
  }
  send_neighbour_messages();
  while (room_to_send() && !strays_.empty()) {
    out_[out_used_++] = strays_.front();
    strays_.pop_front();
  }
  out_ = {};
  return out_used_;
}

}  // namespace offpath::tcp
