// The worker's side: a process that loads one plug-in and runs its functions, one call at a time, for the agent at the
// other end of a socket. docs/guides/plugins.md tells what it gives up before it loads anything.
#pragma once

#include "plugin/worker_arguments.h"

namespace offpath::plugin {

// Becomes the user it is to be, and gives up what the worker does not need: the right to do so, descriptors, core
// files, being looked into by others of its user, memory and time beyond its share, system calls. Loads the plug-in,
// tells the agent what it has, and serves until the agent closes the socket. What is wrong with the plug-in is told the
// agent; an error here is one of talking to it.
[[nodiscard]] Status serve(const WorkerOptions& options);

}  // namespace offpath::plugin
