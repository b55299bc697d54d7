// Lists of the machine's cores, as configuration keys give them.
#pragma once

#include <string_view>
#include <vector>

#include "base/config.h"

namespace offpath::agent {

// The cores of a list such as ["2", "4-7"], in its order.
[[nodiscard]] Result<std::vector<unsigned>> read_core_list(const Config& config, std::string_view key);

}  // namespace offpath::agent
