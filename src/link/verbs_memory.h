// The agent's own memory as its card may touch it: a bounce buffer for small pieces, regions for large ones.
//
// A card moves bytes only from and to memory that was registered, which pins its pages. What the agent reads to and
// writes from is of two kinds. Small pieces (rings, lines, headers) lie anywhere, on stacks and in vectors: they go
// through a bounce buffer that is registered once. Large ones lie in frames: these are registered for the operation and
// given free with it. Nothing is remembered by address from one operation to the next: memory may have been unmapped
// and mapped anew at the same place meanwhile, and the card would go on writing to the old pages.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "link/link.h"
#include "link/verbs_handles.h"

namespace offpath::link {

// Taken and given back in the same order: requests of one queue pair complete in the order they were posted.
class BounceRing {
 public:
  static constexpr std::uint64_t bytes = 1 << 20;

  [[nodiscard]] static Result<BounceRing> create(const VerbsCalls& calls, ibv_pd* domain);
  // `length` bytes side by side, or null where there is no room now.
  [[nodiscard]] std::byte* take(std::uint64_t length) noexcept;
  [[nodiscard]] std::uint64_t position() const noexcept { return head_; }
  void give_back_to(std::uint64_t position) noexcept { tail_ = position; }
  [[nodiscard]] std::uint32_t key() const noexcept { return region_->lkey; }

 private:
  BounceRing(SegmentMemory memory, MemoryRegion region) noexcept : memory_(std::move(memory)), region_(std::move(region)) {}
  SegmentMemory memory_;
  MemoryRegion region_;
  std::uint64_t head_ = 0, tail_ = 0;  // positions, not offsets: they only grow
};

// What one operation has registered.
class OperationRegions {
 public:
  static constexpr std::uint64_t bytes_min = 64 * 1024;  // below this copying is cheaper than pinning

  struct Piece {
    const std::byte* memory;
    std::uint64_t length;
  };
  // Registers whole pages of the stretches of memory that the pieces make up, those that are worth it. What cannot
  // be registered goes through the bounce buffer as well.
  void cover(const VerbsCalls& calls, ibv_pd* domain, std::span<Piece> pieces, bool written);
  void clear() noexcept { stretches_.clear(); }
  // The key for a piece that was covered; none: bounce it.
  [[nodiscard]] std::optional<std::uint32_t> key_of(const std::byte* memory) const noexcept;

 private:
  struct Stretch {
    std::uint64_t begin, end;
    MemoryRegion region;
  };
  std::vector<Stretch> stretches_;  // by address
};

}  // namespace offpath::link
