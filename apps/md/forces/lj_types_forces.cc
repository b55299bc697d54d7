#include "md/forces/lj_types_forces.h"

#include <algorithm>
#include <cmath>

#include "md/kernels/parallel.h"

namespace md {

void LjTypes::mix(Mixing rule) {
  for (std::size_t a = 0; a < count; ++a) {
    for (std::size_t b = 0; b < count; ++b) {
      if (a == b) continue;
      const std::size_t pair = a * count + b, own_a = a * (count + 1), own_b = b * (count + 1);
      epsilon[pair] = std::sqrt(epsilon[own_a] * epsilon[own_b]);
      sigma[pair] =
          rule == Mixing::geometric ? std::sqrt(sigma[own_a] * sigma[own_b]) : 0.5 * (sigma[own_a] + sigma[own_b]);
    }
  }
}

LjTypesForces::LjTypesForces(const LjTypes& types, double cut) : types_(types.count), cut_(cut), mass_(types.mass) {
  for (std::size_t pair = 0; pair < types_ * types_; ++pair) {
    const double s2 = types.sigma[pair] * types.sigma[pair], s6 = s2 * s2 * s2;
    pairs_.push_back({48 * types.epsilon[pair] * s6 * s6, 24 * types.epsilon[pair] * s6});
  }
}

std::vector<double> LjTypesForces::parameters() const {
  std::vector<double> all{cut_};
  for (const Pair& pair : pairs_) all.insert(all.end(), {pair.twelve, pair.six});
  return all;
}

PairSums LjTypesForces::compute(const PairList& list, const double* x, const std::uint8_t* type, double* f) const {
  std::fill(f + values * list.first, f + values * list.last, 0.0);
  PairSums sums;
  for (std::size_t i = list.first; i < list.last; ++i) {
    const std::uint64_t begin = list.begin[i - list.first], end = list.begin[i - list.first + 1];
    const std::uint64_t mutual_end = begin + static_cast<std::uint64_t>(list.mutual[i - list.first]);
    const Pair* const pairs = pairs_.data() + types_ * type[i];
    const double *at = x + values * i, xi = at[0], yi = at[1], zi = at[2];
    double fx = 0, fy = 0, fz = 0;
    for (std::uint64_t k = begin; k < end; ++k) {
      const auto j = static_cast<std::size_t>(list.neighbours[k]);
      const double dx = xi - x[values * j], dy = yi - x[values * j + 1], dz = zi - x[values * j + 2];
      const double squared = dx * dx + dy * dy + dz * dz;
      if (squared >= cut_ * cut_) continue;
      const Pair& pair = pairs[type[j]];
      const double inverse = 1 / squared, inverse6 = inverse * inverse * inverse;
      const double force = inverse6 * (pair.twelve * inverse6 - pair.six) * inverse;
      const bool mutual = k < mutual_end;
      fx += dx * force;
      fy += dy * force;
      fz += dz * force;
      if (mutual) {
        f[values * j] -= dx * force;
        f[values * j + 1] -= dy * force;
        f[values * j + 2] -= dz * force;
      }
      const double share = mutual ? 1 : 0.5;
      sums.energy += share * inverse6 * (pair.twelve / 12 * inverse6 - pair.six / 6);
      sums.virial += share * squared * force;
    }
    f[values * i] += fx;
    f[values * i + 1] += fy;
    f[values * i + 2] += fz;
  }
  return sums;
}

PairSums LjTypesForces::compute(const NeighbourList& list, Halo& /*halo*/, bool /*with_sums*/, Atoms& atoms) {
  const std::size_t blocks = list.blocks.size();
  std::vector<PairSums> parts(blocks);
  in_blocks(static_cast<int>(blocks), blocks, [&](int, std::size_t first, std::size_t last) {
    for (std::size_t b = first; b < last; ++b)
      parts[b] = compute(list.blocks[b].view(), atoms.x.data(), atoms.type.data(), atoms.f.data());
  });
  PairSums sums;
  for (const PairSums& part : parts) {
    sums.energy += part.energy;
    sums.virial += part.virial;
  }
  return sums;
}

}  // namespace md
