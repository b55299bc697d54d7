// What the agent gives up before it serves anybody: being read by others, and rights it does not need.
#pragma once

#include <cstdint>

#include "base/received_fds.h"
#include "base/status.h"

namespace offpath::agent {

// First thing in main, before secrets are read: no other process of the same user can read this one's memory or
// attach to it (PR_SET_DUMPABLE), no core file is written, files are created for the owner alone, no program that is
// started ever gains rights. Raises the limit of open descriptors to what is allowed, for every frame has one.
[[nodiscard]] Status shut_out_others();

// Gives up every capability but CAP_SYS_PTRACE, and that as well unless `keep_ptrace`. `permit_users`: what starting
// and ending workers of other users takes (CAP_SETUID, CAP_SETGID, CAP_KILL) stays permitted, but is not effective.
// Called when addresses are bound and limits set. No program that the agent starts has any: the bounding set is emptied
// where the agent may do that (CAP_SETPCAP), but for what makes workers other users. Returns whether CAP_SYS_PTRACE is
// there.
[[nodiscard]] Result<bool> give_up_capabilities(bool keep_ptrace, bool permit_users);

// How many frames, each a mapping and a descriptor, may be in memory, so that a quarter of what the kernel lets this
// process have is left for everything else.
[[nodiscard]] std::uint64_t frames_that_fit();

// Of what all users may have together, what one may have where nothing is set: some is left for the next one.
[[nodiscard]] constexpr std::uint64_t share_of_user(std::uint64_t all) noexcept { return all - all / 8; }

// What programs may have of the rest, so that the agent has some for itself; `of_user`: those of one user, 0 where it
// was not set.
[[nodiscard]] ReceivedLimits beside_frames(std::uint64_t frames, ReceivedLimits of_user);

}  // namespace offpath::agent
