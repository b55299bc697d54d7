// Atoms from a LAMMPS data file, atom_style atomic: the header's box, and the sections Atoms, Velocities, Masses.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "md/ranks/domain.h"

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
  bool velocities = false;
  std::vector<DataAtom> atoms;  // positions within the box
};

// Throws BadInput with file and line.
DataFile read_data_file(const std::string& path);

}  // namespace md
