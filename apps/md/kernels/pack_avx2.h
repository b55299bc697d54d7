// Four doubles or eight floats in AVX2 registers, with fused multiply-add. The operations are explained in
// pack_scalar.h.
#pragma once

#include <immintrin.h>

#include "md/kernels/pack.h"

namespace md {

// For every mask of four: the indices of its set bits, in order.
alignas(16) inline constexpr std::int8_t chosen_of_four[16][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},   {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {4, 5, 6, 7, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},   {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {8, 9, 10, 11, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {0, 1, 2, 3, 8, 9, 10, 11, 8, 9, 10, 11, 12, 13, 14, 15},
    {4, 5, 6, 7, 8, 9, 10, 11, 8, 9, 10, 11, 12, 13, 14, 15}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {12, 13, 14, 15, 4, 5, 6, 7, 8, 9, 10, 11, 0, 0, 0, 0},   {0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11, 0, 0, 0, 0},
    {4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 0, 0, 0, 0},   {0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 14, 15, 0, 0, 0, 0},
    {8, 9, 10, 11, 12, 13, 14, 15, 0, 0, 0, 0, 0, 0, 0, 0},   {0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 0, 0, 0, 0},
    {4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 0, 0, 0},   {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};

struct PackAvx2 : Pack<PackAvx2> {
  using Real = double;
  using V = __m256d;
  using M = __m256d;  // all bits of a number set, or none
  static constexpr int width = 4;

  static V same(double value) { return _mm256_set1_pd(value); }
  static V load(const double* from) { return _mm256_loadu_pd(from); }
  static V fma(V a, V b, V c) { return _mm256_fmadd_pd(a, b, c); }
  static V fms(V a, V b, V c) { return _mm256_fmsub_pd(a, b, c); }
  static V sqrt(V a) { return _mm256_sqrt_pd(a); }
  static V place(V at, std::int32_t last, std::int32_t* whole) {
    const __m128i k = _mm256_cvttpd_epi32(_mm256_min_pd(at, same(last)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(whole), k);
    return _mm256_min_pd(_mm256_sub_pd(at, _mm256_cvtepi32_pd(k)), same(1));
  }
  static M all() { return _mm256_castsi256_pd(_mm256_set1_epi64x(-1)); }
  static M first(int count) {
    return _mm256_castsi256_pd(_mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3)));
  }
  static M less(V a, V b, M counted) { return _mm256_and_pd(counted, _mm256_cmp_pd(a, b, _CMP_LT_OQ)); }
  static M less_equal(V a, V b, M counted) { return _mm256_and_pd(counted, _mm256_cmp_pd(a, b, _CMP_LE_OQ)); }
  static M either(M a, M b) { return _mm256_or_pd(a, b); }
  static V where(M mask, V a) { return _mm256_and_pd(mask, a); }
  static M with_bit(const std::uint8_t* bytes, int bit) {
    std::int32_t four;
    std::memcpy(&four, bytes, sizeof four);
    const __m256i wanted = _mm256_set1_epi64x(std::int64_t{1} << bit);
    return _mm256_castsi256_pd(
        _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_cvtepu8_epi64(_mm_cvtsi32_si128(four)), wanted), wanted));
  }
  static std::uint32_t bits_of(M mask) { return static_cast<std::uint32_t>(_mm256_movemask_pd(mask)); }
  static double sum(V a) {
    const __m128d halves = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_add_sd(halves, _mm_unpackhi_pd(halves, halves)));
  }

  static void load_four(const double* x, const std::int32_t* index, V& a, V& b, V& c, V& d) {
    const auto at = [x, index](int k) { return _mm256_load_pd(x + 4 * static_cast<std::int64_t>(index[k])); };
    const V p = at(0), q = at(1), r = at(2), s = at(3);
    const V x_pq = _mm256_unpacklo_pd(p, q), y_pq = _mm256_unpackhi_pd(p, q);  // x0 x1 | z0 z1, y0 y1 | . .
    const V x_rs = _mm256_unpacklo_pd(r, s), y_rs = _mm256_unpackhi_pd(r, s);
    a = _mm256_permute2f128_pd(x_pq, x_rs, 0x20);
    b = _mm256_permute2f128_pd(y_pq, y_rs, 0x20);
    c = _mm256_permute2f128_pd(x_pq, x_rs, 0x31);
    d = _mm256_permute2f128_pd(y_pq, y_rs, 0x31);
  }
  static void subtract_xyz(double* f, const std::int32_t* index, int count, V a, V b, V c) {
    const V zero = _mm256_setzero_pd();
    const V ab_even = _mm256_unpacklo_pd(a, b), ab_odd = _mm256_unpackhi_pd(a, b);  // a0 b0 | a2 b2
    const V c_even = _mm256_unpacklo_pd(c, zero), c_odd = _mm256_unpackhi_pd(c, zero);
    const auto take = [f, index](int k, V value) {
      double* at = f + 4 * static_cast<std::int64_t>(index[k]);
      _mm256_store_pd(at, _mm256_sub_pd(_mm256_load_pd(at), value));
    };
    take(0, _mm256_permute2f128_pd(ab_even, c_even, 0x20));
    if (count > 1) take(1, _mm256_permute2f128_pd(ab_odd, c_odd, 0x20));
    if (count > 2) take(2, _mm256_permute2f128_pd(ab_even, c_even, 0x31));
    if (count > 3) take(3, _mm256_permute2f128_pd(ab_odd, c_odd, 0x31));
  }
  static void add_sums(double* f, V a, V b, V c) {
    const V ab = _mm256_hadd_pd(a, b), c0 = _mm256_hadd_pd(c, _mm256_setzero_pd());
    const V sums = _mm256_add_pd(_mm256_permute2f128_pd(ab, c0, 0x20), _mm256_permute2f128_pd(ab, c0, 0x31));
    _mm256_store_pd(f, _mm256_add_pd(_mm256_load_pd(f), sums));
  }
  static std::int32_t* append_from(std::int32_t* out, std::int32_t first, M mask) {
    return append_bits(out, _mm_add_epi32(_mm_set1_epi32(first), _mm_setr_epi32(0, 1, 2, 3)), _mm256_movemask_pd(mask));
  }
  static std::int32_t* append_named(std::int32_t* out, const std::int32_t* name, M mask) {
    return append_bits(out, _mm_loadu_si128(reinterpret_cast<const __m128i*>(name)), _mm256_movemask_pd(mask));
  }
  static std::int32_t* append_bits(std::int32_t* out, __m128i numbers, int bits) {
    const __m128i chosen = _mm_load_si128(reinterpret_cast<const __m128i*>(chosen_of_four[bits]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_shuffle_epi8(numbers, chosen));
    return out + __builtin_popcount(static_cast<unsigned>(bits));
  }
};

struct PackAvx2Float : Pack<PackAvx2Float> {
  using Real = float;
  using V = __m256;
  using M = __m256;
  static constexpr int width = 8;

  static V same(double value) { return _mm256_set1_ps(static_cast<float>(value)); }
  static V load(const float* from) { return _mm256_loadu_ps(from); }
  static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  static V fms(V a, V b, V c) { return _mm256_fmsub_ps(a, b, c); }
  static M all() { return _mm256_castsi256_ps(_mm256_set1_epi32(-1)); }
  static M first(int count) {
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)));
  }
  static M less(V a, V b, M counted) { return _mm256_and_ps(counted, _mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
  static M less_equal(V a, V b, M counted) { return _mm256_and_ps(counted, _mm256_cmp_ps(a, b, _CMP_LE_OQ)); }
  static M either(M a, M b) { return _mm256_or_ps(a, b); }
  static V where(M mask, V a) { return _mm256_and_ps(mask, a); }
  static M with_bit(const std::uint8_t* bytes, int bit) {
    const __m256i all_bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
    const __m256i wanted = _mm256_set1_epi32(1 << bit);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(all_bytes, wanted), wanted));
  }
  static std::uint32_t bits_of(M mask) { return static_cast<std::uint32_t>(_mm256_movemask_ps(mask)); }
  static double sum(V a) {
    return PackAvx2::sum(
        _mm256_add_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(a)), _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1))));
  }

  static void load_xyz(const float* x, const std::int32_t* index, V& a, V& b, V& c) {
    const auto at = [x, index](int k) { return _mm_load_ps(x + 4 * static_cast<std::int64_t>(index[k])); };
    const auto two = [&at](int k) { return _mm256_insertf128_ps(_mm256_castps128_ps256(at(k)), at(k + 4), 1); };
    const V p = two(0), q = two(1), r = two(2), s = two(3);
    const V xy_pq = _mm256_unpacklo_ps(p, q), xy_rs = _mm256_unpacklo_ps(r, s);
    const V z_pq = _mm256_unpackhi_ps(p, q), z_rs = _mm256_unpackhi_ps(r, s);
    a = _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(xy_pq), _mm256_castps_pd(xy_rs)));
    b = _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(xy_pq), _mm256_castps_pd(xy_rs)));
    c = _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(z_pq), _mm256_castps_pd(z_rs)));
  }
  static std::int32_t* append_from(std::int32_t* out, std::int32_t first, M mask) {
    const int bits = _mm256_movemask_ps(mask);
    const __m128i low = _mm_add_epi32(_mm_set1_epi32(first), _mm_setr_epi32(0, 1, 2, 3));
    out = PackAvx2::append_bits(out, low, bits & 15);
    return PackAvx2::append_bits(out, _mm_add_epi32(low, _mm_set1_epi32(4)), bits >> 4);
  }
  static std::int32_t* append_named(std::int32_t* out, const std::int32_t* name, M mask) {
    const int bits = _mm256_movemask_ps(mask);
    out = PackAvx2::append_bits(out, _mm_loadu_si128(reinterpret_cast<const __m128i*>(name)), bits & 15);
    return PackAvx2::append_bits(out, _mm_loadu_si128(reinterpret_cast<const __m128i*>(name + 4)), bits >> 4);
  }
};

}  // namespace md
