#include "testing/tcp/impaired_path.h"

#include "tcp/segment/ethernet.h"
#include "tcp/segment/ip_packet.h"
#include "tcp/segment/neighbour_message.h"

namespace offpath::tcp {

void ImpairedPath::push(std::vector<std::byte> frame, TimeNs now) {
  if (now > burst_until_) burst_left_ = 0;
  if (burst_left_ == 0 && chance(impairments_.loss)) {
    burst_left_ = impairments_.loss_burst;
    burst_until_ = now + 10 * millisecond_ns;
  }
  if (burst_left_ > 0) {
    --burst_left_;
    ++dropped_;
    return;
  }
  if (chance(impairments_.duplicate)) enqueue(frame, now);
  if (chance(impairments_.corrupt) && frame.size() > ethernet_header_bytes) {
    // Frames without a checksum of their own, such as ARP, are dropped, as the link's checksum would do. So are those
    // of neighbour discovery: their Ethernet addresses are not part of it.
    const std::uint16_t type = read_ethernet_header(frame.data()).type;
    if ((type != ethertype_ipv4 && type != ethertype_ipv6) || read_neighbour_frame(frame)) {
      ++dropped_;
      return;
    }
    // One bit, which every checksum finds.
    const std::size_t at = ethernet_header_bytes + random_() % (frame.size() - ethernet_header_bytes);
    frame[at] ^= static_cast<std::byte>(1u << random_() % 8);
  }
  enqueue(std::move(frame), now);
}

void ImpairedPath::enqueue(std::vector<std::byte> frame, TimeNs now) {
  TimeNs due = now;
  if (impairments_.bytes_per_second != 0) {
    const double bytes_per_ns = static_cast<double>(impairments_.bytes_per_second) / second_ns;
    const TimeNs begin = std::max(now, free_at_);
    if (static_cast<double>(begin - now) * bytes_per_ns > static_cast<double>(impairments_.queue_bytes)) {
      ++dropped_;
      return;
    }
    if (impairments_.mark_bytes != 0 &&
        static_cast<double>(begin - now) * bytes_per_ns > static_cast<double>(impairments_.mark_bytes))
      marked_ += mark_congestion(frame) ? 1 : 0;
    free_at_ = begin + static_cast<TimeNs>(static_cast<double>(frame.size()) / bytes_per_ns);
    due = free_at_;
  }
  due += impairments_.delay_ns;
  if (impairments_.jitter_ns > 0) {
    due += static_cast<TimeNs>(random_() % static_cast<std::uint64_t>(impairments_.jitter_ns));
    last_due_ = due = std::max(due, last_due_);
  }
  if (chance(impairments_.reorder))
    due += 1 + static_cast<TimeNs>(random_() % static_cast<std::uint64_t>(impairments_.reorder_ns));
  waiting_.push({due, order_++, std::move(frame)});
}

bool ImpairedPath::pop(std::vector<std::byte>& frame, TimeNs now) {
  if (waiting_.empty() || waiting_.top().due > now) return false;
  // The queue gives a const reference only, and the frame goes with it.
  frame = std::move(const_cast<Frame&>(waiting_.top()).bytes);
  waiting_.pop();
  return true;
}

}  // namespace offpath::tcp
