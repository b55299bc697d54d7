#include "channel/host/fork_mark.h"

#include <sys/mman.h>

#include "base/bytes.h"

namespace offpath::channel {

ForkMark::ForkMark() {
  void* page = mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  madvise(page, page_bytes, MADV_WIPEONFORK);
  mark_ = static_cast<volatile std::uint64_t*>(page);
  *mark_ = 1;
}

ForkMark::~ForkMark() {
  if (mark_ != nullptr) munmap(const_cast<std::uint64_t*>(mark_), page_bytes);
}

}  // namespace offpath::channel
