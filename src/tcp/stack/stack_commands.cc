// The commands of the owner.
#include <algorithm>

#include "tcp/flow/positions.h"
#include "tcp/stack/stack.h"

namespace offpath::tcp {

namespace {

constexpr std::uint64_t released_window_bytes = 65'535;

}  // namespace

Status Stack::listen(IpFamily family, std::uint16_t port, std::uint64_t tag, std::uint64_t receive_bytes,
                     const FlowOptions& options) {
  if (port == 0) return fail(Error::invalid, "cannot listen on port 0");
  if (!listeners_.add({family, port, tag, receive_bytes, options}))
    return fail(Error::exists, "port {} already has a listener", port);
  if (other_.slow != nullptr) other_.slow->listen(family, port, receive_bytes, options);
  return {};
}

void Stack::retag_listener(IpFamily family, std::uint16_t port, std::uint64_t tag, const FlowOptions& options) {
  const Listener* const listener = listeners_.retag(family, port, tag, options);
  if (listener != nullptr && other_.slow != nullptr)
    other_.slow->listen(family, port, listener->receive_bytes, options);
}

void Stack::stop_listening(IpFamily family, std::uint16_t port) {
  if (listeners_.remove(family, port) && other_.slow != nullptr) other_.slow->stop_listening(family, port);
}

std::optional<std::uint64_t> Stack::listener(IpFamily family, std::uint16_t port) const noexcept {
  const Listener* const found = listeners_.find(family, port);
  return found == nullptr ? std::nullopt : std::optional(found->tag);
}

Result<FlowId> Stack::connect(std::uint16_t local_port, Endpoint remote, std::uint64_t tag, std::uint64_t receive_bytes,
                              TimeNs now, const FlowOptions& options) {
  return active_.connect(local_port, remote, tag, receive_bytes, now, options);
}

void Stack::offer(FlowId id, std::uint64_t position, TimeNs) {
  Flow* flow = flows_.find(id);
  if (flow == nullptr || flow->state == FlowState::closed || flow->fin_wanted) return;
  flow->offered = std::max(flow->offered, position);
  flows_.make_ready(*flow);
}

void Stack::allow(FlowId id, std::uint64_t position, TimeNs) {
  Flow* flow = flows_.find(id);
  if (flow == nullptr || flow->state == FlowState::closed || position <= flow->allowed) return;
  flow->allowed = position;
  flow->slow->buffer_bytes = std::max(flow->slow->buffer_bytes, position - std::min(position, flow->received));
  if (flow->state == FlowState::syn_sent || flow->state == FlowState::syn_received) return;
  // After a shut the owner may have less room than the announced window. Data beyond it would be lost, and peers have
  // to handle a window that shrinks (RFC 9293, 3.8.6).
  if (bytes_between(flow->receive_next, later(flow->receive_edge, flow->receive_next)) > flow->room()) {
    FlowSlow& slow = *flow->slow;
    slow.edge_told = slow.edge_shrank ? later(slow.edge_told, flow->receive_edge) : flow->receive_edge;
    slow.edge_shrank = true;
    flow->receive_edge = window_edge(*flow);
    flow->wants_ack = true;
    return flows_.make_ready(*flow);
  }
  // The peer is told at once if it may be waiting for room, otherwise when the window has grown considerably.
  const std::int32_t grown = window_edge(*flow) - flow->receive_edge;
  const std::uint32_t left = bytes_between(flow->receive_next, later(flow->receive_edge, flow->receive_next));
  const std::uint64_t buffer = flow->slow->buffer_bytes;
  if (grown <= 0) return;
  const auto by = static_cast<std::uint64_t>(grown);
  if (by >= buffer / 4 || (left < 2u * flow->mss && by >= std::min<std::uint64_t>(flow->mss, buffer / 2))) {
    flow->wants_ack = true;
    flows_.make_ready(*flow);
  }
}

bool Stack::shut(FlowId id) noexcept {
  Flow* flow = flows_.find(id);
  if (flow == nullptr || flow->state == FlowState::closed) return true;
  if (flow->state < FlowState::established || flow->slow->reassembly != nullptr) return false;
  flow->allowed = flow->received;
  flow->slow->buffer_bytes = 0;  // the next window may be smaller
  return true;
}

void Stack::finish(FlowId id) {
  Flow* flow = flows_.find(id);
  if (flow == nullptr || flow->state == FlowState::closed || flow->fin_wanted) return;
  if (flow->state == FlowState::syn_sent && flow->offered == 0 && flow->released)
    return flows_.end(*flow, FlowError::none);
  flow->fin_wanted = true;
  flows_.arm(*flow);
  flows_.make_ready(*flow);
}

void Stack::abort(FlowId id, TimeNs now) {
  Flow* flow = flows_.find(id);
  if (flow == nullptr) return;
  flow->released = true;
  if (flow->state == FlowState::closed || flow->state == FlowState::time_wait) return flows_.tell_gone(*flow);
  flows_.reset(*flow, FlowError::reset, now);
}

void Stack::release(FlowId id, TimeNs now, bool keeps_place) {
  Flow* flow = flows_.find(id);
  if (flow == nullptr || flow->released) return;
  flow->released = true;
  if (!keeps_place) flow->slow->share.orphans_max = ~0u;
  // The peer may always send, so that it is reset instead of waiting for room.
  flow->allowed = std::max(flow->allowed, flow->received + released_window_bytes);
  if (flow->state == FlowState::closed || flow->state == FlowState::time_wait) return flows_.tell_gone(*flow);
  if (flow->state == FlowState::fin_wait_2) flows_.enter(*flow, FlowState::fin_wait_2, now);
  finish(id);
  flows_.become_orphan(*flow, now);
}

void Stack::set_options(FlowId id, const FlowOptions& options, TimeNs now) {
  Flow* flow = flows_.find(id);
  if (flow == nullptr) return;
  flow->slow->options = options;
  flow->nagle = options.nagle;
  if (options.congestion != flow->algorithm) {
    const CongestionControl& before = context_.control(*flow);
    flow->algorithm = options.congestion;
    if (const CongestionControl& control = context_.control(*flow); control.kind() != before.kind()) {
      control.take_over(flow->congestion);
      if (flow->slow->repair != nullptr) flow->slow->repair->may_undo = false;  // to the state of the algorithm before
    }
  }
  flow->heard_ms = context_.timestamp(0, now);
  if (flow->state != FlowState::closed) flows_.arm(*flow);
  flows_.make_ready(*flow);
}

}  // namespace offpath::tcp
