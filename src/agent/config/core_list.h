// Cores of the machine, as keys name them.
#pragma once

#include <string_view>
#include <vector>

#include "base/config.h"

namespace offpath::agent {

// Of a list such as ["2", "4-7"], in its order.
[[nodiscard]] Result<std::vector<unsigned>> read_core_list(const Config& config, std::string_view key);

}  // namespace offpath::agent
