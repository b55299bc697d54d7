// A whole run: its steps and its output.
#pragma once

#include "md/ranks/ranks.h"
#include "md/settings.h"

namespace md {

// Prints rows of thermo output on rank 0. Throws BadInput, BrokenRun, offpath::Error.
void run(const Settings& settings, Ranks& ranks);

}  // namespace md
