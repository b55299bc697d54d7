// Lennard-Jones forces and energies for a pack of pairs. Included like lj_kernel.h.
#pragma once

#include "md/kernels/kernels.h"

namespace md {

template <class P>
struct LjFormula {
  using V = typename P::V;
  using M = typename P::M;

  V cut_squared, twelve, six;  // 48 epsilon sigma^12, 24 epsilon sigma^6

  explicit LjFormula(const LennardJones& potential) {
    const double s2 = potential.sigma * potential.sigma, s6 = s2 * s2 * s2;
    cut_squared = P::same(potential.cut * potential.cut);
    twelve = P::same(48 * potential.epsilon * s6 * s6);
    six = P::same(24 * potential.epsilon * s6);
  }

  // The force divided by the distance for counted pairs within the cut-off, 0 otherwise. With sums, adds their share of
  // energy and virial.
  template <bool with_sums>
  inline __attribute__((always_inline)) V force(V squared, M counted, double share, V& energy, V& virial) const {
    const M near = P::less(squared, cut_squared, counted);
    const V inverse = P::inverse(squared);
    const V inverse6 = P::mul(P::mul(inverse, inverse), inverse);
    const V force = P::where(near, P::mul(P::mul(inverse6, P::fms(twelve, inverse6, six)), inverse));
    if constexpr (with_sums) {
      const V part = P::same(share), twelfth = P::mul(twelve, P::same(1.0 / 12)), sixth = P::mul(six, P::same(1.0 / 6));
      energy = P::fma(part, P::where(near, P::mul(inverse6, P::fms(twelfth, inverse6, sixth))), energy);
      virial = P::fma(part, P::where(near, P::mul(squared, force)), virial);
    }
    return force;
  }
};

}  // namespace md
