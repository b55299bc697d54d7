#include "testing/tcp/memory_port.h"

#include "tcp/segment/segmentation.h"

namespace offpath::tcp {

std::pair<std::unique_ptr<MemoryPort>, std::unique_ptr<MemoryPort>> MemoryPort::pair(const MemoryPortOptions& options) {
  std::unique_ptr<MemoryPort> one(new MemoryPort(options, 1)), two(new MemoryPort(options, 2));
  one->other_ = two.get();
  two->other_ = one.get();
  return {std::move(one), std::move(two)};
}

PortCapabilities MemoryPort::capabilities() const {
  return {{2, 0, 0, 0, 0, number_}, options_.mtu, options_.checksum, options_.segmentation_bytes};
}

void MemoryPort::close() {
  if (other_ != nullptr) other_->other_ = nullptr;
  other_ = nullptr;
  waiting_.clear();
}

void MemoryPort::arrive(Arrived frame) {
  if (waiting_.size() >= options_.frames_max) {
    ++counters_.dropped_in;
    return;
  }
  waiting_.push_back(std::move(frame));
}

std::size_t MemoryPort::receive(std::span<ReceivedFrame> frames, TimeNs now) {
  given_.clear();
  while (given_.size() < frames.size() && !waiting_.empty()) {
    given_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  for (std::size_t i = 0; i < given_.size(); ++i) {
    frames[i] = {given_[i].bytes, given_[i].checksum_verified};
    ++counters_.frames_in;
    counters_.bytes_in += given_[i].bytes.size();
    if (pcap_ != nullptr) pcap_->write(given_[i].bytes, now);
  }
  return given_.size();
}

std::size_t MemoryPort::transmit(std::span<const FrameToSend> frames, TimeNs now) {
  const auto send = [&](std::vector<std::byte>&& bytes, bool verified) {
    ++counters_.frames_out;
    counters_.bytes_out += bytes.size();
    if (pcap_ != nullptr) pcap_->write(bytes, now);
    if (seen_) seen_(bytes);
    if (other_ != nullptr) other_->arrive({std::move(bytes), verified});
  };
  for (const FrameToSend& frame : frames) {
    if (options_.whole_segments) {
      send(whole_frame(frame), frame.checksum_partial);
    } else {
      for_each_wire_frame(frame, [&](std::vector<std::byte>&& bytes) { send(std::move(bytes), false); });
    }
  }
  return frames.size();
}

}  // namespace offpath::tcp
