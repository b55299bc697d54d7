// May this shared object be loaded? Whoever can change it, or put another in its place, decides what runs.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/fd.h"
#include "base/status.h"

namespace offpath::plugin {

// The file behind `path`, symbolic links resolved. `path` is absolute; the file is a regular one that belongs to root
// or to the agent's user and that nobody else may write to, and the same goes for every directory above it (sticky ones
// like /tmp are allowed, for in these nobody renames the files of others). Errors name the file or directory, its owner
// and mode.
[[nodiscard]] Result<std::string> find_plugin_file(const std::string& path);
// The same for a file of `owner` or of root, and opened: the path is walked once, folder by folder and link by link,
// each is looked at by its descriptor, and so is the file. So nobody can put another in its place between the look and
// the load. Symbolic links have to belong to owner or root, too. Called by whoever has that owner's rights, it opens
// and says nothing that they could not see without it.
[[nodiscard]] Result<Fd> open_plugin_file(const std::string& path, uid_t owner);

}  // namespace offpath::plugin
