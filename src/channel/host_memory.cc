// HostEnd's memory: ranges and segments, found by address, leased by requests.

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "channel/host_end.h"
#include "channel/interruption.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/stream_messages.h"
#include "wire/region.h"
#include "wire/stale_range.h"

namespace offpath::channel {

namespace {

constexpr std::uint64_t announcement_bytes = wire::slot_payload_bytes;  // an announcement takes one slot

std::uintptr_t address_of(const void* pointer) noexcept { return reinterpret_cast<std::uintptr_t>(pointer); }

}  // namespace

HostEnd::Region* HostEnd::find(RegionId id) noexcept {
  auto& table = regions(id);
  const std::uint32_t index = id & ~wire::segment_flag;
  return index < table.size() && table[index].live ? &table[index] : nullptr;
}

Status HostEnd::check_announced(RangeName range) {
  const Region* region = find(range.region);
  if (region == nullptr || region->generation != range.generation) [[unlikely]]
    return wire::not_announced(range.region, range.generation);
  return {};
}

void find_uses(std::span<const BufferRef> buffers, std::vector<HostEnd::RangeName>& uses) {
  uses.clear();
  for (const BufferRef& buffer : buffers) {
    const auto same = [&](const HostEnd::RangeName& use) {
      return use.region == buffer.region && use.generation == buffer.generation;
    };
    if (buffer.length != 0 && std::ranges::none_of(uses, same)) uses.push_back({buffer.region, buffer.generation});
  }
}

RegionId HostEnd::unused(std::vector<Region>& regions, RegionId flag) {
  for (std::uint32_t index = 1; index < regions.size(); ++index)
    if (!regions[index].live && !regions[index].leaving) return index | flag;
  regions.emplace_back();
  return static_cast<RegionId>(regions.size() - 1) | flag;
}

void HostEnd::index(RegionId id) {
  const auto base = [this](RegionId other) { return address_of(find(other)->base); };
  by_address_.insert(std::ranges::upper_bound(by_address_, base(id), {}, base), id);
}

void HostEnd::unindex(RegionId id) { std::erase(by_address_, id); }

const HostEnd::Region* HostEnd::covering(std::uintptr_t address, std::uint64_t length,
                                         std::uint32_t& hint) const noexcept {
  auto* self = const_cast<HostEnd*>(this);
  const auto covers = [&](const Region* region) {
    return region != nullptr && region->base != nullptr && address >= address_of(region->base) &&
           address - address_of(region->base) <= region->length &&
           length <= region->length - (address - address_of(region->base));
  };
  if (const Region* region = self->find(hint); covers(region)) return region;
  const auto base = [self](RegionId id) { return address_of(self->find(id)->base); };
  // Ranges may overlap: the nearest one that begins at or before the address and is long enough.
  auto at = std::ranges::upper_bound(by_address_, address, {}, base);
  while (at != by_address_.begin()) {
    const RegionId id = *--at;
    if (const Region* region = self->find(id); covers(region)) {
      hint = id;
      return region;
    }
  }
  return nullptr;
}

// Makes room for the announcement first, so that a failed wait leaves nothing announced to the link.
Result<HostEnd::RangeName> HostEnd::announce_locked(Lock& lock, RegionId id, const void* base, std::uint64_t length,
                                                    TimeNs deadline) {
  if (base == nullptr || length == 0)
    return fail(Error::invalid, "a range of {} bytes at {}: both have to be non-zero", length, fmt::ptr(base));
  if (length > wire::region_bytes_max)
    return fail(Error::too_large, "a range of {} bytes; at most {} are allowed", length, wire::region_bytes_max);
  const bool told = !link_->traits().staged;
  if (told) OFP_TRY(make_room(lock, announcement_bytes, deadline));
  const std::uint32_t generation = ranges_[id].generation + 1;
  // If the agent cannot read ranges, it need not know them: data is copied through a segment.
  if (told) {
    auto key = link_->announce_range(id, generation, base, length);
    if (!key) return tl::unexpected(std::move(key).error());
    std::vector<std::byte> payload;
    wire::encode(wire::AnnounceRange{id, generation, address_of(base), length, *key}, payload);
    OFP_ASSIGN([[maybe_unused]] const std::uint64_t ticket,
               post_locked(lock, wire::EntryKind::announce_range, payload, 0));
  }
  unindex(id);
  ++memory_epoch_;
  Region& region = ranges_[id];
  region.generation = generation;
  region.base = static_cast<const std::byte*>(base);
  region.length = length;
  index(id);
  return RangeName{id, generation};
}

Result<HostEnd::RangeName> HostEnd::announce(const void* base, std::uint64_t length) {
  Lock lock(mutex_);
  return announce_new(lock, base, length, never);
}

Result<HostEnd::RangeName> HostEnd::announce_new(Lock& lock, const void* base, std::uint64_t length, TimeNs deadline) {
  OFP_TRY(usable());
  const RegionId id = unused(ranges_, 0);
  if (id >= wire::regions_max) return fail(Error::too_large, "{} ranges are announced, which is the limit", id - 1);
  // Reserved now without covering any memory: the lock may be released while the announcement waits for room.
  ranges_[id].live = true;
  ranges_[id].base = nullptr;
  ranges_[id].length = 0;
  auto name = announce_locked(lock, id, base, length, deadline);
  if (!name) ranges_[id].live = false;
  return name;
}

Result<HostEnd::RangeName> HostEnd::reannounce(RangeName range, const void* base, std::uint64_t length) {
  Lock lock(mutex_);
  OFP_TRY(usable());
  // Before the range ends, so that a failed wait leaves it unchanged.
  if (!link_->traits().staged) OFP_TRY(make_room(lock, announcement_bytes, never));
  OFP_TRY(check_announced(range));
  if (!link_->traits().staged) link_->retire_range(range.region, range.generation);
  auto name = announce_locked(lock, range.region, base, length, never);
  if (name) ranges_[range.region].leases.clear();  // those concerned the old memory, and end as stale
  return name;
}

Status HostEnd::wait_idle(Lock& lock, RegionId id, TimeNs deadline) {
  while (true) {
    Region* region = find(id);
    if (region == nullptr) return {};
    const Leases::Lease waiting = region->leases.pending([this](std::uint32_t stream) { return pulled(stream); });
    if (waiting.ticket == 0) return {};
    auto status = wait_locked(lock, waiting.stream, waiting.ticket, Progress::pulled, deadline);
    // A failed send ends its lease too; only the deadline and the agent's death end the wait.
    if (!status && pulled(waiting.stream) < waiting.ticket) return status;
  }
}

Status HostEnd::retire(RangeName range, TimeNs deadline) {
  Lock lock(mutex_);
  OFP_TRY(usable());
  OFP_TRY(check_announced(range));
  Status idle = wait_idle(lock, range.region, deadline);
  if (!idle && idle.error().code != Error::timeout && !is_interrupted(idle)) return idle;
  // After the deadline it is withdrawn anyway: requests that are still posted fail as stale and read nothing wrong.
  take_back(range.region);
  if (link_->traits().staged) return idle;
  link_->retire_range(range.region, range.generation);
  OFP_TRY(tell_retired(lock, range));
  return idle;
}

Status HostEnd::withdraw(RangeName range) {
  Lock lock(mutex_);
  OFP_TRY(usable());
  OFP_TRY(check_announced(range));
  take_back(range.region);
  if (link_->traits().staged) return {};
  ranges_[range.region].leaving = true;
  link_->withdraw_range(range.region, range.generation);
  return tell_retired(lock, range);
}

bool HostEnd::is_withdrawn(RangeName range) {
  Lock lock(mutex_);
  Region& region = ranges_[range.region];
  if (region.leaving && region.generation == range.generation && link_->is_withdrawn(range.region, range.generation))
    region.leaving = false;
  return !region.leaving || region.generation != range.generation;
}

void HostEnd::take_back(RegionId id) {
  unindex(id);
  ++memory_epoch_;
  ranges_[id].live = false;
  ranges_[id].leases.clear();
}

Status HostEnd::tell_retired(Lock& lock, RangeName range) {
  std::vector<std::byte> payload;
  wire::encode(wire::RetireRange{range.region, range.generation}, payload);
  auto posted = post_locked(lock, wire::EntryKind::retire_range, payload, never);
  return posted ? Status() : tl::unexpected(std::move(posted).error());
}

bool HostEnd::idle(RangeName range) {
  Lock lock(mutex_);
  const Region* region = find(range.region);
  if (region == nullptr || region->generation != range.generation) return true;
  return region->leases.pending([this](std::uint32_t stream) { return pulled(stream); }).ticket == 0;
}

Result<RegionId> HostEnd::allocate(std::uint64_t length, TimeNs deadline) {
  Lock lock(mutex_);
  OFP_TRY(usable());
  if (length == 0 || length > wire::region_bytes_max)
    return fail(Error::invalid, "a segment of {} bytes; from 1 to {} are allowed", length, wire::region_bytes_max);
  OFP_ASSIGN(link::SegmentMemory memory, link_->allocate(align_up(length, page_bytes)));
  return announce_segment(std::move(memory), deadline);
}

Result<RegionId> HostEnd::adopt(link::SegmentMemory memory, TimeNs deadline) {
  Lock lock(mutex_);
  OFP_TRY(usable());
  return announce_segment(std::move(memory), deadline);
}

Result<RegionId> HostEnd::announce_segment(link::SegmentMemory memory, TimeNs deadline) {
  const RegionId id = unused(segments_, wire::segment_flag);
  OFP_TRY(link_->announce_segment(id, memory, deadline));
  Region& region = segments_[id & ~wire::segment_flag];
  region.live = true;
  region.base = memory.data();
  region.length = memory.length();
  region.memory = std::move(memory);
  region.leases.clear();
  index(id);
  return id;
}

MutableBytes HostEnd::segment(RegionId id) {
  Lock lock(mutex_);
  Region* region = find(id);
  return region != nullptr ? region->memory.bytes() : MutableBytes{};
}

int HostEnd::segment_fd(RegionId id) {
  Lock lock(mutex_);
  Region* region = find(id);
  return region != nullptr ? region->memory.fd() : -1;
}

void HostEnd::free(RegionId id) {
  Lock lock(mutex_);
  Region* region = find(id);
  if (region == nullptr) return;
  if (usable()) (void)wait_idle(lock, id, deadline_after(now(), second_ns));
  region = find(id);
  if (region == nullptr) return;
  unindex(id);
  ++memory_epoch_;
  region->live = false;
  region->leases.clear();
  if (usable()) link_->retire_segment(id);
  region->memory = {};
}

Result<BufferRef> HostEnd::name_memory(Posting&, const void* address, std::uint64_t length, std::uint32_t& hint) {
  const Region* region = covering(address_of(address), length, hint);
  if (region == nullptr) [[unlikely]]
    return fail(Error::unannounced,
                "memory at {}, {} bytes, is not announced; call ofp_range_announce or send with OFP_SEND_ANNOUNCE",
                fmt::ptr(address), length);
  return BufferRef{.region = hint,
                   .generation = region->generation,
                   .offset = address_of(address) - address_of(region->base),
                   .length = length};
}

Result<BufferRef> HostEnd::name_or_announce(Posting& posting, const void* address, std::uint64_t length,
                                            std::uint32_t& hint, TimeNs deadline) {
  if (auto named = name_memory(posting, address, length, hint)) return named;
  OFP_ASSIGN(const RangeName range, announce_new(posting.lock, address, length, deadline));
  hint = range.region;
  return BufferRef{.region = range.region, .generation = range.generation, .offset = 0, .length = length};
}

}  // namespace offpath::channel
