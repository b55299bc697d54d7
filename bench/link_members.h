// The programs from which `bench_link_points` reads: processes that hold memory and sleep. Each has one link to the
// bench, and for its peers the same memory by address, and a plain TCP server that answers with the requested number of
// bytes.
//
//   bench (the links' agent ends)  <--- link --->  program 0 … N-1 (host ends)
//                                  <--- TCP ---->  a server beside each, where the peer is TCP
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "link/link.h"
#include "machine.h"
#include "wire/region.h"

namespace offpath::bench {

struct MembersPlan {
  std::string address;  // at which the bench listens
  std::size_t count = 1;
  int core = 0;       // of the programs and their servers
  std::string group;  // cgroup.procs of the control group that they join; empty: none
  std::uint64_t range_bytes = 0, segment_bytes = 0;
  bool servers = false;
};

class Member {
 public:
  static constexpr link::RegionId range = 1, segment = wire::segment_flag | 1;
  static constexpr std::uint32_t generation = 1;

  Member() = default;
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;
  ~Member();

  pid_t pid = -1;
  std::uint64_t range_base = 0, segment_base = 0;  // in its own address space
  std::unique_ptr<link::AgentLink> link;
  Fd server;  // connected
  Fd report;  // a socket to it
};

// A request to a server: it takes the `pushed` bytes that follow, then answers with `wanted` bytes.
struct ServerRequest {
  std::uint32_t pushed = 0, wanted = 0;
};

// Forks: call it before starting anything else. Every link is open when it returns.
[[nodiscard]] Result<std::vector<Member>> start_members(const MembersPlan& plan);

// Moves the calling process to a control group.
[[nodiscard]] Status join_group(const std::string& procs_file);

}  // namespace offpath::bench
