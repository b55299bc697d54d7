// The slot: 64 bytes, the unit of both rings.
//
//   0        4        8            12     13     14      15        16                        64
//   | lap    | crc32c | ticket_low | kind | flags| length| reserved| payload (48 bytes)       |
//
// An entry is one or more slots in a row: the first has flag `first`, the last has flag `last`, all
// carry the same kind and ticket. `lap` counts how often the ring went round, starting at 1, so that a
// slot read over a network is known to be new. The checksum covers the whole slot with its own field as 0.
//
// A request that would take more than half of the ring is one slot with flag `outside`: its payload is stored in the
// channel segment behind the lines (channel_layout.h), and the slot contains its length and checksum.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace offpath::wire {

inline constexpr std::uint64_t slot_bytes = 64;
inline constexpr std::uint64_t slot_payload_bytes = 48;
// payload of one entry, in all its slots or outside of the ring
inline constexpr std::uint64_t entry_bytes_max = 512 * 1024;

// A reply's payload begins with the upper half of the ticket that it answers, because any number of requests may have
// followed. Tickets of requests count up by one, so the lower half in the slot is enough.
inline constexpr std::uint64_t reply_head_bytes = 4;

enum SlotFlags : std::uint8_t { slot_first = 1, slot_last = 2, slot_outside = 4 };

// The payload of a slot whose entry is stored outside of the ring.
struct OutsideEntry {
  std::uint32_t length;
  std::uint32_t crc32c;
};
static_assert(sizeof(OutsideEntry) == 8);

struct SlotHeader {
  std::uint32_t lap;
  std::uint32_t crc32c;
  std::uint32_t ticket_low;
  std::uint8_t kind;
  std::uint8_t flags;
  std::uint8_t length;  // bytes used of the payload
  std::uint8_t reserved;
};
static_assert(sizeof(SlotHeader) == 16);

struct alignas(64) Slot {
  SlotHeader header;
  std::byte payload[slot_payload_bytes];
};
static_assert(sizeof(Slot) == slot_bytes);

[[nodiscard]] inline std::uint32_t slot_checksum(const Slot& slot) noexcept {
  Slot copy = slot;
  copy.header.crc32c = 0;
  return crc32c(std::as_bytes(std::span(&copy, 1)));
}

[[nodiscard]] constexpr std::uint64_t slots_for(std::uint64_t payload_bytes) noexcept {
  return payload_bytes == 0 ? 1 : (payload_bytes + slot_payload_bytes - 1) / slot_payload_bytes;
}

}  // namespace offpath::wire
