#include "link/verbs_memory.h"

#include <algorithm>

#include "link/tcp_host_link.h"

namespace offpath::link {

namespace {

std::uint64_t address_of(const std::byte* memory) noexcept { return reinterpret_cast<std::uint64_t>(memory); }

}  // namespace

Result<BounceRing> BounceRing::create(const VerbsCalls& calls, ibv_pd* domain) {
  OFP_ASSIGN(SegmentMemory memory, allocate_shared(bytes));
  OFP_ASSIGN(MemoryRegion region, register_memory(calls, domain, memory.data(), memory.length(), IBV_ACCESS_LOCAL_WRITE));
  return BounceRing(std::move(memory), std::move(region));
}

std::byte* BounceRing::take(std::uint64_t length) noexcept {
  std::uint64_t begin = align_up(head_, 8);
  if (begin % bytes + length > bytes) begin = align_up(begin, bytes);  // no piece goes around the end
  if (begin + length - tail_ > bytes) return nullptr;
  head_ = begin + length;
  return memory_.data() + begin % bytes;
}

void OperationRegions::cover(const VerbsCalls& calls, ibv_pd* domain, std::span<Piece> pieces, bool written) {
  std::ranges::sort(pieces, {}, &Piece::memory);
  for (std::size_t first = 0; first < pieces.size();) {
    const std::uint64_t begin = address_of(pieces[first].memory) / page_bytes * page_bytes;
    std::uint64_t end = begin, bytes = 0;
    std::size_t next = first;
    for (; next < pieces.size(); ++next) {
      const std::uint64_t at = address_of(pieces[next].memory);
      if (next > first && at > end) break;
      end = std::max(end, align_up(at + pieces[next].length, page_bytes));
      bytes += pieces[next].length;
    }
    first = next;
    if (bytes < bytes_min) continue;
    auto region = register_memory(calls, domain, reinterpret_cast<const void*>(begin), end - begin, written ? IBV_ACCESS_LOCAL_WRITE : 0);
    if (region) stretches_.push_back({begin, end, std::move(*region)});
  }
}

std::optional<std::uint32_t> OperationRegions::key_of(const std::byte* memory) const noexcept {
  const std::uint64_t at = address_of(memory);
  const auto after = std::ranges::upper_bound(stretches_, at, {}, &Stretch::begin);
  if (after == stretches_.begin() || at >= std::prev(after)->end) return std::nullopt;
  return std::prev(after)->region->lkey;
}

}  // namespace offpath::link
