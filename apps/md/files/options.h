// The command line. Options of miniMD have its names.
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
  std::map<std::string, std::string> own;  // of a subcommand, as given
};

// Throws BadInput with the option. `own`: further options of a subcommand.
Options read_options(std::span<char* const> arguments, const std::vector<std::string>& own = {});
std::string help_text();

}  // namespace md
