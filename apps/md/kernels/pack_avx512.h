// Eight doubles or sixteen floats in AVX-512 registers. The operations are explained in pack_scalar.h.
#pragma once

#include <immintrin.h>

#include "md/kernels/pack.h"

namespace md {

struct PackAvx512 : Pack<PackAvx512> {
  using Real = double;
  using V = __m512d;
  using M = __mmask8;
  static constexpr int width = 8;

  static V same(double value) { return _mm512_set1_pd(value); }
  static V load(const double* from) { return _mm512_loadu_pd(from); }
  static V fma(V a, V b, V c) { return _mm512_fmadd_pd(a, b, c); }
  static V fms(V a, V b, V c) { return _mm512_fmsub_pd(a, b, c); }
  static V sqrt(V a) { return _mm512_maskz_sqrt_pd(0xFF, a); }
  static V place(V at, std::int32_t last, std::int32_t* whole) {
    const __m256i k = _mm512_maskz_cvttpd_epi32(0xFF, _mm512_maskz_min_pd(0xFF, at, same(last)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(whole), k);
    return _mm512_maskz_min_pd(0xFF, _mm512_sub_pd(at, _mm512_maskz_cvtepi32_pd(0xFF, k)), same(1));
  }
  static M all() { return 0xFF; }
  static M first(int count) { return static_cast<M>((1U << count) - 1); }
  static M less(V a, V b, M counted) { return _mm512_mask_cmp_pd_mask(counted, a, b, _CMP_LT_OQ); }
  static M less_equal(V a, V b, M counted) { return _mm512_mask_cmp_pd_mask(counted, a, b, _CMP_LE_OQ); }
  static M either(M a, M b) { return static_cast<M>(a | b); }
  static V where(M mask, V a) { return _mm512_maskz_mov_pd(mask, a); }
  static M with_bit(const std::uint8_t* bytes, int bit) {
    const __m256i all_bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
    return _mm256_test_epi32_mask(all_bytes, _mm256_set1_epi32(1 << bit));
  }
  static std::uint32_t bits_of(M mask) { return mask; }
  static double sum(V a) {
    const __m256d four = _mm256_add_pd(lower(a), upper(a));
    const __m128d halves = _mm_add_pd(_mm256_castpd256_pd128(four), __builtin_shufflevector(four, four, 2, 3));
    return halves[0] + halves[1];
  }

  // Uses the compilers' own shuffles, and some intrinsics with a full mask: GCC 12 warns about the undefined operands
  // of the plain ones.
  static V even(V a, V b) { return _mm512_maskz_unpacklo_pd(0xFF, a, b); }
  static V odd(V a, V b) { return _mm512_maskz_unpackhi_pd(0xFF, a, b); }
  static __m256d lower(V a) { return __builtin_shufflevector(a, a, 0, 1, 2, 3); }
  static __m256d upper(V a) { return _mm512_maskz_extractf64x4_pd(0xF, a, 1); }

  // Loads four registers of two atoms each, then transposes.
  static void load_four(const double* x, const std::int32_t* index, V& a, V& b, V& c, V& d) {
    const auto at = [x, index](int k) { return x + 4 * static_cast<std::int64_t>(index[k]); };
    const auto two = [&at](int k) {
      return _mm512_maskz_insertf64x4(all(), _mm512_castpd256_pd512(_mm256_load_pd(at(k))), _mm256_load_pd(at(k + 1)),
                                      1);
    };
    const V p = two(0), q = two(2), r = two(4), s = two(6);  // x0 y0 z0 . x1 y1 z1 .
    const V even_pq = even(p, q), odd_pq = odd(p, q);        // x0 x2 z0 z2 x1 x3 z1 z3, y0 y2 . . y1 y3 . .
    const V even_rs = even(r, s), odd_rs = odd(r, s);
    a = __builtin_shufflevector(even_pq, even_rs, 0, 4, 1, 5, 8, 12, 9, 13);
    b = __builtin_shufflevector(odd_pq, odd_rs, 0, 4, 1, 5, 8, 12, 9, 13);
    c = __builtin_shufflevector(even_pq, even_rs, 2, 6, 3, 7, 10, 14, 11, 15);
    d = __builtin_shufflevector(odd_pq, odd_rs, 2, 6, 3, 7, 10, 14, 11, 15);
  }
  static void subtract_xyz(double* f, const std::int32_t* index, int count, V a, V b, V c) {
    const V zero = _mm512_setzero_pd();
    const V ab_even = even(a, b), ab_odd = odd(a, b);      // a0 b0 a2 b2 a4 b4 a6 b6
    const V c_even = even(c, zero), c_odd = odd(c, zero);  // c0 0 c2 0 ...
    const V p = __builtin_shufflevector(ab_even, c_even, 0, 1, 8, 9, 2, 3, 10, 11);
    const V q = __builtin_shufflevector(ab_odd, c_odd, 0, 1, 8, 9, 2, 3, 10, 11);
    const V r = __builtin_shufflevector(ab_even, c_even, 4, 5, 12, 13, 6, 7, 14, 15);
    const V s = __builtin_shufflevector(ab_odd, c_odd, 4, 5, 12, 13, 6, 7, 14, 15);
    const auto take = [f, index](int k, __m256d value) {
      double* at = f + 4 * static_cast<std::int64_t>(index[k]);
      _mm256_store_pd(at, _mm256_sub_pd(_mm256_load_pd(at), value));
    };
    if (count == width) {
      take(0, lower(p));
      take(1, lower(q));
      take(2, upper(p));
      take(3, upper(q));
      take(4, lower(r));
      take(5, lower(s));
      take(6, upper(r));
      take(7, upper(s));
      return;
    }
    take(0, lower(p));
    if (count > 1) take(1, lower(q));
    if (count > 2) take(2, upper(p));
    if (count > 3) take(3, upper(q));
    if (count > 4) take(4, lower(r));
    if (count > 5) take(5, lower(s));
    if (count > 6) take(6, upper(r));
  }
  static void add_sums(double* f, V a, V b, V c) {
    const auto halves = [](V v) { return _mm256_add_pd(lower(v), upper(v)); };
    const __m256d ab = _mm256_hadd_pd(halves(a), halves(b)), c0 = _mm256_hadd_pd(halves(c), _mm256_setzero_pd());
    const __m256d sums = _mm256_add_pd(_mm256_permute2f128_pd(ab, c0, 0x20), _mm256_permute2f128_pd(ab, c0, 0x31));
    _mm256_store_pd(f, _mm256_add_pd(_mm256_load_pd(f), sums));
  }
  static std::int32_t* append_from(std::int32_t* out, std::int32_t first, M mask) {
    const __m256i numbers = _mm256_add_epi32(_mm256_set1_epi32(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_maskz_compress_epi32(mask, numbers));
    return out + __builtin_popcount(mask);
  }
  static std::int32_t* append_named(std::int32_t* out, const std::int32_t* name, M mask) {
    const __m256i numbers = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(name));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_maskz_compress_epi32(mask, numbers));
    return out + __builtin_popcount(mask);
  }
  static void put_bits(std::uint8_t* out, const M* masks, M any) {
    __m256i bits = _mm256_maskz_set1_epi32(masks[0], 1);
    for (int k = 1; k < 4; ++k) bits = _mm256_mask_or_epi32(bits, masks[k], bits, _mm256_set1_epi32(1 << k));
    bits = _mm256_maskz_compress_epi32(any, bits);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out), _mm256_maskz_cvtepi32_epi8(all(), bits));
  }
};

struct PackAvx512Float : Pack<PackAvx512Float> {
  using Real = float;
  using V = __m512;
  using M = __mmask16;
  static constexpr int width = 16;

  static V same(double value) { return _mm512_set1_ps(static_cast<float>(value)); }
  static V load(const float* from) { return _mm512_loadu_ps(from); }
  static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  static V fms(V a, V b, V c) { return _mm512_fmsub_ps(a, b, c); }
  // 14 bits from the table, 24 after one step of Newton's iteration.
  static V inverse(V a) {
    const V guess = _mm512_maskz_rcp14_ps(all(), a);
    return _mm512_mul_ps(guess, _mm512_fnmadd_ps(a, guess, _mm512_set1_ps(2)));
  }
  static M all() { return 0xFFFF; }
  static M first(int count) { return static_cast<M>((1U << count) - 1); }
  static M less(V a, V b, M counted) { return _mm512_mask_cmp_ps_mask(counted, a, b, _CMP_LT_OQ); }
  static M less_equal(V a, V b, M counted) { return _mm512_mask_cmp_ps_mask(counted, a, b, _CMP_LE_OQ); }
  static M either(M a, M b) { return static_cast<M>(a | b); }
  static V where(M mask, V a) { return _mm512_maskz_mov_ps(mask, a); }
  static M with_bit(const std::uint8_t* bytes, int bit) {
    const __m512i all_bytes =
        _mm512_maskz_cvtepu8_epi32(all(), _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
    return _mm512_test_epi32_mask(all_bytes, _mm512_set1_epi32(1 << bit));
  }
  static std::uint32_t bits_of(M mask) { return mask; }
  static double sum(V a) { return PackAvx512::sum(_mm512_add_pd(low_doubles(a), high_doubles(a))); }

  // Lane l of four registers holds atoms 4l to 4l+3, one in each; transposing within the lanes is enough.
  static void load_xyz(const float* x, const std::int32_t* index, V& a, V& b, V& c) {
    const auto at = [x, index](int k) { return _mm_load_ps(x + 4 * static_cast<std::int64_t>(index[k])); };
    const auto four = [&at](int k) {
      V v = _mm512_castps128_ps512(at(k));
      v = _mm512_maskz_insertf32x4(all(), v, at(k + 4), 1);
      v = _mm512_maskz_insertf32x4(all(), v, at(k + 8), 2);
      return _mm512_maskz_insertf32x4(all(), v, at(k + 12), 3);
    };
    const V p = four(0), q = four(1), r = four(2), s = four(3);
    const V xy_pq = low_pairs(p, q), xy_rs = low_pairs(r, s);  // x0 x1 y0 y1 in every lane
    const V z_pq = high_pairs(p, q), z_rs = high_pairs(r, s);  // z0 z1 . .
    a = low_halves(xy_pq, xy_rs);
    b = high_halves(xy_pq, xy_rs);
    c = low_halves(z_pq, z_rs);
  }
  static void add_sums(double* f, V a, V b, V c) {
    const auto wide = [](V v) { return _mm512_add_pd(low_doubles(v), high_doubles(v)); };
    PackAvx512::add_sums(f, wide(a), wide(b), wide(c));
  }
  static std::int32_t* append_from(std::int32_t* out, std::int32_t first, M mask) {
    const __m512i places = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return append(out, _mm512_add_epi32(_mm512_set1_epi32(first), places), mask);
  }
  static std::int32_t* append_named(std::int32_t* out, const std::int32_t* name, M mask) {
    return append(out, _mm512_loadu_si512(name), mask);
  }
  static std::int32_t* append(std::int32_t* out, __m512i numbers, M mask) {
    _mm512_storeu_si512(out, _mm512_maskz_compress_epi32(mask, numbers));
    return out + __builtin_popcount(mask);
  }
  static void put_bits(std::uint8_t* out, const M* masks, M any) {
    __m512i bits = _mm512_maskz_set1_epi32(masks[0], 1);
    for (int k = 1; k < 4; ++k) bits = _mm512_mask_or_epi32(bits, masks[k], bits, _mm512_set1_epi32(1 << k));
    bits = _mm512_maskz_compress_epi32(any, bits);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_maskz_cvtepi32_epi8(all(), bits));
  }
  static __m512d low_doubles(V v) {
    const __m256 half = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
    return _mm512_maskz_cvtps_pd(0xFF, half);
  }
  static __m512d high_doubles(V v) {
    const __m256 half = __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_maskz_cvtps_pd(0xFF, half);
  }
  static V low_pairs(V u, V v) { return _mm512_maskz_unpacklo_ps(all(), u, v); }
  static V high_pairs(V u, V v) { return _mm512_maskz_unpackhi_ps(all(), u, v); }
  static V low_halves(V u, V v) {
    return _mm512_castpd_ps(_mm512_maskz_unpacklo_pd(0xFF, _mm512_castps_pd(u), _mm512_castps_pd(v)));
  }
  static V high_halves(V u, V v) {
    return _mm512_castpd_ps(_mm512_maskz_unpackhi_pd(0xFF, _mm512_castps_pd(u), _mm512_castps_pd(v)));
  }
};

}  // namespace md
