// `offpath-md tdr`: the temperature divergence rate of "Smarter NICs for faster molecular dynamics" (2022), section
// V-2: the slope of a linear regression over steps, sampled every 10 steps, of the difference between a run's
// temperature and that of a run with new lists at every step.
#pragma once

#include <span>
#include <vector>

#include "md/ranks/ranks.h"

namespace md {

// The slope of the regression of `samples` at 0, 1, 2...
double slope_of(const std::vector<double>& samples);

// Returns the program's exit status. Throws BadInput.
int tdr(std::span<char* const> arguments, Ranks& ranks);

}  // namespace md
