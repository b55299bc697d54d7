// Many names of members in a short text, as bash writes them: "node{001..500}-{0..1}" are the 1,000 names from
// node001-0 to node500-1. The two numbers of a range have the same number of digits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace offpath::sift {

// The same names in the same order give the same text, on every member. Names with braces stay as they are.
[[nodiscard]] std::string member_ranges(const std::vector<std::string>& names);

// The names of such a text, separated by commas; patterns stay as they are.
[[nodiscard]] Result<std::string> member_names(std::string_view ranges);

}  // namespace offpath::sift
