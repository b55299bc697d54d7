// A run's state in a file, from which it goes on to the same bits: not only where atoms are, but in which order they
// lie in memory, on which rank, and where they were when their lists were built.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "md/ranks/domain.h"
#include "md/ranks/ranks.h"

namespace md {

// What a run has to have in common with the one that wrote the file, for the same bits.
struct RestartHeader {
  std::int64_t step = 0, atoms = 0;
  std::int32_t ranks = 1, threads = 1, half = 1, mixed = 0, clusters = 0, unused = 0;
  double cut = 0, skin = 0, time_step = 0;
  Box box;
  std::array<char, 16> kernels{};
};

// One rank's atoms: for each, where it is, its velocity, where it was when the lists were built.
struct RestartAtom {
  std::array<double, 3> x{}, v{}, listed{};
  std::int32_t id = 0, type = 0;
};

// Everybody calls it; rank 0 writes, beside the old file, which it replaces once the new one is on the disk.
void write_restart(const std::string& path, const RestartHeader& header, const std::vector<RestartAtom>& own,
                   Ranks& ranks);

struct Restart {
  RestartHeader header;
  std::vector<RestartAtom> own;  // of this rank
};
// Throws BadInput where the file is cut short, damaged or no such file.
Restart read_restart(const std::string& path, int rank);

}  // namespace md
