#include "testing/tcp/impaired_port.h"

#include <array>

#include "tcp/segment/segmentation.h"

namespace offpath::tcp {

void ImpairedPort::send_due(TimeNs now) {
  std::vector<std::byte> bytes;
  while (out_.pop(bytes, now)) {
    FrameToSend frame;
    frame.payload[0] = bytes;
    static_cast<void>(inner_.transmit(std::span(&frame, 1), now));  // frames that are not taken are lost
  }
}

std::size_t ImpairedPort::transmit(std::span<const FrameToSend> frames, TimeNs now) {
  for (const FrameToSend& frame : frames)
    for_each_wire_frame(frame, [&](std::vector<std::byte>&& bytes) { out_.push(std::move(bytes), now); });
  send_due(now);
  return frames.size();
}

std::size_t ImpairedPort::receive(std::span<ReceivedFrame> frames, TimeNs now) {
  send_due(now);
  std::array<ReceivedFrame, 64> arrived;
  for (std::size_t i = 0, count = inner_.receive(arrived, now); i < count; ++i) {
    std::vector<std::byte> bytes(arrived[i].bytes.begin(), arrived[i].bytes.end());
    if (arrived[i].checksum_verified) complete_tcp_checksum(bytes);
    in_.push(std::move(bytes), now);
  }
  given_.clear();
  std::vector<std::byte> bytes;
  while (given_.size() < frames.size() && in_.pop(bytes, now)) given_.push_back(std::move(bytes));
  for (std::size_t i = 0; i < given_.size(); ++i) frames[i] = {given_[i], false};
  return given_.size();
}

PortCounters ImpairedPort::counters() const {
  PortCounters counters = inner_.counters();
  counters.dropped_out += out_.dropped();
  counters.dropped_in += in_.dropped();
  return counters;
}

}  // namespace offpath::tcp
