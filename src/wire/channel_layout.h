// The channel segment: one piece of host memory that holds both rings and the completion lines.
//
//   offset                     what                   written by
//   0                          TailLine               host      request ring's tail, reply ring's head
//   64                         AgentLine              agent     request ring's head, asleep flag
//   128                        ReplyTailLine          agent     reply ring's tail
//   192                        WitnessLine            agent     a value that proves whose memory a read returned
//                                                               (link/control/witness.h)
//   4096                       request slots          host
//   + request_slots * 64       reply slots            agent
//   + reply_slots * 64         completion lines       agent     one of 64 bytes for each stream
//   + streams_max * 64, page   a request's payload    host      if too large for the ring; one at a time, until the
//                                                               agent has copied it
//
// Positions count slots since the beginning and never wrap; the slot is position modulo ring size, the
// lap is position / ring size + 1. The host writes slots, then the tail with release order.
//
// Read this first in src/wire, then slot.h (an entry of its rings), region.h (names for memory), control.h (the socket
// beside it), and for messages coding.h and fields.h; stale_range.h has the texts for memory that is gone.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"
#include "wire/slot.h"

namespace offpath::wire {

struct alignas(64) TailLine {
  std::uint64_t tail;        // request slots published
  std::uint64_t reply_head;  // reply slots taken
  std::uint64_t reserved[6];
};
static_assert(sizeof(TailLine) == 64);

struct alignas(64) AgentLine {
  std::uint64_t head;    // request slots that the agent has copied out and released
  std::uint64_t asleep;  // 1: the agent wants a wake after the next tail
  std::uint64_t reserved[6];
};
static_assert(sizeof(AgentLine) == 64);

// The frame `requests` of a wake (control.h): the part of the ring that the agent would read, which saves that read.
// The slots from `position` on, as many as the frame holds, follow.
struct SentRequests {
  std::uint64_t position;  // the host's view of the ring's head
  std::uint64_t tail;
  std::uint64_t reply_head;
};
static_assert(sizeof(SentRequests) == 24);
inline constexpr std::uint64_t sent_requests_max = 15;  // slots

struct alignas(64) ReplyTailLine {
  std::uint64_t tail;  // reply slots published
  std::uint64_t reserved[7];
};
static_assert(sizeof(ReplyTailLine) == 64);

struct alignas(64) WitnessLine {
  std::uint64_t value[2];
  std::uint64_t reserved[6];
};
static_assert(sizeof(WitnessLine) == 64);

// One for each stream. Words only grow. `credit` is the sum of the charges (see charge_of_buffer) that the stream may
// have sent since it was opened.
struct alignas(64) CompletionLine {
  std::uint64_t pulled;
  std::uint64_t stored;
  std::uint64_t credit;
  std::uint64_t reserved[5];
};
static_assert(sizeof(CompletionLine) == 64);

struct ChannelLayout {
  std::uint32_t request_slots = 4096;
  std::uint32_t reply_slots = 2048;
  std::uint32_t streams_max = 1024;

  static constexpr std::uint64_t tail_line = 0;
  static constexpr std::uint64_t agent_line = 64;
  static constexpr std::uint64_t reply_tail_line = 128;
  static constexpr std::uint64_t witness_line = 192;
  static constexpr std::uint64_t request_ring = 4096;

  [[nodiscard]] constexpr std::uint64_t reply_ring() const noexcept {
    return request_ring + request_slots * slot_bytes;
  }
  [[nodiscard]] constexpr std::uint64_t completion_lines() const noexcept {
    return reply_ring() + reply_slots * slot_bytes;
  }
  [[nodiscard]] constexpr std::uint64_t completion_line(std::uint32_t stream) const noexcept {
    return completion_lines() + stream * sizeof(CompletionLine);
  }
  [[nodiscard]] constexpr std::uint64_t outside() const noexcept {
    return align_up(completion_lines() + streams_max * sizeof(CompletionLine), page_bytes);
  }
  [[nodiscard]] constexpr std::uint64_t total_bytes() const noexcept { return outside() + entry_bytes_max; }
};

inline constexpr std::uint32_t ring_slots_min = 64;
inline constexpr std::uint32_t ring_slots_max = 1u << 20;
inline constexpr std::uint32_t streams_max_max = 1u << 16;

// Checks a layout that another process requested.
[[nodiscard]] Status check_layout(const ChannelLayout& layout);

// The most slots of one entry: half the ring, so that it never waits for itself. A larger request is stored outside of
// the ring; a larger reply is written in parts, as the host reads them.
[[nodiscard]] constexpr std::uint64_t entry_slots_max(std::uint64_t ring_slots) noexcept { return ring_slots / 2; }

}  // namespace offpath::wire
