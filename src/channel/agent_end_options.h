// Options and counters of an agent's end of a channel (agent_end.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace offpath::channel {

class LookBudget;

struct AgentEndOptions {
  std::uint64_t pull_slice_bytes = 512 * 1024;
  std::uint64_t asked_slice_bytes = 2 * 1024 * 1024;  // the same if the host has to answer each slice
  std::uint64_t gathered_bytes = 256 * 1024;          // of small pulls that are posted together on one machine
  unsigned pulls_outstanding = 8;                     // slices outstanding if the link completes later
  unsigned look_slots_max = 256;
  TimeNs idle_before_sleep_ns = millisecond_ns;
  unsigned look_out_percent = 5;  // the share of a core for looking out for posts, of all channels together
  // An owner of more channels than this lets those rest that have been idle for so long (AgentEnd::rest). The next post
  // to one of them comes with a wake, which a busy loop finds at its next look at descriptors.
  std::size_t polled_channels = 16;
  TimeNs idle_before_rest_ns = 100 * millisecond_ns;
  LookBudget* look_budget = nullptr;  // null: it never looks out
  // Read after slow work within a poll; null: a poll takes no time, as in a simulation.
  TimeNs (*clock)() = nullptr;
};

struct AgentEndCounters {
  std::uint64_t requests = 0, replies = 0, pulls = 0, pushes = 0, bytes_pulled = 0, bytes_pushed = 0;
  std::uint64_t looks = 0, wakes_sent = 0, sleeps = 0, failures = 0;
  std::uint64_t misses = 0;  // requests whose object was not there, or not in time, or no longer wanted: no failures
};

}  // namespace offpath::channel
