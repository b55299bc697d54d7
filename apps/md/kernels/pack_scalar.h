// One number at a time: the reference, for any processor. This file and pack.h explain the operations; other packs do
// the same for `width` numbers.
#pragma once

#include "md/kernels/pack.h"

namespace md {

template <class R>
struct PackScalar : Pack<PackScalar<R>> {
  using Real = R;
  using V = R;
  using M = bool;  // selects numbers
  static constexpr int width = 1;

  static V same(double value) { return static_cast<V>(value); }
  static V load(const Real* from) { return *from; }
  static V fma(V a, V b, V c) { return a * b + c; }  // fused if the processor supports it
  static V fms(V a, V b, V c) { return a * b - c; }
  static V sqrt(V a) { return __builtin_sqrt(a); }
  // Writes the whole part of positive numbers, at most `last`, and returns the rest, at most 1.
  static V place(V at, std::int32_t last, std::int32_t* whole) {
    *whole = at < static_cast<V>(last) ? static_cast<std::int32_t>(at) : last;
    const V left = at - static_cast<V>(*whole);
    return left < 1 ? left : 1;
  }
  static M all() { return true; }
  static M first(int count) { return count > 0; }
  static M less(V a, V b, M counted) { return counted && a < b; }
  static M less_equal(V a, V b, M counted) { return counted && a <= b; }
  static M either(M a, M b) { return a || b; }
  static V where(M mask, V a) { return mask ? a : 0; }  // 0 elsewhere
  static double sum(V a) { return a; }

  // The mask as bits, and which of `width` bytes have a set bit.
  static std::uint32_t bits_of(M mask) { return mask ? 1 : 0; }
  static M with_bit(const std::uint8_t* bytes, int bit) { return (*bytes >> bit & 1) != 0; }

  // Loads atoms of four values each by index; all `width` indices are valid atoms. load_xyz (pack.h) loads three.
  static void load_four(const Real* x, const std::int32_t* index, V& a, V& b, V& c, V& d) {
    const Real* at = x + 4 * static_cast<std::int64_t>(*index);
    a = at[0];
    b = at[1];
    c = at[2];
    d = at[3];
  }
  // Writes the selected numbers from `first` on, or those at `name`; may write garbage after them. Returns the end.
  static std::int32_t* append_from(std::int32_t* out, std::int32_t first, M mask) {
    *out = first;
    return out + (mask ? 1 : 0);
  }
  static std::int32_t* append_named(std::int32_t* out, const std::int32_t* name, M mask) {
    *out = *name;
    return out + (mask ? 1 : 0);
  }
};

}  // namespace md
