// Tables of a fictitious metal, for tests.
#pragma once

#include <cmath>
#include <string>

namespace md {

// F(rho) = -sqrt(rho), rho(r) = (r - 3)^2 / 4, Z(r) = 3 - r: smooth at the cut-off of 3.
inline std::string funcfl() {
  std::string text = "a metal\n 1 60.0 2.5 FCC\n 200 0.2 301 0.01 3.0\n";
  for (int k = 0; k < 200; ++k) text += std::to_string(-std::sqrt(0.2 * k)) + (k % 5 == 4 ? "\n" : " ");
  for (int k = 0; k < 301; ++k) text += std::to_string(3 - 0.01 * k) + (k % 7 == 6 ? "\n" : " ");
  text += "\n";
  for (int k = 0; k < 301; ++k) text += std::to_string((0.01 * k - 3) * (0.01 * k - 3) / 4) + "\n";
  return text;
}

}  // namespace md
