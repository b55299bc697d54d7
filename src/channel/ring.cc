#include "channel/ring.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>

namespace offpath::channel {

using wire::Slot;

namespace {

// The header as its first two words; the checksum is the upper half of the first.
std::uint64_t first_word(std::uint64_t position, std::uint32_t slots) noexcept {
  return static_cast<std::uint32_t>((position >> std::countr_zero(slots)) + 1);
}

std::uint64_t second_word(std::uint64_t ticket, std::uint8_t kind, std::uint8_t flags, std::uint64_t length) noexcept {
  return static_cast<std::uint32_t>(ticket) | static_cast<std::uint64_t>(kind) << 32 |
         static_cast<std::uint64_t>(flags) << 40 | length << 48;
}
static_assert(offsetof(wire::SlotHeader, lap) == 0 && offsetof(wire::SlotHeader, crc32c) == 4 &&
              offsetof(wire::SlotHeader, ticket_low) == 8 && offsetof(wire::SlotHeader, kind) == 12 &&
              offsetof(wire::SlotHeader, flags) == 13 && offsetof(wire::SlotHeader, length) == 14);

// Up to 8 bytes from `from` as a word, the rest zero.
std::uint64_t word_at(const std::byte* from, std::size_t length) noexcept {
  if (length >= 8) return load<std::uint64_t>(from);
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < length; ++i) word |= static_cast<std::uint64_t>(from[i]) << (8 * i);
  return word;
}

}  // namespace

void RingWriter::prefetch(std::uint64_t payload_bytes) const noexcept {
  const std::uint64_t count = wire::slots_for(payload_bytes);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::byte* slot = memory_ + ((position_ + i) & (slots_ - 1)) * wire::slot_bytes;
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(*slot));  // compilers emit it only if told that the processor has it
#else
    __builtin_prefetch(slot, 1);
#endif
  }
}

// Written and read in whole words: a load that covers several smaller stores would wait until they have left the
// processor's store buffer. There they queue behind earlier slots, whose lines the agent's core still holds.
inline void RingWriter::write_slot(std::uint8_t kind, std::uint64_t ticket, std::uint8_t flags,
                                   Bytes payload) noexcept {
  constexpr std::size_t words_count = wire::slot_bytes / 8;
  const std::size_t length = payload.size();
  std::uint64_t words[words_count] = {first_word(position_, slots_), second_word(ticket, kind, flags, length)};
  for (std::size_t word = 0; word < wire::slot_payload_bytes / 8; ++word)
    words[2 + word] = 8 * word < length ? word_at(payload.data() + 8 * word, length - 8 * word) : 0;
  words[0] |= static_cast<std::uint64_t>(crc32c(std::as_bytes(std::span(words)))) << 32;
  auto* slot = reinterpret_cast<std::uint64_t*>(memory_ + (position_ & (slots_ - 1)) * wire::slot_bytes);
  for (std::size_t word = 0; word < words_count; ++word)
    std::atomic_ref<std::uint64_t>(slot[word]).store(words[word], std::memory_order_relaxed);
  ++position_;
}

void RingWriter::write(std::uint8_t kind, std::uint64_t ticket, Bytes payload, std::uint64_t first,
                       std::uint64_t count) noexcept {
  const std::uint64_t end = wire::slots_for(payload.size());
  for (std::uint64_t i = first; i < first + count; ++i) {
    const std::uint64_t at = i * wire::slot_payload_bytes;
    const auto flags =
        static_cast<std::uint8_t>((i == 0 ? wire::slot_first : 0) | (i + 1 == end ? wire::slot_last : 0));
    write_slot(kind, ticket, flags,
               payload.subspan(at, std::min<std::uint64_t>(payload.size() - at, wire::slot_payload_bytes)));
  }
}

void RingWriter::write_outside(std::uint8_t kind, std::uint64_t ticket, const wire::OutsideEntry& entry) noexcept {
  write_slot(kind, ticket, wire::slot_first | wire::slot_last | wire::slot_outside,
             std::as_bytes(std::span(&entry, 1)));
}

bool EntryReader::verifies(const Slot& slot) const noexcept {
  return slot.header.lap == lap_due() && slot.header.crc32c == wire::slot_checksum(slot);
}

Failure EntryReader::explain(const Slot& slot) const {
  const std::uint32_t lap = lap_due();
  if (slot.header.lap != lap)
    return {Error::protocol, fmt::format("ring slot {}: lap {}, expected lap {}", position_, slot.header.lap, lap)};
  return {Error::protocol, fmt::format("ring slot {}: checksum {:#010x}, its bytes have {:#010x}", position_,
                                       slot.header.crc32c, wire::slot_checksum(slot))};
}

Result<bool> EntryReader::take(const Slot& slot, Entry& entry) {
  const wire::SlotHeader& header = slot.header;
  const std::uint64_t position = position_++;
  const bool first = (header.flags & wire::slot_first) != 0;
  if (header.length > wire::slot_payload_bytes)
    return fail(Error::protocol, "ring slot {}: a length of {} bytes, a slot holds {}", position, header.length,
                wire::slot_payload_bytes);
  if (first == inside_)
    return fail(Error::protocol, "ring slot {}: an entry {}", position,
                first ? "begins inside another" : "has no beginning");
  if (first) {
    inside_ = true;
    kind_ = header.kind;
    ticket_low_ = header.ticket_low;
    payload_.clear();
    if (tickets_ == Tickets::counted && header.ticket_low != static_cast<std::uint32_t>(ticket_ + 1))
      return fail(Error::protocol, "ring slot {}: ticket {}, expected {}", position, header.ticket_low,
                  static_cast<std::uint32_t>(ticket_ + 1));
  } else if (header.kind != kind_ || header.ticket_low != ticket_low_) {
    return fail(Error::protocol, "ring slot {}: kind {} of ticket {} inside an entry of kind {}, ticket {}", position,
                header.kind, header.ticket_low, kind_, ticket_low_);
  }
  const bool outside = (header.flags & wire::slot_outside) != 0;
  if (outside && (!first || (header.flags & wire::slot_last) == 0 || header.length != sizeof(wire::OutsideEntry)))
    return fail(Error::protocol,
                "ring slot {}: an entry outside of the ring takes one slot and {} bytes of it, this has {} "
                "and flags {}",
                position, sizeof(wire::OutsideEntry), header.length, header.flags);
  const bool reply = tickets_ == Tickets::given;
  if (payload_.size() + header.length > wire::entry_bytes_max + (reply ? wire::reply_head_bytes : 0))
    return fail(Error::protocol, "ring slot {}: an entry of more than {} bytes", position, wire::entry_bytes_max);
  payload_.insert(payload_.end(), slot.payload, slot.payload + header.length);
  if ((header.flags & wire::slot_last) == 0) return false;
  inside_ = false;
  if (!reply) {
    entry = {++ticket_, kind_, payload_, outside};
    return true;
  }
  if (payload_.size() < wire::reply_head_bytes)
    return fail(Error::protocol, "ring slot {}: a reply of {} bytes, but the upper half of its ticket takes {}",
                position, payload_.size(), wire::reply_head_bytes);
  ticket_ = static_cast<std::uint64_t>(load<std::uint32_t>(payload_.data())) << 32 | header.ticket_low;
  entry = {ticket_, kind_, Bytes(payload_).subspan(wire::reply_head_bytes), outside};
  return true;
}

}  // namespace offpath::channel
