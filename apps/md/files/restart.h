// A run's state in a file, from which it continues: positions, velocities, ranks, the order of atoms in memory, and
// their positions when the lists were built. On as many ranks the results are identical.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "md/ranks/domain.h"
#include "md/ranks/ranks.h"

namespace md {

// FNV-1a.
std::uint64_t checksum(std::span<const std::byte> bytes);

// Settings that have to be the same as in the run that wrote the file: cut-off, time step, precision, forces and masses
// on any number of ranks, the others on as many ranks, for identical results.
struct RestartHeader {
  std::int64_t step = 0, atoms = 0;
  std::int32_t ranks = 1, threads = 1, half = 1, mixed = 0, clusters = 0, unused = 0;
  double cut = 0, skin = 0, time_step = 0;
  std::uint64_t forces = 0, masses = 0;  // checksums of Forces::parameters, and of the masses by type with their units
  Box box;
  std::array<char, 16> kernels{};
  std::array<double, 3> thermostat{};  // Thermostat::rates
  double twice_kinetic = 0;            // of all atoms, as the thermostat knows it; 0: there was none
};

// One rank's atoms: position, velocity, and the position when the lists were built.
struct RestartAtom {
  std::array<double, 3> x{}, v{}, listed{};
  std::int32_t id = 0, type = 0;
};

// Called by all ranks; rank 0 writes a new file beside the old one, and replaces that once the new one is on the disk.
void write_restart(const std::string& path, const RestartHeader& header, const std::vector<RestartAtom>& own,
                   Ranks& ranks);

struct Restart {
  RestartHeader header;
  std::vector<std::vector<RestartAtom>> parts;  // by rank of the run that wrote them, in their order
};
// Throws BadInput if the file is truncated, damaged or not a restart file.
Restart read_restart(const std::string& path);

}  // namespace md
