// Reads lists such as "1,5,10" for options of subcommands.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace md {

// The numbers in `given` under this name, or `otherwise`. Throws BadInput with the option.
std::vector<double> numbers_of(const std::map<std::string, std::string>& given, const std::string& name,
                               const std::string& otherwise);
double number_of(const std::map<std::string, std::string>& given, const std::string& name,
                 const std::string& otherwise);

}  // namespace md
