// Operations on a pack of numbers that are the same for all instruction sets: compilers support `a + b` of two
// registers. `P` is the pack itself, so every instruction set has functions of its own. pack_scalar.h explains the
// other operations.
#pragma once

#include <cstdint>
#include <cstring>

namespace md {

template <class P>
struct Pack {
  template <class V>
  static V add(V a, V b) {
    return a + b;
  }
  template <class V>
  static V sub(V a, V b) {
    return a - b;
  }
  template <class V>
  static V mul(V a, V b) {
    return a * b;
  }
  // The divider works in parallel with the multipliers, which limit the loop.
  template <class V>
  static V inverse(V a) {
    return typename P::Real{1} / a;
  }

  template <class Real, class V>
  static void load_xyz(const Real* x, const std::int32_t* index, V& a, V& b, V& c) {
    V d;
    P::load_four(x, index, a, b, c, d);
  }
  // Loads (a, b, c) from the values of the first `count` indexed atoms, one after the other. Single precision needs
  // nothing faster, because its lists are full.
  template <class V>
  static void subtract_xyz(double* f, const std::int32_t* index, int count, V a, V b, V c) {
    typename P::Real all_a[P::width], all_b[P::width], all_c[P::width];
    std::memcpy(all_a, &a, sizeof a);
    std::memcpy(all_b, &b, sizeof b);
    std::memcpy(all_c, &c, sizeof c);
    for (int k = 0; k < count; ++k) {
      double* at = f + 4 * static_cast<std::int64_t>(index[k]);
      at[0] -= all_a[k];
      at[1] -= all_b[k];
      at[2] -= all_c[k];
    }
  }
  // For each number selected by the mask `any`, writes which of the four masks select it, as bits of a byte. May write
  // garbage after them, `width` bytes in all.
  template <class M>
  static void put_bits(std::uint8_t* out, const M* masks, M any) {
    std::uint32_t left = P::bits_of(any);
    const std::uint32_t bits[4] = {P::bits_of(masks[0]), P::bits_of(masks[1]), P::bits_of(masks[2]),
                                   P::bits_of(masks[3])};
    for (; left != 0; left &= left - 1) {
      const int k = __builtin_ctz(left);
      *out++ = static_cast<std::uint8_t>((bits[0] >> k & 1) | (bits[1] >> k & 1) << 1 | (bits[2] >> k & 1) << 2 |
                                         (bits[3] >> k & 1) << 3);
    }
  }
  // Adds the sum over each pack to the three values at f.
  template <class V>
  static void add_sums(double* f, V a, V b, V c) {
    f[0] += P::sum(a);
    f[1] += P::sum(b);
    f[2] += P::sum(c);
  }
};

}  // namespace md
