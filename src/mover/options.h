// The mover's configuration and counters.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/measure/latency.h"

namespace offpath::mover {

struct MoverOptions {
  std::uint64_t memory_bytes_max = 8ull << 30;  // of frames, promised and held
  std::uint64_t user_bytes_max = UINT64_MAX;    // the part of one user
  std::uint64_t window_bytes = 256ull << 20;    // of credit for an open stream, if there is room
  std::uint64_t inline_bytes_max = 256 * 1024;  // steps on more bytes than this are jobs
  std::uint32_t streams_max = 65536;            // over all channels
  std::uint32_t user_streams_max = 65536;       // over those of one user
  std::uint64_t prepared_bytes_max = 16 << 20;  // larger buffers are not prepared ahead of their use
  std::uint64_t waiting_bytes_max = 1 << 20;    // of one channel's requests that wait to be pulled
  // The same for those that wait for memory. It is larger because a channel at this bound is not read until memory is
  // freed, and its program may be the one that frees some.
  std::uint64_t lacking_bytes_max = 16 << 20;
  // The bound for all channels together; beyond it each channel has a sixteenth of its own bound. It is memory beside
  // memory_bytes_max.
  std::uint64_t all_lacking_bytes_max = 256 << 20;
  TimeNs (*clock)() = nullptr;  // when work that is done at once ends; null: the time argument
};

struct MoverCounters {
  std::uint64_t sends = 0, moves = 0, failures = 0, bytes = 0, rows = 0, frames = 0;
  std::uint64_t streams_open = 0, operations = 0;
  std::uint64_t promised_bytes = 0;          // memory for batches that may come
  std::uint64_t claimed_bytes = 0;           // and for batches that have come and wait for earlier pulls
  std::uint64_t pull_ns = 0, finish_ns = 0;  // sums over operations
  // Frames of streams with compression: their number, their bytes before and after, and the time, which is part of
  // finish_ns.
  std::uint64_t packed_frames = 0, plain_bytes = 0, packed_bytes = 0, pack_ns = 0;
};

// Of requests that succeeded, with their tickets.
struct MoverLatencies {
  LatencyHistogram pull;    // from the first sight of a request to its bytes read, the wait for memory included
  LatencyHistogram store;   // from there to the object in its store
  LatencyHistogram credit;  // of streams that memory was not there for: from asking to getting it
};

}  // namespace offpath::mover
