#include "tcp/flow/routes.h"
#include "tcp/segment/frame_writer.h"

namespace offpath::tcp {

void Routes::receive(const ArpMessage& message, TimeNs now) {
  neighbours_.on_message(message, now);
  if (const MacAddress* mac = other_.fast != nullptr ? neighbours_.known(message.sender) : nullptr)
    other_.fast->neighbour(message.sender, *mac);
}

void Routes::send_messages() {
  while (const auto send = neighbours_.next_message()) {
    if (other_.slow != nullptr) {
      if (!send->message.reply) other_.slow->resolve(send->message.target);
      continue;
    }
    FrameToSend* frame = frames_.stray();
    if (frame != nullptr) write_arp_frame(send->message, context_.port.mac, send->to, *frame);
  }
}

}  // namespace offpath::tcp
