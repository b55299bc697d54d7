// The command line. What miniMD has goes by its names.
#pragma once

#include <span>
#include <string>

#include "md/settings.h"

namespace md {

struct Options {
  Settings settings;
  bool help = false;
};

// Throws BadInput naming the option.
Options read_options(std::span<char* const> arguments);
std::string help_text();

}  // namespace md
