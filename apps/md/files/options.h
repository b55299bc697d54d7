// The command line. What miniMD has goes by its names.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "md/settings.h"

namespace md {

struct Options {
  Settings settings;
  bool help = false;
  std::map<std::string, std::string> own;  // of a subcommand, as they were given
};

// Throws BadInput naming the option. `own`: which options a subcommand has beside the run's.
Options read_options(std::span<char* const> arguments, const std::vector<std::string>& own = {});
std::string help_text();

}  // namespace md
