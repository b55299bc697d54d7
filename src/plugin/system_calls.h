// The system calls that the agent and its workers may make after their start (seccomp): a list of allowed calls, as
// data in system_calls.cc. A process cannot remove it, nor can its threads and the processes that it starts.
//
// A call that is not in the list fails with ENOSYS, as on an older kernel. The C library and others have fallbacks for
// that, but treat EPERM for calls that they try first (clone3, statx) as an error. No process is killed: an agent that
// died because a new C library makes a new call would take every user's frames with it. Calls that were refused to the
// agent are in the kernel's log.
#pragma once

#include <sched.h>

#include "base/status.h"
#include "plugin/call.h"

namespace offpath::plugin {

// Namespaces of a worker, where the kernel allows them: no network, no System V memory of others, no privileges over
// anything. It shares the file system and PID namespace: functions read and write files, and the agent identifies
// workers by pid.
inline constexpr int worker_namespaces = CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC;

// The programs that a process starts, which need additional calls.
struct StartsPrograms {
  bool workers = false;   // plug-ins: they change user, make namespaces and have a list of their own
  bool commands = false;  // alarms.hook, source.command: any program, which inherits the agent's list
};

// For all existing and later threads. An error: the kernel does not support filters, or a surrounding sandbox refuses
// them.
[[nodiscard]] Status restrict_agent(Sandbox sandbox, StartsPrograms starts);
// For this process, before it runs foreign code: files, memory and threads; no sockets, programs or other processes.
[[nodiscard]] Status restrict_worker(Sandbox sandbox);

}  // namespace offpath::plugin
