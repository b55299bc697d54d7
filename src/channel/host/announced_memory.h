// The program's memory that the agent may know: announced ranges and segments, found by number or by address, and
// leased by the requests that use them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "channel/host/leases.h"
#include "link/link.h"
#include "wire/region.h"

namespace offpath::channel {

using wire::BufferRef;
using wire::RegionId;

struct RangeName {
  RegionId region;
  std::uint32_t generation;
};

class AnnouncedMemory {
 public:
  // ---- names of memory

  // Names [address, address + length); Error::unannounced if no region covers it. `hint` remembers the region of the
  // caller's last answer, so that the same column costs one compare.
  [[nodiscard]] Result<BufferRef> name(const void* address, std::uint64_t length, std::uint32_t& hint) const;
  // The same if `hint` still holds, at the cost of a few compares; false otherwise. Fills everything in `name` except
  // stride and bits.
  [[nodiscard]] bool name_again(const void* address, std::uint64_t length, std::uint32_t hint,
                                BufferRef& name) const noexcept {
    const Region* region = find(hint);
    if (region == nullptr) return false;
    const std::uint64_t offset =
        reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(region->base);
    // An offset before the base wraps to a very large one; a missing region has length 0 or is not live.
    if (offset > region->length || length > region->length - offset) return false;
    name = {.region = hint, .generation = region->generation, .offset = offset, .length = length};
    return true;
  }
  // Grows whenever an issued name may have become invalid.
  [[nodiscard]] std::uint64_t epoch() const noexcept { return epoch_; }
  [[nodiscard]] bool is_announced(RangeName range) const noexcept {
    const Region* region = find(range.region);
    return region != nullptr && region->generation == range.generation;
  }
  [[nodiscard]] Status check_announced(RangeName range) const;

  // ---- leases

  // The region exists.
  void lease(RegionId region, std::uint32_t stream, std::uint64_t ticket) { find(region)->leases.add(stream, ticket); }
  // A request that uses the region and is not pulled; ticket 0: none.
  template <class Pulled>
  [[nodiscard]] Leases::Lease pending(RegionId id, const Pulled& pulled) const {
    const Region* region = find(id);
    return region != nullptr ? region->leases.pending(pulled) : Leases::Lease{};
  }
  void clear_leases(RegionId region) noexcept { find(region)->leases.clear(); }
  // The stream is closed: the next one of its number starts its tickets again.
  void forget_stream(std::uint32_t stream);

  // ---- ranges

  // Takes a number, which names no memory until put(). Numbers that are leaving() are not taken.
  [[nodiscard]] Result<RegionId> reserve();
  void give_back(RegionId range) noexcept { ranges_[range].live = false; }  // put() was not called
  [[nodiscard]] std::uint32_t next_generation(RegionId range) const noexcept { return ranges_[range].generation + 1; }
  // The number names this memory, with its next generation.
  [[nodiscard]] RangeName put(RegionId range, const void* base, std::uint64_t length);
  void remove(RegionId range);
  // The range was removed, and the agent has not confirmed that it reads it no more.
  void set_leaving(RegionId range, bool leaving) noexcept { ranges_[range].leaving = leaving; }
  [[nodiscard]] bool is_leaving(RangeName range) const noexcept {
    const Region& region = ranges_[range.region];
    return region.leaving && region.generation == range.generation;
  }

  // ---- segments

  [[nodiscard]] RegionId unused_segment() { return unused(segments_) | wire::segment_flag; }
  void put_segment(RegionId segment, link::SegmentMemory memory);
  // None: there is no such segment.
  [[nodiscard]] const link::SegmentMemory* segment(RegionId id) const noexcept;
  // The caller unmaps the memory.
  [[nodiscard]] link::SegmentMemory remove_segment(RegionId segment);

 private:
  struct Region {
    bool live = false;
    bool leaving = false;
    std::uint32_t generation = 0;
    const std::byte* base = nullptr;
    std::uint64_t length = 0;
    Leases leases;
    link::SegmentMemory memory;
  };

  [[nodiscard]] const Region* find(RegionId id) const noexcept {
    const auto& table = wire::is_segment(id) ? segments_ : ranges_;
    const std::uint32_t index = id & ~wire::segment_flag;
    return index < table.size() && table[index].live ? &table[index] : nullptr;
  }
  [[nodiscard]] Region* find(RegionId id) noexcept { return const_cast<Region*>(std::as_const(*this).find(id)); }
  [[nodiscard]] std::uintptr_t base_of(RegionId id) const noexcept {
    return reinterpret_cast<std::uintptr_t>(find(id)->base);
  }
  [[nodiscard]] const Region* covering(std::uintptr_t address, std::uint64_t length,
                                       std::uint32_t& hint) const noexcept;
  [[nodiscard]] static std::uint32_t unused(std::vector<Region>& table);
  void index(RegionId id);
  void unindex(RegionId id);

  std::vector<Region> ranges_ = std::vector<Region>(1);    // number 0 is never used: a hint of 0 means none
  std::vector<Region> segments_ = std::vector<Region>(1);  // number 0 is the channel segment
  std::vector<RegionId> by_address_;                       // live ranges and segments, ordered by base
  std::uint64_t epoch_ = 1;
};

// The regions of buffers, each once. Buffers without bytes use none.
void find_uses(std::span<const BufferRef> buffers, std::vector<RangeName>& uses);

}  // namespace offpath::channel
