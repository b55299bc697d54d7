// SPDX-License-Identifier: GPL-2.0-only
#include "analysis.h"

#include "comm.h"
#include "error.h"

namespace offpath_lammps {

void Analysis::require_ghosts(double cutoff) const {
  if (const double reach = comm->get_comm_cutoff(); cutoff > reach)
    error->all(FLERR, "{}: cutoff {} is more than ghost atoms reach, {}: use comm_modify cutoff {}", analyse_style,
               cutoff, reach, cutoff);
}

}  // namespace offpath_lammps
