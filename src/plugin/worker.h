// The worker's side: a process that loads one plug-in and runs its functions, one call at a time, for the agent at the
// other end of a socket. docs/guides/plugins.md lists the rights that it gives up before loading.
#pragma once

#include "plugin/worker_arguments.h"

namespace offpath::plugin {

// Changes to its user and gives up everything that it does not need: the right to change users, descriptors, core
// files, tracing by other processes of its user, memory and time beyond its limits, system calls. Then it loads the
// plug-in, describes it to the agent, and serves until the agent closes the socket. Errors of the plug-in are sent to
// the agent; an error returned here concerns the connection to the agent.
[[nodiscard]] Status serve(const WorkerOptions& options);

}  // namespace offpath::plugin
