// The data that a fix hands over: arrays of LAMMPS that have a value or a row of values for each atom. Read
// fix_offpath.h first.
//
// SPDX-License-Identifier: GPL-2.0-only
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace LAMMPS_NS {
class Atom;
}

namespace offpath_lammps {

// An array by the name that LAMMPS has for it: id, type, x, v, f, image, mol, q, mask, radius, …, or a custom property
// of `fix property/atom` (i_name, d_name, i2_name, d2_name).
struct AtomColumn {
  std::string name;
  std::string format;         // of the Arrow C data interface
  std::size_t row_bytes = 0;  // of one atom
};

// Throws std::invalid_argument with the reason.
[[nodiscard]] AtomColumn find_column(LAMMPS_NS::Atom& atom, const std::string& name);

// Where the array lies now; room for `nmax` atoms, of which the first `nlocal` belong to this process. Empty: LAMMPS
// has not allocated it. Throws std::invalid_argument if it is gone.
[[nodiscard]] std::span<const std::byte> memory_of(LAMMPS_NS::Atom& atom, const AtomColumn& column);

}  // namespace offpath_lammps
