// The system calls that the agent and its workers may make after their start (seccomp): a list of allowed calls, as
// data in system_calls.cc. A process cannot remove it, nor can its threads and the processes that it starts.
//
// A call that is not in the list fails with ENOSYS, as on an older kernel. The C library and others have alternatives
// for that, while EPERM for a call that they try first (clone3, statx) is an error to them. No process is killed: an
// agent that dies because a new C library makes a new call takes every user's frames with it. The kernel's log has the
// calls that were refused to the agent.
#pragma once

#include <sched.h>

#include "base/status.h"
#include "plugin/call.h"

namespace offpath::plugin {

// What a worker has of its own where the kernel allows it: no network, no System V memory of others, no right over
// anything. It keeps the file system and process numbers: functions read and write files, and the agent knows its
// workers by their numbers.
inline constexpr int worker_namespaces = CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC;

// What a process does that takes calls which others do without.
struct StartsPrograms {
  bool workers = false;   // plug-ins: they change user, make namespaces and have a list of their own
  bool commands = false;  // alarms.hook, source.command: any program, which has the agent's list as well
};

// For all threads there are, and all that come. Error: the kernel has no such filters, or something around this process
// refuses them.
[[nodiscard]] Status restrict_agent(Sandbox sandbox, StartsPrograms starts);
// Of this process, before it has other code run: files, memory and threads; no socket, no program, no other process.
[[nodiscard]] Status restrict_worker(Sandbox sandbox);

}  // namespace offpath::plugin
