// A whole run: steps, and what is written while they are done.
#pragma once

#include "md/ranks/ranks.h"
#include "md/settings.h"

namespace md {

// Prints rows of thermo output at rank 0. Throws BadInput, BrokenRun, offpath::Error.
void run(const Settings& settings, Ranks& ranks);

}  // namespace md
