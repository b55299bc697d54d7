// Sends atoms that left their rank's part of the box to their new rank; atoms that left the box enter at the other
// side.
#pragma once

#include "md/atoms.h"
#include "md/ranks/domain.h"
#include "md/ranks/ranks.h"

namespace md {

// Sends them, and drops the ghosts. Whether all arrive is left to the caller.
void move_to_owners(const Domain& domain, RankMessages& messages, Atoms& atoms);

// The same with a check, for which all ranks wait. Forces travel with their atoms. Throws BrokenRun if an atom is lost:
// its position is not a number, or it moved further than the neighbouring rank's part since the last call.
void migrate(const Domain& domain, Ranks& ranks, Atoms& atoms);

}  // namespace md
