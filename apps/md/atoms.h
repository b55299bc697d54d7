// The atoms of one rank: its own first, then copies (ghosts) of others' within the cut-off of its box.
//
//   array   values of an atom            atoms
//   x       x y z 0                      own, ghosts
//   v, f    x y z 0                      own
//   id      1..n, unique in the run      own
//   type    0..                          own, ghosts
//
// Four values for each atom, the last one 0: an atom takes half a cache line and one 256-bit register.
#pragma once

#include <cstdint>

#include "md/kernels/array.h"

namespace md {

inline constexpr std::size_t values = 4;  // of an atom in x, v and f

struct Atoms {
  std::size_t own = 0, ghosts = 0;
  Array<double> x, v, f;
  Array<std::int32_t> id;
  Array<std::uint8_t> type;

  [[nodiscard]] std::size_t all() const { return own + ghosts; }

  // Adds one own atom. There must be no ghosts at this time.
  void add(std::int32_t new_id, std::uint8_t new_type, const double* position, const double* velocity) {
    resize(own + 1);
    for (std::size_t d = 0; d < values; ++d) {
      x[values * (own - 1) + d] = d < 3 ? position[d] : 0;
      v[values * (own - 1) + d] = d < 3 ? velocity[d] : 0;
      f[values * (own - 1) + d] = 0;
    }
    id[own - 1] = new_id;
    type[own - 1] = new_type;
  }

  // Sets the number of own atoms and drops ghosts; new atoms are uninitialised.
  void resize(std::size_t new_own) {
    own = new_own;
    ghosts = 0;
    x.resize(values * own);
    v.resize(values * own);
    f.resize(values * own);
    id.resize(own);
    type.resize(own);
  }

  void resize_ghosts(std::size_t new_ghosts) {
    ghosts = new_ghosts;
    x.resize(values * all());
    type.resize(all());
  }
};

}  // namespace md
