// One number at a time: the reference, for any processor. What the operations mean stands here; other packs do the same
// for `width` numbers.
#pragma once

#include <cstdint>

namespace md {

template <class R>
struct PackScalar {
  using Real = R;
  using V = R;
  using M = bool;  // which of the numbers count
  static constexpr int width = 1;

  static V same(double value) { return static_cast<V>(value); }
  static V load(const Real* from) { return *from; }
  static V add(V a, V b) { return a + b; }
  static V sub(V a, V b) { return a - b; }
  static V mul(V a, V b) { return a * b; }
  static V fma(V a, V b, V c) { return a * b + c; }  // fused where the processor can
  static V fms(V a, V b, V c) { return a * b - c; }
  static V inverse(V a) { return 1 / a; }
  static M all() { return true; }
  static M first(int count) { return count > 0; }
  static M less(V a, V b, M counted) { return counted && a < b; }
  static M less_equal(V a, V b, M counted) { return counted && a <= b; }
  static V where(M mask, V a) { return mask ? a : 0; }  // 0 elsewhere
  static double sum(V a) { return a; }

  // Atoms of four values each, by index; all `width` indices are valid atoms.
  static void load_xyz(const Real* x, const std::int32_t* index, V& a, V& b, V& c) {
    const Real* at = x + 4 * static_cast<std::int64_t>(*index);
    a = at[0];
    b = at[1];
    c = at[2];
  }
  // Takes (a, b, c) from the first `count` indexed atoms' values, one after the other.
  static void subtract_xyz(double* f, const std::int32_t* index, int /*count*/, V a, V b, V c) {
    double* at = f + 4 * static_cast<std::int64_t>(*index);
    at[0] -= a;
    at[1] -= b;
    at[2] -= c;
  }
  // Adds the sums over each pack to the three values at f.
  static void add_sums(double* f, V a, V b, V c) {
    f[0] += a;
    f[1] += b;
    f[2] += c;
  }
  // Writes the numbers from `first` on, or those at `name`, that the mask says; may write rubbish after them. Returns the end.
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
