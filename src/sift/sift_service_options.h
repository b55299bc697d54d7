// Options of the sift pools of one agent (sift_service.h).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace offpath::sift {

struct SiftServiceOptions {
  TimeNs piece_wait_ns = 30 * second_ns;  // for the answer to a piece, before it is offered again
  TimeNs ask_wait_ns = 5 * second_ns;
  std::uint64_t tracks_bytes_max = 1ull << 30;  // of one answer
  std::uint64_t object_bytes_max = UINT64_MAX;  // as in PoolsOptions
  std::size_t user_pools_max = 16384;           // as in FrameTable::Limits
  uid_t agent_user = 0;                         // the agent's own user: it writes files for this user only
};

}  // namespace offpath::sift
