// Sequence numbers of TCP (RFC 9293, 3.4): 32 bits that wrap.
#pragma once

#include <algorithm>
#include <cstdint>

namespace offpath::tcp {

// Comparisons mean "before" and "after" on the circle, for numbers less than 2^31 apart. This is not a total order:
// compare only numbers of one connection, and compare a peer's number before using it.
class Sequence {
 public:
  constexpr Sequence() = default;
  constexpr explicit Sequence(std::uint32_t value) noexcept : value_(value) {}

  [[nodiscard]] constexpr std::uint32_t value() const noexcept { return value_; }

  friend constexpr Sequence operator+(Sequence a, std::uint32_t bytes) noexcept { return Sequence(a.value_ + bytes); }
  friend constexpr Sequence operator-(Sequence a, std::uint32_t bytes) noexcept { return Sequence(a.value_ - bytes); }
  constexpr Sequence& operator+=(std::uint32_t bytes) noexcept { return *this = *this + bytes; }

  // How far a is behind b; negative if a is before b.
  friend constexpr std::int32_t operator-(Sequence a, Sequence b) noexcept {
    return static_cast<std::int32_t>(a.value_ - b.value_);
  }
  friend constexpr bool operator==(Sequence, Sequence) noexcept = default;
  friend constexpr bool operator<(Sequence a, Sequence b) noexcept { return a - b < 0; }
  friend constexpr bool operator>(Sequence a, Sequence b) noexcept { return b < a; }
  friend constexpr bool operator<=(Sequence a, Sequence b) noexcept { return a - b <= 0; }
  friend constexpr bool operator>=(Sequence a, Sequence b) noexcept { return b <= a; }

 private:
  std::uint32_t value_ = 0;
};

[[nodiscard]] constexpr Sequence earlier(Sequence a, Sequence b) noexcept { return a < b ? a : b; }
[[nodiscard]] constexpr Sequence later(Sequence a, Sequence b) noexcept { return a < b ? b : a; }
// Bytes from `from` to `to`. `to` must not be before `from`.
[[nodiscard]] constexpr std::uint32_t bytes_between(Sequence from, Sequence to) noexcept {
  return to.value() - from.value();
}

// The bytes from begin to end, end excluded.
struct SequenceRange {
  Sequence begin, end;
  [[nodiscard]] constexpr std::uint32_t bytes() const noexcept { return bytes_between(begin, end); }
  [[nodiscard]] constexpr bool empty() const noexcept { return begin == end; }
  friend constexpr bool operator==(const SequenceRange&, const SequenceRange&) noexcept = default;
};

}  // namespace offpath::tcp
