// May this shared object be loaded? Whoever can change it, or put another in its place, decides what runs.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/status.h"

namespace offpath::plugin {

// The file behind `path`, symbolic links resolved. `path` is absolute; the file is a regular one that belongs to root or to
// the agent's user and that nobody else may write to, and the same goes for every directory above it (sticky ones like /tmp
// are allowed, for in these nobody renames the files of others). Errors name the file or directory, its owner and mode.
[[nodiscard]] Result<std::string> find_plugin_file(const std::string& path);
// The same for a file of this user, instead of the agent's. Errors are all alike: an agent that may read more than the user says
// nothing about what there is.
[[nodiscard]] Result<std::string> find_plugin_file_of(uid_t user, const std::string& path);

}  // namespace offpath::plugin
