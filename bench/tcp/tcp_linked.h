// One unmodified server three times: its connections over an agent beyond a link (its area is read and written by the
// link), over an agent on its machine, and in the kernel. With the figures of the agent beyond the link, which count
// its reads and writes.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "machine.h"
#include "report.h"
#include "tcp_client.h"

namespace offpath::bench {

struct LinkedSide {
  std::string name;  // as a claim's peer
  StreamServer server{};
  pid_t relay = -1;  // its CPU time is the host's, too; -1: none
  pid_t agent = -1;  // -1: none
};

struct LinkedSides {
  std::array<LinkedSide, 3> all;  // beyond the link; on this machine; the kernel
  std::string link;               // "tcp"
  std::string pages;              // Unix socket of the first one's agent, where its metrics are
};

// Operations that an agent has begun over links for its programs, and their bytes.
struct LinkOperations {
  double reads = 0, writes = 0, bytes = 0;
};
// From the text of an agent's /metrics.
[[nodiscard]] Result<LinkOperations> parse_link_operations(std::string_view metrics);

// Echoes one after the other, a message every 100 ms, sends, and streams: CPU of both sides for each, and the
// operations of the link.
[[nodiscard]] Status measure_linked(const LinkedSides& sides, const Options& options, Report& report);

}  // namespace offpath::bench
