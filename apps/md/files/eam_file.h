// Tables of the embedded atom method in their published formats: `funcfl` (one element) and `setfl` (several;
// eam/alloy).
//
//   funcfl                                   setfl
//   1  comment                               1-3 comments
//   2  number mass lattice structure         4   elements and their names
//   3  nrho drho nr dr cut                   5   nrho drho nr dr cut
//   F(rho) nrho values                       for each element: number mass lattice structure, F(rho), rho(r)
//   Z(r)   nr values                         for each pair i >= j: r phi(r)
//   rho(r) nr values
#pragma once

#include <string>
#include <vector>

#include "md/forces/spline.h"

namespace md {

struct EamTables {
  std::size_t elements = 0;
  std::vector<double> mass;       // by element
  std::vector<std::string> name;  // setfl; empty otherwise
  double cut = 0;
  std::vector<Spline> embedding;  // F(rho), by element
  std::vector<Spline> density;    // rho(r), by element
  std::vector<Spline> pair;       // r phi(r), at (i, j): i * elements + j, in eV Angstrom

  [[nodiscard]] const Spline& pair_of(std::size_t i, std::size_t j) const { return pair[i * elements + j]; }
};

// Throws BadInput with the file, the line and the expected content.
EamTables read_eam_file(const std::string& path);

}  // namespace md
