// miniMD's input: fourteen lines in a fixed order; values come first, and the rest of a line is a comment.
//
//   1, 2  remarks
//   3  lj | metal               8   steps                 12  interval of neighbour lists
//   4  none | data file         9   time step             13  cut-off, skin
//   5  lj | eam                 10  temperature           14  interval of thermo output (0: start and end)
//   6  epsilon sigma            11  density
//   7  cells along x y z
#pragma once

#include <string>

#include "md/settings.h"

namespace md {

// Overrides `settings`. File names in it are relative to its folder. Throws BadInput with the line and the expected
// content.
void read_input_file(const std::string& path, Settings& settings);

}  // namespace md
