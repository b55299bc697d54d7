// Data that has arrived out of order: ranges of sequence numbers behind a gap. The bytes themselves lie at their places
// in the receive buffer already, so that filling the gap is all there is to do.
#pragma once

#include <array>
#include <span>

#include "tcp/segment/sequence.h"

namespace offpath::tcp {

class Reassembly {
 public:
  // every second segment of a receive ring of 1 MiB, as a queue that overflows loses them
  static constexpr std::size_t ranges_max = 384;

  // Remembers that the bytes of `range` are there. They lie within the window behind `next`, the first byte that is
  // missing, and do not contain it. False: there are too many ranges, and the bytes count as never received.
  [[nodiscard]] bool add(SequenceRange range) noexcept;

  [[nodiscard]] bool contains(SequenceRange range) const noexcept;

  // All bytes before `next` are there. Returns the first one that is not, and forgets the ranges before it.
  [[nodiscard]] Sequence advance(Sequence next) noexcept;

  // Apart from each other, the one that was added to most recently first, as RFC 2018 wants to report them.
  [[nodiscard]] std::span<const SequenceRange> ranges() const noexcept { return std::span(ranges_).first(count_); }
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }

 private:
  void remove(std::size_t index) noexcept;

  std::array<SequenceRange, ranges_max> ranges_{};
  std::size_t count_ = 0;
};

}  // namespace offpath::tcp
