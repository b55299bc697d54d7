// A directory that this process keeps files in.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/fd.h"
#include "base/status.h"

namespace offpath {

enum class Links { follow, refuse };  // whether `path` may be a symbolic link

// Opens the directory, and makes it with `mode` if it is absent. Another user's is refused.
[[nodiscard]] Result<Fd> open_own_directory(std::string path, mode_t mode, Links links);

}  // namespace offpath
