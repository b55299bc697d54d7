#include "tcp/flow/routes.h"
#include "tcp/segment/neighbour_message.h"

namespace offpath::tcp {

void Routes::receive(const NeighbourMessage& message, TimeNs now) {
  // A solicitation for an address that is still checked gets no answer.
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

// Routers that are not used take no neighbour's place.
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
  if (waiting_.size() < context_.options.neighbours.waiting_max)
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
  const auto woken = neighbours_.next_woken();
  if (woken && !woken->found && woken->address == context_.router) {
    own_.lose_router(now);
    note_change();
  }
  return woken;
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
