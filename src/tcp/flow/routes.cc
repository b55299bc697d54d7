#include "tcp/flow/routes.h"
#include "tcp/segment/neighbour_message.h"

namespace offpath::tcp {

void Routes::receive(const NeighbourMessage& message, TimeNs now) {
  // Who asks for an address that is being checked is not answered.
  if (!message.target.is_v4() && !message.reply && !own_.is_usable()) return overhear(message, now);
  own_.take(message, now);
  neighbours_.on_message(message, now);
  if (const MacAddress* mac = other_.fast != nullptr ? neighbours_.known(message.sender) : nullptr)
    other_.fast->neighbour(message.sender, *mac);
}

void Routes::overhear(const NeighbourMessage& message, TimeNs now) {
  own_.take(message, now);
  neighbours_.overhear(message, now);
}

void Routes::on_time(TimeNs now) {
  neighbours_.on_time(now);
  own_.on_time(now);
}

// Too many of them ask again when their timers say so.
const MacAddress* Routes::wait_for_own(const Flow& flow, const IpAddress& hop) {
  if (waiting_.size() < context_.options.neighbours.waiting_max) waiting_.push_back({flow.index, hop, false});
  return nullptr;
}

std::optional<Neighbours::Woken> Routes::next_woken() {
  if (waiting_.empty() || !(own_.is_usable() || context_.is_duplicate)) return neighbours_.next_woken();
  Neighbours::Woken woken = waiting_.front();
  waiting_.pop_front();
  woken.found = own_.is_usable();
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
