// What owners wish.
#include "tcp/stack/stack.h"
#include "wire/areas/flow_steering.h"

namespace offpath::tcp {

Status Stack::listen(std::uint16_t port, std::uint64_t tag, std::uint64_t receive_bytes, const FlowOptions& options) {
  if (port == 0) return fail(Error::invalid, "port 0 cannot be listened on");
  if (!listeners_.try_emplace(port, Listener{tag, receive_bytes, options}).second)
    return fail(Error::exists, "port {} is listened on already", port);
  if (slow_ != nullptr) slow_->listen(port, receive_bytes);
  return {};
}

void Stack::stop_listening(std::uint16_t port) {
  if (listeners_.erase(port) != 0 && slow_ != nullptr) slow_->stop_listening(port);
}

std::optional<std::uint64_t> Stack::listener(std::uint16_t port) const noexcept {
  const auto found = listeners_.find(port);
  return found == listeners_.end() ? std::nullopt : std::optional(found->second.tag);
}

bool Stack::is_steered_here(const FlowKey& key) const noexcept {
  return wire::core_of_flow(key.local.address.value, key.local.port, key.remote.address.value, key.remote.port,
                            options_.cores) == options_.core;
}

Result<FlowId> Stack::connect(std::uint16_t local_port, Endpoint remote, std::uint64_t tag, std::uint64_t receive_bytes,
                              TimeNs now, const FlowOptions& options) {
  if (!remote.address.is_unicast() || remote.port == 0)
    return fail(Error::invalid, "{} cannot be connected to", text_of(remote));
  if (next_hop(remote.address).value == 0)
    return fail(Error::peer_lost, "there is no route to {}", text_of(remote.address));
  FlowKey key{{options_.address, local_port}, remote};
  if (local_port == 0) {
    // RFC 6056, algorithm 3: an order of ports that is each destination's own.
    constexpr std::uint32_t first = 32'768, count = 28'232;
    const auto start = static_cast<std::uint32_t>(keyed_hash(port_key_, key) >> 32) + next_port_;
    std::uint32_t tried = 0;
    do {
      if (tried == count) return fail(Error::no_space, "no port is free for {}", text_of(remote));
      key.local.port = static_cast<std::uint16_t>(first + (start + tried++) % count);
    } while (!is_steered_here(key) || table_.find(key) != FlowTable::nobody || listeners_.contains(key.local.port));
    next_port_ += tried;
  }
  if (table_.find(key) != FlowTable::nobody)
    return fail(Error::exists, "there is a connection from port {} to {} already", local_port, text_of(remote));
  Flow* flow = new_flow(key, tag, receive_bytes, options, now);
  if (flow == nullptr) return fail(Error::no_space, "{} flows, as many as there may be", options_.flows_max);
  flow->slow->share = owner_.share(tag);
  begin_opening(*flow, now);
  if (slow_ != nullptr) {
    flow->elsewhere = true;
    flow->slow->attempt = ++attempts_ != 0 ? attempts_ : ++attempts_;
    slow_->connect(key, flow->slow->attempt, receive_bytes);
    return id_of(*flow);
  }
  flow->wants_syn = true;
  make_ready(*flow);
  return id_of(*flow);
}

void Stack::begin_opening(Flow& flow, TimeNs now) const noexcept {
  flow.slow->iss = initial_sequence(flow.key, now);
  flow.una = flow.next = flow.slow->iss;
  flow.state = FlowState::syn_sent;
  congestion_.begin(flow.congestion, flow.mss, now);
}

void Stack::offer(FlowId id, std::uint64_t position, TimeNs) {
  Flow* flow = find(id);
  if (flow == nullptr || flow->state == FlowState::closed || flow->fin_wanted) return;
  flow->offered = std::max(flow->offered, position);
  make_ready(*flow);
}

void Stack::allow(FlowId id, std::uint64_t position, TimeNs) {
  Flow* flow = find(id);
  if (flow == nullptr || flow->state == FlowState::closed || position <= flow->allowed) return;
  flow->allowed = position;
  flow->slow->buffer_bytes = std::max(flow->slow->buffer_bytes, position - std::min(position, flow->received));
  if (flow->state == FlowState::syn_sent || flow->state == FlowState::syn_received) return;
  // The peer is told at once if it may be waiting for it, and otherwise when the window has grown by a good part.
  const std::int32_t grown = window_edge(*flow) - flow->receive_edge;
  const std::uint32_t left = bytes_between(flow->receive_next, later(flow->receive_edge, flow->receive_next));
  const std::uint64_t buffer = flow->slow->buffer_bytes;
  if (grown <= 0) return;
  const auto by = static_cast<std::uint64_t>(grown);
  if (by >= buffer / 4 || (left < 2u * flow->mss && by >= std::min<std::uint64_t>(flow->mss, buffer / 2))) {
    flow->wants_ack = true;
    make_ready(*flow);
  }
}

bool Stack::shut(FlowId id) noexcept {
  Flow* flow = find(id);
  if (flow == nullptr || flow->state == FlowState::closed) return true;
  if (flow->state < FlowState::established || flow->slow->reassembly != nullptr) return false;
  flow->allowed = flow->received;
  return true;
}

void Stack::finish(FlowId id) {
  Flow* flow = find(id);
  if (flow == nullptr || flow->state == FlowState::closed || flow->fin_wanted) return;
  if (flow->state == FlowState::syn_sent && flow->offered == 0 && flow->released) return end(*flow, FlowError::none);
  flow->fin_wanted = true;
  arm(*flow);
  make_ready(*flow);
}

void Stack::abort(FlowId id, TimeNs now) {
  Flow* flow = find(id);
  if (flow == nullptr) return;
  flow->released = true;
  if (flow->state == FlowState::closed || flow->state == FlowState::time_wait) return tell_gone(*flow);
  reset(*flow, FlowError::reset, now);
}

void Stack::release(FlowId id, TimeNs now, bool keeps_place) {
  Flow* flow = find(id);
  if (flow == nullptr || flow->released) return;
  flow->released = true;
  if (!keeps_place) flow->slow->share.orphans_max = ~0u;
  if (flow->state == FlowState::closed || flow->state == FlowState::time_wait) return tell_gone(*flow);
  if (flow->state == FlowState::fin_wait_2) enter(*flow, FlowState::fin_wait_2, now);
  finish(id);
  become_orphan(*flow, now);
}

void Stack::set_options(FlowId id, const FlowOptions& options, TimeNs now) {
  Flow* flow = find(id);
  if (flow == nullptr) return;
  flow->slow->options = options;
  flow->nagle = options.nagle;
  flow->heard_ms = timestamp(0, now);
  if (flow->state != FlowState::closed) arm(*flow);
  make_ready(*flow);
}

}  // namespace offpath::tcp
