#include "tcp/flow/reassembly.h"

#include <algorithm>

namespace offpath::tcp {

void Reassembly::remove(std::size_t index) noexcept {
  std::copy(ranges_.begin() + index + 1, ranges_.begin() + count_, ranges_.begin() + index);
  --count_;
}

bool Reassembly::add(SequenceRange range) noexcept {
  if (range.empty()) return true;
  for (std::size_t i = 0; i < count_;) {
    const SequenceRange& other = ranges_[i];
    if (other.end < range.begin || range.end < other.begin) {
      ++i;
      continue;
    }
    // Ranges that touch become one, which may now touch a range that was passed already.
    range = {earlier(range.begin, other.begin), later(range.end, other.end)};
    remove(i);
    i = 0;
  }
  if (count_ == ranges_max) return false;
  std::copy_backward(ranges_.begin(), ranges_.begin() + count_, ranges_.begin() + count_ + 1);
  ranges_[0] = range;
  ++count_;
  return true;
}

bool Reassembly::contains(SequenceRange range) const noexcept {
  return std::ranges::any_of(
      ranges(), [range](const SequenceRange& other) { return other.begin <= range.begin && range.end <= other.end; });
}

Sequence Reassembly::advance(Sequence next) noexcept {
  for (std::size_t i = 0; i < count_;) {
    if (ranges_[i].begin > next) {
      ++i;
      continue;
    }
    next = later(next, ranges_[i].end);
    remove(i);
    i = 0;
  }
  return next;
}

}  // namespace offpath::tcp
