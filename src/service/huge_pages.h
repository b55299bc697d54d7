// Frames in huge pages, without a setting of the administrator. By itself the kernel gives them to shared memory only
// where /sys/kernel/mm/transparent_hugepage/shmem_enabled allows it; on most machines it is `never`. On request
// (MADV_COLLAPSE, Linux 6.1) it uses them whatever that setting says, except `deny`.
//
// A huge page is filled in a fraction of the time of its 512 small ones, but a request may take milliseconds on a busy
// machine: make it in a job. Only blocks that lie in the memory as a whole are filled, so no more is taken.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"

namespace offpath::service {

inline constexpr std::uint64_t huge_page_bytes = 2ull << 20;

// Maps a file of `bytes`, writable. The place is one at which the kernel can use huge pages, if the file has room for
// one.
[[nodiscard]] Result<std::byte*> map_for_huge_pages(int fd, std::uint64_t bytes);

// Thread-safe.
class HugePages {
 public:
  // Fills new memory, mapped as above, with huge pages of zeros. Memory that the kernel refuses stays unfilled, and
  // after a refusal the next `pause` calls do nothing: free memory in large pieces does not come back soon.
  void fill(MutableBytes memory) noexcept;

  [[nodiscard]] std::uint64_t filled_bytes() const noexcept { return filled_bytes_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t refusals() const noexcept { return refusals_.load(std::memory_order_relaxed); }

  static constexpr std::uint64_t pause = 64;

 private:
  std::atomic<std::uint64_t> filled_bytes_{0}, refusals_{0}, calls_{0}, next_call_{0};
};

}  // namespace offpath::service
