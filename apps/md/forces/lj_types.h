// The parameters of Lennard-Jones pairs of several types of atoms.
#pragma once

#include <cstddef>
#include <vector>

#include "md/settings.h"

namespace md {

struct LjTypes {
  std::size_t count = 0;
  std::vector<double> mass;            // by type
  std::vector<double> epsilon, sigma;  // of types a and b at a * count + b

  // Sets the pairs of different types from those of equal ones: the geometric mean of both parameters, or of epsilon
  // only, with the arithmetic mean of sigma (Lorentz-Berthelot).
  void mix(Mixing rule);
};

}  // namespace md
