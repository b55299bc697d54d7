// miniMD's input: fourteen lines in a fixed order, the values first, whatever follows them is a remark.
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

// Over what `settings` say. Names in it are relative to its folder. Throws BadInput naming the line and what belongs
// there.
void read_input_file(const std::string& path, Settings& settings);

}  // namespace md
