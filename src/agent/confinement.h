// Protections that the agent sets up before it serves programs: no other process can read it, and it drops privileges
// that it does not need.
#pragma once

#include <cstdint>

#include "base/received_fds.h"
#include "base/status.h"

namespace offpath::agent {

// First thing in main, before secrets are read. Afterwards no other process of the same user can read this one's memory
// or attach to it (PR_SET_DUMPABLE), no core file is written, new files are readable by their owner alone, and no
// started program gains privileges. Raises the limit of open descriptors to the hard limit, because every frame has
// one, and that of locked memory, which holds the frames that RDMA reads into: Kubernetes has no setting for it.
[[nodiscard]] Status shut_out_others();

// Gives up every capability except CAP_SYS_PTRACE, and that too unless `keep_ptrace`. `permit_users`: the capabilities
// for starting and ending workers of other users (CAP_SETUID, CAP_SETGID, CAP_KILL) stay permitted but not effective.
// Called after addresses are bound and limits set. Programs that the agent starts have no capabilities: the bounding
// set is emptied if the agent may do that (CAP_SETPCAP), except for those that change a worker's user. Returns whether
// CAP_SYS_PTRACE is kept.
[[nodiscard]] Result<bool> give_up_capabilities(bool keep_ptrace, bool permit_users);

// Gives up every capability except CAP_DAC_OVERRIDE: for the process that writes to files of cgroups, which may belong
// to other users.
[[nodiscard]] Status give_up_all_but_files();

// The number of frames, each a mapping and a descriptor, that leaves a quarter of the kernel's limits of this process
// for everything else.
[[nodiscard]] std::uint64_t frames_that_fit();

// One user's share of a limit for all users, unless it is configured: it leaves some for the next user.
[[nodiscard]] constexpr std::uint64_t share_of_user(std::uint64_t all) noexcept { return all - all / 8; }

// Limits for programs' descriptors and mappings beside `frames`; the rest is for the agent. `of_user`: limits of one
// user, 0 where not configured.
[[nodiscard]] ReceivedLimits beside_frames(std::uint64_t frames, ReceivedLimits of_user);

}  // namespace offpath::agent
