// The counters of the acceptor (agent/acceptor.h).
#pragma once

#include <cstdint>

namespace offpath::agent {

struct AcceptorCounters {
  std::uint64_t connections = 0, welcomed = 0, welcomed_by_old_key = 0, refused = 0,
                handshakes = 0;  // the last: under way
};

}  // namespace offpath::agent
