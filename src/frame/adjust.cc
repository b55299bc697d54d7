// Built with -O3 (CMakeLists.txt): the loops below are written for the vectoriser.
#include "frame/adjust.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/bytes.h"

namespace offpath::frame {

namespace {

// Four values of 4 bytes or two of 8: the vectors that every 64-bit machine has.
using Words4 [[gnu::vector_size(16)]] = std::uint32_t;
using Words8 [[gnu::vector_size(16)]] = std::uint64_t;

template <class Vector>
Vector load_vector(const std::byte* from) noexcept {
  Vector value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class Vector>
void store_vector(std::byte* to, Vector value) noexcept {
  std::memcpy(to, &value, sizeof value);
}

template <class Word>
void rebase(std::byte* offsets, std::uint64_t count, Word base) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) {
    std::byte* at = offsets + i * sizeof(Word);
    store(at, static_cast<Word>(load<Word>(at) - base));
  }
}

template <class Offset>
bool ascend(const std::byte* offsets, std::uint64_t count) noexcept {
  if (count == 0) return true;
  bool wrong = load<Offset>(offsets) < 0;
  for (std::uint64_t i = 1; i < count; ++i) {
    const std::byte* at = offsets + i * sizeof(Offset);
    wrong |= load<Offset>(at) < load<Offset>(at - sizeof(Offset));
  }
  return !wrong;
}

// A width known to the compiler makes each copy one load and one store.
template <std::size_t width>
void gather(const std::byte* rows, std::size_t stride_bytes, std::uint64_t count, std::byte* target) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) std::memcpy(target + i * width, rows + i * stride_bytes, width);
}

// The bits of a word that stand for the 8 bytes of `bytes`: bit i is set if byte i is not 0.
std::byte nonzero_bytes(std::uint64_t bytes) noexcept {
  constexpr std::uint64_t low7 = 0x7F7F7F7F7F7F7F7F;
  const std::uint64_t high = (((bytes & low7) + low7) | bytes) & ~low7;  // 0x80 in each byte that is not 0
  return static_cast<std::byte>((high >> 7) * 0x0102040810204080 >> 56);
}

}  // namespace

void shift_bits(std::byte* bits, unsigned bit_offset, std::uint64_t count) noexcept {
  const std::uint64_t bytes = bitmap_bytes(count);
  const std::uint64_t source_bytes = bitmap_bytes(count + bit_offset);
  if (bit_offset != 0) {
    std::uint64_t at = 0;
    // Nine bytes make eight; a step reads at or after the place where it writes.
    for (; at + 9 <= source_bytes; at += 8) {
      const auto low = load<std::uint64_t>(bits + at);
      const auto high = std::to_integer<std::uint64_t>(bits[at + 8]);
      store(bits + at, (low >> bit_offset) | (high << (64 - bit_offset)));
    }
    for (; at < bytes; ++at) {
      const unsigned low = std::to_integer<unsigned>(bits[at]);
      const unsigned high = at + 1 < source_bytes ? std::to_integer<unsigned>(bits[at + 1]) : 0;
      bits[at] = static_cast<std::byte>((low >> bit_offset) | (high << (8 - bit_offset)));
    }
  }
  if (count % 8 != 0) bits[bytes - 1] &= static_cast<std::byte>((1U << (count % 8)) - 1);
  if (source_bytes > bytes) bits[bytes] = std::byte{0};
}

std::uint64_t count_zero_bits(const std::byte* bits, std::uint64_t count) noexcept {
  std::uint64_t ones = 0;
  const std::uint64_t words = count / 64;
  for (std::uint64_t i = 0; i < words; ++i) {
    ones += static_cast<std::uint64_t>(std::popcount(load<std::uint64_t>(bits + i * 8)));
  }
  for (std::uint64_t i = words * 64; i < count; i += 8) {
    const unsigned mask = count - i >= 8 ? 0xFFU : (1U << (count - i)) - 1;
    ones += static_cast<std::uint64_t>(std::popcount(std::to_integer<unsigned>(bits[i / 8]) & mask));
  }
  return count - ones;
}

void rebase32(std::byte* offsets, std::uint64_t count, std::uint32_t base) noexcept { rebase(offsets, count, base); }
void rebase64(std::byte* offsets, std::uint64_t count, std::uint64_t base) noexcept { rebase(offsets, count, base); }

bool offsets_ascend32(const std::byte* offsets, std::uint64_t count) noexcept {
  return ascend<std::int32_t>(offsets, count);
}
bool offsets_ascend64(const std::byte* offsets, std::uint64_t count) noexcept {
  return ascend<std::int64_t>(offsets, count);
}

void gather_lane(const std::byte* rows, std::size_t stride_bytes, std::size_t value_bytes, std::uint64_t count,
                 std::byte* target) noexcept {
  switch (value_bytes) {
    case 1:
      return gather<1>(rows, stride_bytes, count, target);
    case 2:
      return gather<2>(rows, stride_bytes, count, target);
    case 4:
      return gather<4>(rows, stride_bytes, count, target);
    case 8:
      return gather<8>(rows, stride_bytes, count, target);
    case 16:
      return gather<16>(rows, stride_bytes, count, target);
    default:
      break;
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    std::memcpy(target + i * value_bytes, rows + i * stride_bytes, value_bytes);
  }
}

void split3x4(const std::byte* rows, std::uint64_t count, std::byte* x, std::byte* y, std::byte* z) noexcept {
  std::uint64_t i = 0;
  for (; i + 4 <= count; i += 4) {  // x0 y0 z0 x1 | y1 z1 x2 y2 | z2 x3 y3 z3
    const auto a = load_vector<Words4>(rows + i * 12);
    const auto b = load_vector<Words4>(rows + i * 12 + 16);
    const auto c = load_vector<Words4>(rows + i * 12 + 32);
    const Words4 x23 = __builtin_shufflevector(b, c, 2, 5, 2, 5);
    const Words4 y01 = __builtin_shufflevector(a, b, 1, 4, 1, 4);
    const Words4 y23 = __builtin_shufflevector(b, c, 3, 6, 3, 6);
    const Words4 z01 = __builtin_shufflevector(a, b, 2, 5, 2, 5);
    store_vector(x + i * 4, __builtin_shufflevector(a, x23, 0, 3, 4, 5));
    store_vector(y + i * 4, __builtin_shufflevector(y01, y23, 0, 1, 4, 5));
    store_vector(z + i * 4, __builtin_shufflevector(z01, c, 0, 1, 4, 7));
  }
  if (i == count) return;  // no rows may be no address
  gather<4>(rows + i * 12, 12, count - i, x + i * 4);
  gather<4>(rows + i * 12 + 4, 12, count - i, y + i * 4);
  gather<4>(rows + i * 12 + 8, 12, count - i, z + i * 4);
}

void split3x8(const std::byte* rows, std::uint64_t count, std::byte* x, std::byte* y, std::byte* z) noexcept {
  std::uint64_t i = 0;
  for (; i + 2 <= count; i += 2) {  // x0 y0 | z0 x1 | y1 z1
    const auto a = load_vector<Words8>(rows + i * 24);
    const auto b = load_vector<Words8>(rows + i * 24 + 16);
    const auto c = load_vector<Words8>(rows + i * 24 + 32);
    store_vector(x + i * 8, __builtin_shufflevector(a, b, 0, 3));
    store_vector(y + i * 8, __builtin_shufflevector(a, c, 1, 2));
    store_vector(z + i * 8, __builtin_shufflevector(b, c, 0, 3));
  }
  if (i == count) return;
  gather<8>(rows + i * 24, 24, count - i, x + i * 8);
  gather<8>(rows + i * 24 + 8, 24, count - i, y + i * 8);
  gather<8>(rows + i * 24 + 16, 24, count - i, z + i * 8);
}

void pack_bits(const std::byte* rows, std::size_t stride_bytes, std::uint64_t count, std::byte* target) noexcept {
  std::uint64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    std::uint64_t eight = 0;
    if (stride_bytes == 1) {
      eight = load<std::uint64_t>(rows + i);
    } else {
      for (unsigned k = 0; k < 8; ++k) eight |= std::to_integer<std::uint64_t>(rows[(i + k) * stride_bytes]) << (8 * k);
    }
    target[i / 8] = nonzero_bytes(eight);
  }
  if (i == count) return;
  std::uint64_t rest = 0;
  for (unsigned k = 0; i + k < count; ++k)
    rest |= std::to_integer<std::uint64_t>(rows[(i + k) * stride_bytes]) << (8 * k);
  target[i / 8] = nonzero_bytes(rest);
}

}  // namespace offpath::frame
