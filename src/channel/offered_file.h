// Files that a program may have its agent write (pool_write).
//
// A write to a pipe, a socket, a device, or a file of FUSE or a network waits for whoever serves it, for ever if that
// one likes, and no signal ends all of these waits. So an agent writes regular files of this machine's own file systems
// and nothing else; the program's own thread writes the rest. Neither of the two calls that find out asks the file
// system.
#pragma once

#include "base/status.h"

namespace offpath::channel {

// Error::unsupported: the program has to write it; the message says what it is.
[[nodiscard]] Status check_offered_file(int fd);

}  // namespace offpath::channel
