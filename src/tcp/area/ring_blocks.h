// The blocks of a program's area (wire::tcp_ring_block_bytes) in which its flows' rings lie. All cores of the agent
// share them, so a block is lent to one flow at a time, whichever core has the flow, and is charged by the first core
// that needs it and by no other. Each block changes atomically. A block that one core gives back may be lent by another
// as soon as the program has been told and has named it there.
//
// Places are checked before they are used here (wire::check_tcp_ring).
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "wire/areas/tcp_area.h"

namespace offpath::tcp {

class RingBlocks {
 public:
  static constexpr std::uint64_t block_bytes = wire::tcp_ring_block_bytes;

  explicit RingBlocks(std::uint64_t area_bytes) : blocks_((area_bytes + block_bytes - 1) / block_bytes) {}
  RingBlocks(const RingBlocks&) = delete;
  RingBlocks& operator=(const RingBlocks&) = delete;

  // A flow's first ring lies there, now or later. False: a larger one does.
  [[nodiscard]] bool keep_for_first(std::uint64_t at, std::uint32_t bytes) noexcept {
    bool free = true;
    for (std::uint8_t& block : blocks_of(at, bytes)) free &= (std::atomic_ref(block).fetch_or(first) & lent) == 0;
    return free;
  }
  // For a larger ring. False, and nothing is lent: another ring is there.
  [[nodiscard]] bool lend(std::uint64_t at, std::uint32_t bytes) noexcept {
    const std::span<std::uint8_t> blocks = blocks_of(at, bytes);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const std::atomic_ref block(blocks[i]);
      std::uint8_t known = block.load();
      while ((known & (first | lent)) == 0 &&
             !block.compare_exchange_weak(known, static_cast<std::uint8_t>(known | lent))) {
      }
      if ((known & (first | lent)) == 0) continue;
      take_back(blocks.first(i));
      return false;
    }
    return true;
  }
  void give_back(std::uint64_t at, std::uint32_t bytes) noexcept { take_back(blocks_of(at, bytes)); }

  // Bytes of those blocks that are not charged. Another core may charge them at the same time.
  [[nodiscard]] std::uint64_t cost(std::uint64_t at, std::uint32_t bytes) noexcept {
    std::uint64_t count = 0;
    for (std::uint8_t& block : blocks_of(at, bytes)) count += (std::atomic_ref(block).load() & charged) == 0;
    return count * block_bytes;
  }
  // Charges these, and returns how much that was.
  [[nodiscard]] std::uint64_t charge(std::uint64_t at, std::uint32_t bytes) noexcept {
    std::uint64_t count = 0;
    for (std::uint8_t& block : blocks_of(at, bytes)) count += (std::atomic_ref(block).fetch_or(charged) & charged) == 0;
    return count * block_bytes;
  }

 private:
  // charged: until the program closes, as only the program removes pages.
  static constexpr std::uint8_t first = 1, lent = 2, charged = 4;

  [[nodiscard]] std::span<std::uint8_t> blocks_of(std::uint64_t at, std::uint32_t bytes) noexcept {
    const std::uint64_t begin = at / block_bytes, end = (at + bytes + block_bytes - 1) / block_bytes;
    return std::span(blocks_).subspan(begin, end - begin);
  }
  static void take_back(std::span<std::uint8_t> blocks) noexcept {
    for (std::uint8_t& block : blocks) std::atomic_ref(block).fetch_and(static_cast<std::uint8_t>(~lent));
  }

  std::vector<std::uint8_t> blocks_;
};

}  // namespace offpath::tcp
