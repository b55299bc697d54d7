// The names in a directory.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace offpath {

// Without "." and "..", in no order. The position of `directory` stays; `path` is for errors.
[[nodiscard]] Result<std::vector<std::string>> directory_entries(int directory, const std::string& path);

}  // namespace offpath
