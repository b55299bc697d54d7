// The worker's side: a process that loads one plug-in and runs its functions, one call at a time, for the agent at the
// other end of a socket. docs/guides/plugins.md says which rights it gives up before it loads anything.
#pragma once

#include "plugin/worker_arguments.h"

namespace offpath::plugin {

// Becomes its user and gives up everything the worker does not need: the right to change users, descriptors, core
// files, being traced by other processes of its user, memory and time beyond its share, system calls. Then it loads the
// plug-in, describes it to the agent, and serves until the agent closes the socket. The agent is told what is wrong
// with a plug-in; an error here concerns the connection to the agent.
[[nodiscard]] Status serve(const WorkerOptions& options);

}  // namespace offpath::plugin
