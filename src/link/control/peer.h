// The process at the other end of a Unix socket: its identity, whether it still lives, and whether its memory may be
// read.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/fd.h"
#include "base/status.h"
#include "link/control/witness.h"

namespace offpath::link {

struct Peer {
  pid_t pid = 0;  // 0: in a process-id namespace this process cannot see
  uid_t uid = 0;
  gid_t gid = 0;
  Fd pidfd;  // empty where the kernel gives none; then the socket alone tells of life
};

// Of the process that connected (seen by the agent) or listened (seen by the host).
[[nodiscard]] Result<Peer> peer_of(int socket);

// True once the process has ended. False where there is no pidfd.
[[nodiscard]] bool has_ended(const Peer& peer) noexcept;

struct DirectReads {
  bool permitted = false;
  std::string reason;  // a sentence; where they are not permitted, what to change
};

// Reads the witness where the peer said it is: proves both the right to read and that the process with this id is the
// one that has the channel's memory, not another one that holds its socket.
[[nodiscard]] DirectReads try_direct_reads(const Peer& peer, Witness& witness);
// Asks the kernel for the right alone, at an address that no process has: no page is touched, so the program cannot
// make this wait for one. The first read then finds out whose memory it is.
[[nodiscard]] DirectReads ask_for_direct_reads(const Peer& peer);

// kernel.yama.ptrace_scope; 0 where the kernel has no Yama.
[[nodiscard]] int yama_scope();
// Under Yama 1 a process names who may read it (one at a time: the last one named).
void permit_reads_by(pid_t reader);

}  // namespace offpath::link
