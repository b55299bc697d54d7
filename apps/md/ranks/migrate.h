// Atoms that left their rank's part of the box go to the rank they are in now; who left the box comes in at the other
// side.
#pragma once

#include "md/atoms.h"
#include "md/ranks/domain.h"
#include "md/ranks/ranks.h"

namespace md {

// Drops the ghosts. Forces travel with their atoms. Throws BrokenRun where an atom is lost: its position is not a
// number, or it went further than the neighbouring rank's part since the last call.
void migrate(const Domain& domain, Ranks& ranks, Atoms& atoms);

}  // namespace md
