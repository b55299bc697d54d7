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
  pid_t pid = 0;  // 0: in a PID namespace that this process cannot see
  uid_t uid = 0;
  gid_t gid = 0;
  Fd pidfd;  // empty if the kernel gives none; then only the socket shows whether the process lives
};

// The peer of `socket`: the process that connected (seen by the agent) or that listens (seen by the host).
[[nodiscard]] Result<Peer> peer_of(int socket);

// True once the process has ended. Always false without a pidfd.
[[nodiscard]] bool has_ended(const Peer& peer) noexcept;

struct DirectReads {
  bool permitted = false;
  std::string reason;  // a sentence; if reads are not permitted, it says what to change
};

// Reads the witness at the peer's address. Proves that reading is permitted, and that the process with this pid has the
// channel's memory and is not another process that holds the socket.
[[nodiscard]] DirectReads try_direct_reads(const Peer& peer, Witness& witness);
// Asks the kernel only for permission, at an address that no process has: no page is touched, so the program cannot
// make this wait. The first real read then proves the memory's owner.
[[nodiscard]] DirectReads ask_for_direct_reads(const Peer& peer);

// kernel.yama.ptrace_scope; 0 if the kernel has no Yama.
[[nodiscard]] int yama_scope();
// Under Yama 1 a process names the process that may read it (one at a time: the last one counts).
void permit_reads_by(pid_t reader);

}  // namespace offpath::link
