// From the agent's process to a worker's: the steps between fork and exec, and the rights that they need.
#pragma once

#include <sys/types.h>

#include <string>

#include "plugin/call.h"

namespace offpath::plugin {

// Starts `program` with `socket` and `control` and nothing else of the agent: no descriptors, capabilities, environment
// or memory. It runs in a process group of its own, as options.user if set, and is killed when the agent dies.
[[nodiscard]] Result<pid_t> launch_worker(const PluginOptions& options, const std::string& program, int socket,
                                          int control);

// Sends SIGKILL to the worker's process group, with the right to signal other users if the agent has it.
void kill_worker(pid_t pid) noexcept;

}  // namespace offpath::plugin
