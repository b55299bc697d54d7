// Limits of a table of objects (frame_table.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace offpath::pool {

struct TableLimits {
  std::size_t waiting_max = 65536, user_waiting_max = 65536;  // requests that wait, here or for other members
  std::size_t leases_max = 65536;                             // of one channel
  std::uint64_t key_bytes_max = 1 << 30;                      // of all objects, on disk or not
  std::uint64_t waiting_key_bytes_max = 64 << 20;             // of them; of one user's steps that wait for ranks
  std::size_t user_pools_max = 16384;
  std::size_t user_steps_max = 262144;  // of one user: ends of steps, each rank's counts, that wait for other ranks
  TimeNs offer_wait_ns = second_ns;     // for the descriptor of a requested write
};

}  // namespace offpath::pool
