#include "tcp/flow/frame_queue.h"
#include "tcp/segment/frame_writer.h"

namespace offpath::tcp {

void FrameQueue::move_strays() {
  while (has_room() && !strays_.empty()) {
    next() = strays_.front();
    strays_.pop_front();
  }
}

FrameToSend* FrameQueue::stray() {
  if (strays_.size() >= strays_max) {
    context_.drop(Drop::no_room);
    return nullptr;
  }
  return &strays_.emplace_back();
}

void FrameQueue::send(const Segment& segment, const MacAddress& to) {
  FrameToSend* frame = stray();
  if (frame == nullptr) return;
  ++context_.counters.segments_out;
  write_segment_frame(segment, {}, context_.own_mss(segment.key.family()), context_.port.mac, to,
                      context_.port.checksum, *frame);
}

void FrameQueue::refuse(const Segment& segment, const MacAddress& from) {
  if (segment.has(flag::rst)) return;
  Segment reset;
  reset.key = segment.key;
  reset.flags = flag::rst;
  if (segment.has(flag::ack)) {
    reset.sequence = segment.acknowledgement;
  } else {
    reset.flags |= flag::ack;
    reset.acknowledgement = segment.end();
  }
  context_.counters.refused += segment.has(flag::syn) ? 1 : 0;
  ++context_.counters.resets_out;
  send(reset, from);
}

}  // namespace offpath::tcp
