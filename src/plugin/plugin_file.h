// Checks whether a shared object may be loaded: a user who can change or replace it can run any code.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/fd.h"
#include "base/status.h"

namespace offpath::plugin {

// The file behind `path`, with symbolic links resolved. `path` is absolute. The file is a regular one of root or of the
// agent's user that no other user may write to, and the same holds for every directory above it (sticky ones like /tmp
// are allowed, because in these users cannot rename the files of others). Errors name the file or directory, its owner
// and mode.
[[nodiscard]] Result<std::string> find_plugin_file(const std::string& path);
// The same for a file of `owner` or of root, opened: the path is walked once, folder by folder and link by link, and
// each step and the file are checked by descriptor. So the file cannot be replaced between the check and the load.
// Symbolic links also have to belong to owner or root. Called with that owner's rights, it opens and reveals only what
// these permit.
[[nodiscard]] Result<Fd> open_plugin_file(const std::string& path, uid_t owner);

}  // namespace offpath::plugin
