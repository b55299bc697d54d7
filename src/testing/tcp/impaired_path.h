// One direction of a bad network: frames are lost, doubled, damaged, late and out of order, by a seed, and wait in a
// bounded queue for a bottleneck. Reads no clock.
#pragma once

#include <cstdint>
#include <queue>
#include <random>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"

namespace offpath::tcp {

struct Impairments {
  double loss = 0, duplicate = 0, corrupt = 0, reorder = 0;  // probabilities, each frame's
  TimeNs delay_ns = 0;
  // Frames that are lost in a row, within 10 ms: otherwise a burst would take all tries of a flow that sends little.
  std::uint32_t loss_burst = 1;
  TimeNs jitter_ns = 0;                 // each frame is up to so much later; the order stays
  TimeNs reorder_ns = millisecond_ns;   // how much later a frame comes that is reordered, at most
  std::uint64_t bytes_per_second = 0;   // of the bottleneck; 0: none
  std::uint64_t queue_bytes = 1 << 20;  // before the bottleneck; further frames are dropped
  // beyond so many in the queue, frames are marked whose senders understand that (RFC 3168); 0: none
  std::uint64_t mark_bytes = 0;
};

class ImpairedPath {
 public:
  ImpairedPath(const Impairments& impairments, std::uint64_t seed) : impairments_(impairments), random_(seed) {}

  void push(std::vector<std::byte> frame, TimeNs now);
  // The next frame that has arrived by now; false: there is none.
  [[nodiscard]] bool pop(std::vector<std::byte>& frame, TimeNs now);
  [[nodiscard]] TimeNs next_due() const { return waiting_.empty() ? never : waiting_.top().due; }
  [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_; }
  [[nodiscard]] std::uint64_t marked() const noexcept { return marked_; }
  void set(const Impairments& impairments) noexcept { impairments_ = impairments; }

 private:
  struct Frame {
    TimeNs due;
    std::uint64_t order;
    std::vector<std::byte> bytes;
    bool operator>(const Frame& other) const noexcept {
      return due != other.due ? due > other.due : order > other.order;
    }
  };
  [[nodiscard]] bool chance(double probability) {
    return probability > 0 && std::uniform_real_distribution<>(0, 1)(random_) < probability;
  }
  void enqueue(std::vector<std::byte> frame, TimeNs now);

  Impairments impairments_;
  std::mt19937_64 random_;
  std::priority_queue<Frame, std::vector<Frame>, std::greater<>> waiting_;
  std::uint64_t order_ = 0, dropped_ = 0, marked_ = 0;
  std::uint32_t burst_left_ = 0;  // frames still to be lost with the last one
  TimeNs burst_until_ = 0;
  TimeNs last_due_ = 0;  // of a frame that was not reordered
  TimeNs free_at_ = 0;   // when the bottleneck has sent the waiting frames
};

}  // namespace offpath::tcp
