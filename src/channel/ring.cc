#include "channel/ring.h"

#include <algorithm>

namespace offpath::channel {

using wire::Slot;

void RingWriter::write(std::uint8_t kind, std::uint64_t ticket, Bytes payload) noexcept {
  const std::uint64_t count = wire::slots_for(payload.size());
  for (std::uint64_t i = 0; i < count; ++i, ++position_) {
    // Composed here and copied as a whole: the checksum then runs over registers' worth of known bytes, and
    // the other side never sees a slot half filled with a valid header.
    Slot slot{};
    const std::size_t at = i * wire::slot_payload_bytes;
    const std::size_t length = std::min<std::size_t>(payload.size() - at, wire::slot_payload_bytes);
    slot.header.lap = static_cast<std::uint32_t>(position_ / slots_ + 1);
    slot.header.ticket_low = static_cast<std::uint32_t>(ticket);
    slot.header.kind = kind;
    slot.header.flags = static_cast<std::uint8_t>((i == 0 ? wire::slot_first : 0) | (i + 1 == count ? wire::slot_last : 0));
    slot.header.length = static_cast<std::uint8_t>(length);
    if (length != 0) std::memcpy(slot.payload, payload.data() + at, length);
    slot.header.crc32c = crc32c(std::as_bytes(std::span(&slot, 1)));
    std::memcpy(memory_ + (position_ & (slots_ - 1)) * wire::slot_bytes, &slot, sizeof slot);
  }
}

bool EntryReader::verifies(const Slot& slot) const noexcept {
  return slot.header.lap == static_cast<std::uint32_t>(position_ / ring_slots_ + 1) &&
         slot.header.crc32c == wire::slot_checksum(slot);
}

Failure EntryReader::explain(const Slot& slot) const {
  const auto lap = static_cast<std::uint32_t>(position_ / ring_slots_ + 1);
  if (slot.header.lap != lap)
    return {Error::protocol, fmt::format("ring slot {}: lap {} where lap {} was due", position_, slot.header.lap, lap)};
  return {Error::protocol, fmt::format("ring slot {}: checksum {:#010x}, its bytes give {:#010x}", position_,
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
    return fail(Error::protocol, "ring slot {}: an entry {}", position, first ? "begins inside another" : "has no beginning");
  if (first) {
    inside_ = true;
    kind_ = header.kind;
    ticket_low_ = header.ticket_low;
    payload_.clear();
    if (tickets_ == Tickets::counted && header.ticket_low != static_cast<std::uint32_t>(ticket_ + 1))
      return fail(Error::protocol, "ring slot {}: ticket {} where {} was due", position, header.ticket_low,
                  static_cast<std::uint32_t>(ticket_ + 1));
  } else if (header.kind != kind_ || header.ticket_low != ticket_low_) {
    return fail(Error::protocol, "ring slot {}: kind {} of ticket {} inside an entry of kind {}, ticket {}", position,
                header.kind, header.ticket_low, kind_, ticket_low_);
  }
  if (payload_.size() + header.length > wire::entry_bytes_max)
    return fail(Error::protocol, "ring slot {}: an entry of more than {} bytes", position, wire::entry_bytes_max);
  payload_.insert(payload_.end(), slot.payload, slot.payload + header.length);
  if ((header.flags & wire::slot_last) == 0) return false;
  inside_ = false;
  ticket_ = tickets_ == Tickets::counted ? ticket_ + 1 : header.ticket_low;
  entry = {ticket_, kind_, payload_};
  return true;
}

}  // namespace offpath::channel
