// `offpath-md model`: measures phases of the host alone and of the agent alone, predicts the modes from them by
// phase_model.h, and measures the same runs.
#pragma once

#include <span>

#include "md/ranks/ranks.h"

namespace md {

// Returns the program's exit status. Throws BadInput, offpath::Error.
int model(std::span<char* const> arguments, Ranks& ranks);

}  // namespace md
