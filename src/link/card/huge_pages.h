// Huge pages for memory that a card registers: pinned as a whole, it takes no more memory by them, and is registered in
// fewer pieces. Memory that is taken as it is used stays in small pages, as a huge one would be taken for one byte.
#pragma once

#include <sys/mman.h>

#include "base/bytes.h"

namespace offpath::link {

inline constexpr std::uint64_t huge_page_bytes = 2 << 20;

// To be called before anything pins the memory. Small pages are used where there is no room for a huge one, or the
// machine grants none (/sys/kernel/mm/transparent_hugepage: `enabled`, and `shmem_enabled` for shared memory). Pages of
// hugetlbfs are never used: when they run short, access raises SIGBUS.
inline void ask_for_huge_pages(MutableBytes memory) noexcept {
  if (memory.size() >= huge_page_bytes) static_cast<void>(madvise(memory.data(), memory.size(), MADV_HUGEPAGE));
}

}  // namespace offpath::link
