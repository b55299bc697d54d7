// Atoms from a LAMMPS data file, atom_style atomic: the header's box, and the sections Atoms, Velocities, Masses, Pair
// Coeffs (epsilon and sigma of each type) and PairIJ Coeffs (of each pair of types).
#pragma once

#include <array>
#include <string>
#include <vector>

#include "md/forces/lj_types.h"
#include "md/ranks/domain.h"
#include "md/ranks/ranks.h"
#include "md/settings.h"

namespace md {

struct DataAtom {
  std::int32_t id = 0;
  std::uint8_t type = 0;  // from 0
  std::array<double, 3> x{}, v{};
};

struct DataFile {
  Box box;
  int types = 1;
  std::vector<double> mass;  // by type; empty without that section
  struct Pair {
    int a, b;  // types, from 0
    double epsilon, sigma;
    double cut;  // 0: not given
  };
  std::vector<Pair> pairs;  // of equal types, or all with a <= b; empty without these sections
  bool velocities = false;
  std::vector<DataAtom> atoms;  // positions within the box
};

// Throws BadInput with file and line.
DataFile read_data_file(const std::string& path);

// Sends everything but the atoms from rank 0 to all ranks.
void share_head(DataFile& data, Ranks& ranks);
// The types of Lennard-Jones atoms: one where the file gives no pairs. Throws BadInput if a pair has another cut-off
// than the settings.
LjTypes types_of(const DataFile& data, const Settings& settings);

}  // namespace md
