#include "channel/host/announced_memory.h"

#include <algorithm>

#include <fmt/format.h>

#include "wire/stale_range.h"

namespace offpath::channel {

void find_uses(std::span<const BufferRef> buffers, std::vector<RangeName>& uses) {
  uses.clear();
  for (const BufferRef& buffer : buffers) {
    const auto same = [&](const RangeName& use) {
      return use.region == buffer.region && use.generation == buffer.generation;
    };
    if (buffer.length != 0 && std::ranges::none_of(uses, same)) uses.push_back({buffer.region, buffer.generation});
  }
}

// ---- names of memory

const AnnouncedMemory::Region* AnnouncedMemory::covering(std::uintptr_t address, std::uint64_t length,
                                                         std::uint32_t& hint) const noexcept {
  const auto covers = [&](const Region* region) {
    if (region == nullptr || region->base == nullptr) return false;
    const auto base = reinterpret_cast<std::uintptr_t>(region->base);
    return address >= base && address - base <= region->length && length <= region->length - (address - base);
  };
  if (const Region* region = find(hint); covers(region)) return region;
  // Ranges may overlap: the nearest one that begins at or before the address and is long enough.
  const auto base = [this](RegionId id) { return base_of(id); };
  auto at = std::ranges::upper_bound(by_address_, address, {}, base);
  while (at != by_address_.begin()) {
    const RegionId id = *--at;
    if (const Region* region = find(id); covers(region)) {
      hint = id;
      return region;
    }
  }
  return nullptr;
}

Result<BufferRef> AnnouncedMemory::name(const void* address, std::uint64_t length, std::uint32_t& hint) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const Region* region = covering(begin, length, hint);
  if (region == nullptr) [[unlikely]]
    return fail(Error::unannounced,
                "memory at {}, {} bytes, is not announced; call ofp_range_announce or send with OFP_SEND_ANNOUNCE",
                fmt::ptr(address), length);
  return BufferRef{.region = hint,
                   .generation = region->generation,
                   .offset = begin - reinterpret_cast<std::uintptr_t>(region->base),
                   .length = length};
}

Status AnnouncedMemory::check_announced(RangeName range) const {
  return is_announced(range) ? Status() : wire::not_announced(range.region, range.generation);
}

void AnnouncedMemory::forget_stream(std::uint32_t stream) {
  for (auto* table : {&ranges_, &segments_})
    for (Region& region : *table) region.leases.forget(stream);
}

// ---- ranges and segments

std::uint32_t AnnouncedMemory::unused(std::vector<Region>& table) {
  for (std::uint32_t index = 1; index < table.size(); ++index)
    if (!table[index].live && !table[index].leaving) return index;
  table.emplace_back();
  return static_cast<std::uint32_t>(table.size() - 1);
}

void AnnouncedMemory::index(RegionId id) {
  const auto base = [this](RegionId other) { return base_of(other); };
  by_address_.insert(std::ranges::upper_bound(by_address_, base_of(id), {}, base), id);
}

void AnnouncedMemory::unindex(RegionId id) { std::erase(by_address_, id); }

Result<RegionId> AnnouncedMemory::reserve() {
  const RegionId id = unused(ranges_);
  if (id >= wire::regions_max) return fail(Error::too_large, "{} ranges are announced, which is the limit", id - 1);
  ranges_[id].live = true;
  ranges_[id].base = nullptr;
  ranges_[id].length = 0;
  return id;
}

RangeName AnnouncedMemory::put(RegionId range, const void* base, std::uint64_t length) {
  unindex(range);
  ++epoch_;
  Region& region = ranges_[range];
  ++region.generation;
  region.base = static_cast<const std::byte*>(base);
  region.length = length;
  index(range);
  return {range, region.generation};
}

void AnnouncedMemory::remove(RegionId range) {
  unindex(range);
  ++epoch_;
  ranges_[range].live = false;
  ranges_[range].leases.clear();
}

void AnnouncedMemory::put_segment(RegionId segment, link::SegmentMemory memory) {
  Region& region = segments_[segment & ~wire::segment_flag];
  region.live = true;
  region.base = memory.data();
  region.length = memory.length();
  region.memory = std::move(memory);
  region.leases.clear();
  index(segment);
}

const link::SegmentMemory* AnnouncedMemory::segment(RegionId id) const noexcept {
  const Region* region = find(id);
  return region != nullptr ? &region->memory : nullptr;
}

link::SegmentMemory AnnouncedMemory::remove_segment(RegionId segment) {
  Region& region = *find(segment);
  unindex(segment);
  ++epoch_;
  region.live = false;
  region.leases.clear();
  return std::exchange(region.memory, {});
}

}  // namespace offpath::channel
