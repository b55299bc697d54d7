#include "tcp/flow/routes.h"

#include <algorithm>

#include "tcp/segment/neighbour_message.h"

namespace offpath::tcp {

void Routes::receive(const NeighbourMessage& message, TimeNs now) {
  // A solicitation for an address under duplicate detection gets no answer.
  if (!message.target.is_v4() && !message.reply && !own_.is_usable()) return overhear(message, now);
  own_.take(message, now);
  note_change();
  if (!concerns(message)) return;
  neighbours_.on_message(message, now);
  if (const MacAddress* mac = other_.fast != nullptr ? neighbours_.known(message.sender) : nullptr)
    other_.fast->neighbour(message.sender, *mac);
}

void Routes::overhear(const NeighbourMessage& message, TimeNs now) {
  own_.take(message, now);
  note_change();
  if (concerns(message)) neighbours_.overhear(message, now);
}

// Unused routers take no entry of the neighbours' table.
bool Routes::concerns(const NeighbourMessage& message) const noexcept {
  return !message.router_s || message.sender == context_.router;
}

void Routes::on_time(TimeNs now) {
  neighbours_.on_time(now);
  own_.on_time(now);
  note_change();
}

void Routes::settle_own(bool usable, TimeNs now) {
  own_.settle(usable, now);
  note_change();
}

void Routes::note_change() {
  const Known known{own_.is_usable(), context_.is_duplicate, context_.router};
  if (known == known_) return;
  known_ = known;
  released_ = waiting_.size();
}

// If too many flows wait, the others try again by their timers.
const MacAddress* Routes::wait_for_own(const Flow& flow, const IpAddress& hop) {
  const bool waits =
      std::any_of(waiting_.begin() + static_cast<std::ptrdiff_t>(released_), waiting_.end(),
                  [&](const auto& each) { return each.flow == flow.index && each.generation == flow.generation; });
  if (!waits && waiting_.size() < context_.options.neighbours.waiting_max)
    waiting_.push_back({flow.index, hop, false, flow.generation});
  return nullptr;
}

std::optional<Neighbours::Woken> Routes::next_woken(TimeNs now) {
  if (released_ > 0) {
    --released_;
    Neighbours::Woken woken = waiting_.front();
    waiting_.pop_front();
    woken.found = !context_.is_duplicate;
    return woken;
  }
  while (auto woken = neighbours_.next_woken()) {
    if (!woken->found && own_.take_silence(woken->address, now)) {
      note_change();
      // Flows that waited for a router try another one that may answer.
      woken->address = context_.router;
      woken->found = own_.has_router();
    }
    if (woken->flow != Neighbours::no_flow) return woken;
  }
  return std::nullopt;
}

void Routes::doubt(const Flow& flow, TimeNs now) {
  const IpAddress hop = context_.next_hop(flow.key.remote.address);
  if (hop == context_.router) neighbours_.doubt(hop, now);
}

void Routes::send_messages() {
  for (FrameToSend made; own_.next_frame(made);)
    if (FrameToSend* const frame = frames_.stray()) *frame = made;
  while (const auto send = neighbours_.next_message()) {
    if (other_.slow != nullptr) {
      if (!send->message.reply) other_.slow->resolve(send->message.target);
      continue;
    }
    FrameToSend* frame = frames_.stray();
    if (frame != nullptr) write_neighbour_frame(send->message, context_.port.mac, send->to, *frame);
  }
}

}  // namespace offpath::tcp
