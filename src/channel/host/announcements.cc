#include "channel/host/announcements.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "channel/interruption.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/stream_messages.h"

namespace offpath::channel {

namespace {

constexpr std::uint64_t announcement_bytes = wire::slot_payload_bytes;  // an announcement takes one slot

}  // namespace

// Makes room for the announcement first, so that a failed wait leaves nothing announced to the link.
Result<RangeName> Announcements::announce_as(Lock& lock, RegionId range, const void* base, std::uint64_t length,
                                             TimeNs deadline) {
  if (base == nullptr || length == 0)
    return fail(Error::invalid, "a range of {} bytes at {}: both have to be non-zero", length, fmt::ptr(base));
  if (length > wire::region_bytes_max)
    return fail(Error::too_large, "a range of {} bytes; at most {} are allowed", length, wire::region_bytes_max);
  if (tells()) {
    OFP_TRY(waits_.for_room(lock, announcement_bytes, deadline));
    const std::uint32_t generation = memory_.next_generation(range);
    OFP_ASSIGN(const std::uint32_t key, link_.announce_range(range, generation, base, length));
    std::vector<std::byte> payload;
    wire::encode(wire::AnnounceRange{range, generation, reinterpret_cast<std::uintptr_t>(base), length, key}, payload);
    OFP_ASSIGN([[maybe_unused]] const std::uint64_t ticket,
               posts_.post(lock, wire::EntryKind::announce_range, payload, 0));
  }
  return memory_.put(range, base, length);
}

Result<RangeName> Announcements::announce(Lock& lock, const void* base, std::uint64_t length, TimeNs deadline) {
  // The lock may be released while the announcement waits for room: the number is taken before.
  OFP_ASSIGN(const RegionId range, memory_.reserve());
  auto name = announce_as(lock, range, base, length, deadline);
  if (!name) memory_.give_back(range);
  return name;
}

Result<RangeName> Announcements::reannounce(Lock& lock, RangeName range, const void* base, std::uint64_t length) {
  // Before the range ends, so that a failed wait leaves it unchanged.
  if (tells()) OFP_TRY(waits_.for_room(lock, announcement_bytes, never));
  OFP_TRY(memory_.check_announced(range));
  if (tells()) link_.retire_range(range.region, range.generation);
  auto name = announce_as(lock, range.region, base, length, never);
  if (name) memory_.clear_leases(range.region);  // those concerned the old memory, and end as stale
  return name;
}

Status Announcements::wait_idle(Lock& lock, RegionId region, TimeNs deadline) {
  while (true) {
    const Leases::Lease waiting = pending(region);
    if (waiting.ticket == 0) return {};
    Status waited = waits_.for_progress(lock, waiting.stream, waiting.ticket, Progress::pulled, deadline);
    // A failed send ends its lease too; only the deadline and the agent's death end the wait.
    if (!waited && words_.pulled(waiting.stream) < waiting.ticket) return waited;
  }
}

Status Announcements::retire(Lock& lock, RangeName range, TimeNs deadline) {
  OFP_TRY(memory_.check_announced(range));
  Status idle = wait_idle(lock, range.region, deadline);
  if (!idle && idle.error().code != Error::timeout && !is_interrupted(idle)) return idle;
  // After the deadline it is withdrawn anyway: requests that are still posted fail as stale and read nothing wrong.
  memory_.remove(range.region);
  if (!tells()) return idle;
  link_.retire_range(range.region, range.generation);
  OFP_TRY(post_retired(lock, range));
  return idle;
}

Status Announcements::withdraw(Lock& lock, RangeName range) {
  OFP_TRY(memory_.check_announced(range));
  memory_.remove(range.region);
  if (!tells()) return {};
  memory_.set_leaving(range.region, true);
  link_.withdraw_range(range.region, range.generation);
  return post_retired(lock, range);
}

bool Announcements::is_withdrawn(RangeName range) {
  if (memory_.is_leaving(range) && link_.is_withdrawn(range.region, range.generation))
    memory_.set_leaving(range.region, false);
  return !memory_.is_leaving(range);
}

bool Announcements::idle(RangeName range) const {
  return !memory_.is_announced(range) || pending(range.region).ticket == 0;
}

Status Announcements::post_retired(Lock& lock, RangeName range) {
  std::vector<std::byte> payload;
  wire::encode(wire::RetireRange{range.region, range.generation}, payload);
  OFP_ASSIGN([[maybe_unused]] const std::uint64_t ticket,
             posts_.post(lock, wire::EntryKind::retire_range, payload, never));
  return {};
}

Result<RegionId> Announcements::announce_segment(link::SegmentMemory memory, TimeNs deadline) {
  const RegionId id = memory_.unused_segment();
  OFP_TRY(link_.announce_segment(id, memory, deadline));
  memory_.put_segment(id, std::move(memory));
  return id;
}

void Announcements::free(Lock& lock, RegionId segment) {
  if (memory_.segment(segment) == nullptr) return;
  if (life_.usable()) (void)wait_idle(lock, segment, deadline_after(clock_.now(), second_ns));
  if (memory_.segment(segment) == nullptr) return;  // another thread has freed it meanwhile
  // Unmapped after the agent has let go of it.
  [[maybe_unused]] const link::SegmentMemory unmapped = memory_.remove_segment(segment);
  if (life_.usable()) link_.retire_segment(segment);
}

}  // namespace offpath::channel
