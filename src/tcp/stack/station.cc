#include "tcp/stack/station.h"

namespace offpath::tcp {

bool Station::poll(TimeNs now) {
  bool worked = receive(now);
  if (stack_.next_due() <= now) {
    stack_.on_time(now);
    worked = true;
  }
  if (react_) react_(now);
  return send(now) || worked;
}

bool Station::receive(TimeNs now) {
  constexpr int bursts_max = 4;  // then it is the others' turn
  bool worked = false;
  for (int i = 0; i < bursts_max; ++i) {
    const std::size_t count = port_.receive(received_, now);
    for (std::size_t at = 0; at < count; ++at) stack_.receive(received_[at], now);
    worked |= count > 0;
    if (count < burst) break;
  }
  return worked;
}

bool Station::send(TimeNs now) {
  constexpr int bursts_max = 8;
  bool worked = false;
  for (int i = 0; i < bursts_max; ++i) {
    if (!send_kept(now)) break;
    const std::size_t count = stack_.transmit(frames_, now);
    if (count == 0) break;
    worked = true;
    const std::size_t taken = port_.transmit(std::span(frames_).first(count), now);
    for (std::size_t at = taken; at < count; ++at) keep(frames_[at]);
  }
  return worked;
}

void Station::keep(const FrameToSend& frame) {
  Kept& kept = kept_.emplace_back();
  kept.frame = frame;
  for (const Bytes& part : frame.payload) kept.payload.insert(kept.payload.end(), part.begin(), part.end());
  kept.frame.payload = {Bytes(kept.payload), Bytes()};
}

// True if none is left.
bool Station::send_kept(TimeNs now) {
  while (!kept_.empty()) {
    if (port_.transmit(std::span(&kept_.front().frame, 1), now) == 0) return false;
    kept_.pop_front();
  }
  return true;
}

bool Station::fall_asleep(TimeNs now) {
  return kept_.empty() && !stack_.wants_to_send() && next_deadline() > now && port_.fall_asleep(now);
}

}  // namespace offpath::tcp
