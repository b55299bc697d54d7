// Two doubles or four floats in NEON registers. The operations are explained in pack_scalar.h.
#pragma once

#include <arm_neon.h>

#include "md/kernels/pack.h"

namespace md {

struct PackNeon : Pack<PackNeon> {
  using Real = double;
  using V = float64x2_t;
  using M = uint64x2_t;
  static constexpr int width = 2;

  static V same(double value) { return vdupq_n_f64(value); }
  static V load(const double* from) { return vld1q_f64(from); }
  static V fma(V a, V b, V c) { return vfmaq_f64(c, a, b); }
  static V fms(V a, V b, V c) { return vfmaq_f64(vnegq_f64(c), a, b); }
  static V sqrt(V a) { return vsqrtq_f64(a); }
  static V place(V at, std::int32_t last, std::int32_t* whole) {
    const int64x2_t k = vcvtq_s64_f64(vminq_f64(at, same(last)));
    vst1_s32(whole, vmovn_s64(k));
    return vminq_f64(vsubq_f64(at, vcvtq_f64_s64(k)), same(1));
  }
  static M all() { return vdupq_n_u64(~0ULL); }
  static M first(int count) {
    return vcombine_u64(vcreate_u64(count > 0 ? ~0ULL : 0), vcreate_u64(count > 1 ? ~0ULL : 0));
  }
  static M less(V a, V b, M counted) { return vandq_u64(counted, vcltq_f64(a, b)); }
  static M less_equal(V a, V b, M counted) { return vandq_u64(counted, vcleq_f64(a, b)); }
  static M either(M a, M b) { return vorrq_u64(a, b); }
  static V where(M mask, V a) { return vreinterpretq_f64_u64(vandq_u64(mask, vreinterpretq_u64_f64(a))); }
  static M with_bit(const std::uint8_t* bytes, int bit) {
    const auto lane = [bit](std::uint8_t byte) { return vcreate_u64((byte >> bit & 1) != 0 ? ~0ULL : 0); };
    return vcombine_u64(lane(bytes[0]), lane(bytes[1]));
  }
  static std::uint32_t bits_of(M mask) {
    return static_cast<std::uint32_t>((vgetq_lane_u64(mask, 0) & 1) | (vgetq_lane_u64(mask, 1) & 2));
  }
  static double sum(V a) { return vaddvq_f64(a); }

  static void load_four(const double* x, const std::int32_t* index, V& a, V& b, V& c, V& d) {
    const double* p = x + 4 * static_cast<std::int64_t>(index[0]);
    const double* q = x + 4 * static_cast<std::int64_t>(index[1]);
    const V p_xy = vld1q_f64(p), q_xy = vld1q_f64(q);
    a = vzip1q_f64(p_xy, q_xy);
    b = vzip2q_f64(p_xy, q_xy);
    const V p_z = vld1q_f64(p + 2), q_z = vld1q_f64(q + 2);
    c = vzip1q_f64(p_z, q_z);
    d = vzip2q_f64(p_z, q_z);
  }
  static void subtract_xyz(double* f, const std::int32_t* index, int count, V a, V b, V c) {
    double* p = f + 4 * static_cast<std::int64_t>(index[0]);
    vst1q_f64(p, vsubq_f64(vld1q_f64(p), vzip1q_f64(a, b)));
    p[2] -= vgetq_lane_f64(c, 0);
    if (count < 2) return;
    double* q = f + 4 * static_cast<std::int64_t>(index[1]);
    vst1q_f64(q, vsubq_f64(vld1q_f64(q), vzip2q_f64(a, b)));
    q[2] -= vgetq_lane_f64(c, 1);
  }
  static std::int32_t* append_from(std::int32_t* out, std::int32_t first, M mask) {
    const std::int32_t names[2] = {first, first + 1};
    return append_named(out, names, mask);
  }
  static std::int32_t* append_named(std::int32_t* out, const std::int32_t* name, M mask) {
    *out = name[0];
    out += vgetq_lane_u64(mask, 0) & 1;
    *out = name[1];
    return out + (vgetq_lane_u64(mask, 1) & 1);
  }
};

struct PackNeonFloat : Pack<PackNeonFloat> {
  using Real = float;
  using V = float32x4_t;
  using M = uint32x4_t;
  static constexpr int width = 4;

  static V same(double value) { return vdupq_n_f32(static_cast<float>(value)); }
  static V load(const float* from) { return vld1q_f32(from); }
  static V fma(V a, V b, V c) { return vfmaq_f32(c, a, b); }
  static V fms(V a, V b, V c) { return vfmaq_f32(vnegq_f32(c), a, b); }
  static M all() { return vdupq_n_u32(~0U); }
  static M first(int count) {
    const std::uint32_t places[4] = {0, 1, 2, 3};
    return vcltq_u32(vld1q_u32(places), vdupq_n_u32(static_cast<std::uint32_t>(count)));
  }
  static M less(V a, V b, M counted) { return vandq_u32(counted, vcltq_f32(a, b)); }
  static M less_equal(V a, V b, M counted) { return vandq_u32(counted, vcleq_f32(a, b)); }
  static M either(M a, M b) { return vorrq_u32(a, b); }
  static V where(M mask, V a) { return vreinterpretq_f32_u32(vandq_u32(mask, vreinterpretq_u32_f32(a))); }
  static M with_bit(const std::uint8_t* bytes, int bit) {
    const std::uint32_t each[4] = {bytes[0], bytes[1], bytes[2], bytes[3]};
    return vtstq_u32(vld1q_u32(each), vdupq_n_u32(1U << bit));
  }
  static std::uint32_t bits_of(M mask) {
    const std::uint32_t each[4] = {1, 2, 4, 8};
    return vaddvq_u32(vandq_u32(mask, vld1q_u32(each)));
  }
  static double sum(V a) { return vaddvq_f64(vaddq_f64(vcvt_f64_f32(vget_low_f32(a)), vcvt_high_f64_f32(a))); }

  static void load_xyz(const float* x, const std::int32_t* index, V& a, V& b, V& c) {
    const auto at = [x, index](int k) { return vld1q_f32(x + 4 * static_cast<std::int64_t>(index[k])); };
    const V p = at(0), q = at(1), r = at(2), s = at(3);
    const V xy_pq = vzip1q_f32(p, q), xy_rs = vzip1q_f32(r, s), z_pq = vzip2q_f32(p, q), z_rs = vzip2q_f32(r, s);
    a = vcombine_f32(vget_low_f32(xy_pq), vget_low_f32(xy_rs));
    b = vcombine_f32(vget_high_f32(xy_pq), vget_high_f32(xy_rs));
    c = vcombine_f32(vget_low_f32(z_pq), vget_low_f32(z_rs));
  }
  static std::int32_t* append_from(std::int32_t* out, std::int32_t first, M mask) {
    const std::int32_t names[4] = {first, first + 1, first + 2, first + 3};
    return append_named(out, names, mask);
  }
  static std::int32_t* append_named(std::int32_t* out, const std::int32_t* name, M mask) {
    std::uint32_t chosen[4];
    vst1q_u32(chosen, mask);
    for (int k = 0; k < 4; ++k) {
      *out = name[k];
      out += chosen[k] & 1;
    }
    return out;
  }
};

}  // namespace md
