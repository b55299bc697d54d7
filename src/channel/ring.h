// Entries on a ring: writes them into slots, and assembles them from slots that were read.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "wire/slot.h"

namespace offpath::channel {

// One assembled entry, with its own copy of the bytes.
struct Entry {
  std::uint64_t ticket = 0;
  std::uint8_t kind = 0;
  Bytes payload;         // valid until the next call of the reader that made it
  bool outside = false;  // the payload is a wire::OutsideEntry
};

// The single producer of a ring. It writes slots; its owner publishes the tail.
class RingWriter {
 public:
  // `slots` is a power of two; `memory` holds that many.
  RingWriter(std::byte* memory, std::uint32_t slots) noexcept : memory_(memory), slots_(slots) {}

  [[nodiscard]] std::uint64_t position() const noexcept { return position_; }
  [[nodiscard]] std::uint32_t slots() const noexcept { return slots_; }
  [[nodiscard]] std::uint64_t used(std::uint64_t head) const noexcept { return position_ - head; }
  [[nodiscard]] bool fits(std::uint64_t payload_bytes, std::uint64_t head) const noexcept {
    return wire::slots_for(payload_bytes) <= slots_ - used(head);
  }
  // Prefetches the lines of the next entry's slots from the reader's core, while the payload is composed.
  void prefetch(std::uint64_t payload_bytes) const noexcept;
  // The caller has checked fits() and entry_slots_max.
  void write(std::uint8_t kind, std::uint64_t ticket, Bytes payload) noexcept {
    write(kind, ticket, payload, 0, wire::slots_for(payload.size()));
  }
  // Writes only `count` slots of this entry, from `first` on. The caller has checked that they are free.
  void write(std::uint8_t kind, std::uint64_t ticket, Bytes payload, std::uint64_t first, std::uint64_t count) noexcept;
  void write_outside(std::uint8_t kind, std::uint64_t ticket, const wire::OutsideEntry& entry) noexcept;

 private:
  void write_slot(std::uint8_t kind, std::uint64_t ticket, std::uint8_t flags, Bytes payload) noexcept;

  std::byte* memory_;
  std::uint32_t slots_;
  std::uint64_t position_ = 0;
};

// Takes copies of slots in order and yields entries. On the request ring tickets count up by one with each entry; on
// the reply ring they name the answered request, so any ticket is accepted.
class EntryReader {
 public:
  enum class Tickets { counted, given };

  // `ring_slots` is a power of two.
  EntryReader(std::uint32_t ring_slots, Tickets tickets) noexcept
      : ring_shift_(static_cast<unsigned>(std::countr_zero(ring_slots))), tickets_(tickets) {}

  [[nodiscard]] std::uint64_t position() const noexcept { return position_; }

  // True if a slot that begins with this word has the lap of the next slot.
  [[nodiscard]] bool is_due(std::uint64_t first_word) const noexcept {
    return static_cast<std::uint32_t>(first_word) == lap_due();
  }
  // True if the slot is the next one: right lap, right checksum.
  [[nodiscard]] bool verifies(const wire::Slot& slot) const noexcept;
  // Takes a verified slot. True if it completed an entry, which is then in `entry`.
  [[nodiscard]] Result<bool> take(const wire::Slot& slot, Entry& entry);
  // Why a slot does not verify, as an error for the log.
  [[nodiscard]] Failure explain(const wire::Slot& slot) const;

 private:
  [[nodiscard]] std::uint32_t lap_due() const noexcept {
    return static_cast<std::uint32_t>((position_ >> ring_shift_) + 1);
  }

  unsigned ring_shift_;
  Tickets tickets_;
  std::uint64_t position_ = 0;
  std::uint64_t ticket_ = 0;  // of the previous entry
  bool inside_ = false;
  std::uint8_t kind_ = 0;
  std::uint32_t ticket_low_ = 0;
  std::vector<std::byte> payload_;
};

}  // namespace offpath::channel
