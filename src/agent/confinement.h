// What the agent gives up before it serves anybody: being read by others, and rights it does not need.
#pragma once

#include "base/status.h"

namespace offpath::agent {

// First thing in main, before secrets are read: no other process of the same user can read this one's memory or
// attach to it (PR_SET_DUMPABLE), no core file is written, files are created for the owner alone, no program that is
// started ever gains rights. Raises the limit of open descriptors to what is allowed, for every frame has one.
[[nodiscard]] Status shut_out_others();

// Gives up every capability but CAP_SYS_PTRACE, and that as well unless `keep_ptrace`. `permit_users`: what starting and
// ending workers of other users takes (CAP_SETUID, CAP_SETGID, CAP_KILL) stays permitted, but is not effective. Called when
// addresses are bound and limits set. Returns whether CAP_SYS_PTRACE is there.
[[nodiscard]] Result<bool> give_up_capabilities(bool keep_ptrace, bool permit_users);

}  // namespace offpath::agent
