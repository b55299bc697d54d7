// Data that has arrived out of order: ranges of sequence numbers behind a gap. The bytes themselves are already at
// their places in the receive buffer, so only the gap has to be filled.
#pragma once

#include <array>
#include <span>

#include "tcp/segment/sequence.h"

namespace offpath::tcp {

class Reassembly {
 public:
  // every second segment of a receive ring of 1 MiB, the losses of an overflowing queue
  static constexpr std::size_t ranges_max = 384;

  // Adds the arrived bytes of `range`, which lie within the window behind `next`, the first missing byte. False: there
  // are too many ranges, and the bytes count as not received.
  [[nodiscard]] bool add(SequenceRange range) noexcept;

  [[nodiscard]] bool contains(SequenceRange range) const noexcept;

  // All bytes before `next` have arrived. Returns the first missing byte, and removes the ranges before it.
  [[nodiscard]] Sequence advance(Sequence next) noexcept;

  // Disjoint, the most recently extended range first: RFC 2018's order of reports.
  [[nodiscard]] std::span<const SequenceRange> ranges() const noexcept { return std::span(ranges_).first(count_); }
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }

 private:
  void remove(std::size_t index) noexcept;

  std::array<SequenceRange, ranges_max> ranges_{};
  std::size_t count_ = 0;
};

}  // namespace offpath::tcp
