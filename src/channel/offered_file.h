// Files that a program may have its agent write (pool_write).
//
// A write to a pipe, a socket, a device, or a file of FUSE or a network file system waits for its server, possibly
// forever, and no signal ends all of these waits. So an agent writes only regular files of this machine's own file
// systems, and the program's own thread writes all others. The two calls that check this do not ask the file system.
#pragma once

#include "base/status.h"

namespace offpath::channel {

// Error::unsupported: the program has to write the file; the message says why.
[[nodiscard]] Status check_offered_file(int fd);

}  // namespace offpath::channel
