// Frames on their way to the port: the burst being filled, and frames that no flow sends (ARP, RST, SYN-ACK), which
// wait until a burst has room.
#pragma once

#include <deque>
#include <span>

#include "tcp/flow/context.h"
#include "tcp/segment/frame.h"
#include "tcp/segment/segment.h"

namespace offpath::tcp {

class FrameQueue {
 public:
  static constexpr std::size_t strays_max = 512;

  explicit FrameQueue(StackContext& context) noexcept : context_(context) {}

  // A burst: begin, take frames while there is room, finish.
  void begin(std::span<FrameToSend> frames) noexcept {
    out_ = frames;
    used_ = 0;
  }
  [[nodiscard]] bool has_room() const noexcept { return used_ < out_.size(); }
  [[nodiscard]] FrameToSend& next() noexcept { return out_[used_++]; }
  void move_strays();
  [[nodiscard]] std::size_t finish() noexcept {
    out_ = {};
    return used_;
  }

  [[nodiscard]] FrameToSend* stray();  // a frame that no flow sends; null: too many wait, and a drop was counted
  void send(const Segment& segment, const MacAddress& to);
  void refuse(const Segment& segment, const MacAddress& from);  // answers with RST (RFC 9293, 3.10.7.1)
  [[nodiscard]] bool empty() const noexcept { return strays_.empty(); }
  // Senders with very many frames leave half of the places to others.
  [[nodiscard]] bool is_half_empty() const noexcept { return strays_.size() < strays_max / 2; }

 private:
  StackContext& context_;
  std::deque<FrameToSend> strays_;
  std::span<FrameToSend> out_;
  std::size_t used_ = 0;
};

}  // namespace offpath::tcp
