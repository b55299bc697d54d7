// `offpath-md model`: the phases' times, of the host alone and of the agent alone; what phase_model.h predicts from
// them; and the same runs measured.
#pragma once

#include <span>

#include "md/ranks/ranks.h"

namespace md {

// The program's exit status. Throws BadInput, offpath::Error.
int model(std::span<char* const> arguments, Ranks& ranks);

}  // namespace md
