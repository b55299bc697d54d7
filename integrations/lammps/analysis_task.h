// The interface between fix offpath/analyse and its plug-in (analysis_plugin.cc). Both are built from this.
//
// Inputs have a row for each atom: "id", "mask", "image" and "type" an int, "x" and "v" three doubles, "rmass" one.
// "mask" is there if `group_bit` is not 0, which stands for all atoms. Image flags are packed as LAMMPS does it without
// -DLAMMPS_BIGBIG.
//
// SPDX-License-Identifier: GPL-2.0-only
#pragma once

#include <array>
#include <cstdint>

namespace offpath_lammps {

inline constexpr const char* analysis_plugin = "lammps";  // its name for agents

// The function "rdf". Inputs: "x" of the process's own atoms and then of its ghost atoms, "mask". Output: "counts",
// `bins` numbers of 8 bytes.
struct RdfArguments {
  std::uint64_t own, bins;
  double cutoff;
  std::int64_t group_bit;
};

// The function "cna". Inputs: "x" of the process's own atoms and then of its ghost atoms; "mask" of its own atoms.
// Output: "structures", five numbers of 8 bytes, how many atoms of the group have each Structure.
struct CnaArguments {
  std::uint64_t own;
  double cutoff;
  std::int64_t group_bit;
};

// The functions "msd" and "vacf". Inputs: "reference", ReferenceAtoms of the group in the order of ids, of all
// processes; of the process's own atoms "id", "mask", and "x" with "image" (msd) or "v" (vacf). For the mean
// displacement weighted by mass (msd) also "rmass", or "type" with "masses", a double for each type from 0 on.
// Output: "sums", the ReferenceSums.
struct ReferenceArguments {
  std::int64_t group_bit;
  std::array<double, 6> box;  // msd: LAMMPS's Domain::h
};

struct ReferenceAtom {
  std::int64_t id;
  std::array<double, 3> value;  // its unwrapped position, or its velocity
};

struct ReferenceSums {
  double atoms;
  std::array<double, 3> product;   // msd: of displacement with itself; vacf: of velocity now and then
  std::array<double, 3> moved;     // msd: of displacement
  std::array<double, 3> weighted;  // msd with masses: of mass times displacement
  double mass;                     // likewise
};

}  // namespace offpath_lammps
