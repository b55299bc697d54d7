#include "base/memory_reserve.h"

#include <cstdlib>
#include <mutex>

#include "base/status.h"

namespace offpath {

namespace {

constinit thread_local bool is_protected = false;
constinit MemoryReserve* reserve = nullptr;
constinit std::mutex mutex;  // guards the pieces: several threads may be protected

}  // namespace

MemoryReserve::MemoryReserve() noexcept : before_(std::set_new_handler(give_back)) {
  OFP_ASSERT(reserve == nullptr);
  reserve = this;
  (void)is_whole();
}

MemoryReserve::~MemoryReserve() {
  std::set_new_handler(before_);
  reserve = nullptr;
  for (void* const piece : pieces_) std::free(piece);
}

void MemoryReserve::protect_this_thread() noexcept { is_protected = true; }

bool MemoryReserve::is_whole() noexcept {
  if (reserve == nullptr || reserve->whole_.load(std::memory_order_relaxed)) return true;
  const std::lock_guard lock(mutex);
  return reserve->take();
}

// The pages are not touched. An allocation fails for lack of address space or of memory that may be committed, and both
// are charged for untouched memory too. Where the kernel promises more than there is, no allocation fails.
bool MemoryReserve::take() noexcept {
  for (void*& piece : pieces_) {
    if (piece != nullptr) continue;
    piece = std::malloc(piece_bytes);
    if (piece == nullptr) return false;
  }
  whole_.store(true, std::memory_order_relaxed);
  return true;
}

void MemoryReserve::give_back() {
  if (!is_protected) throw std::bad_alloc();
  const std::lock_guard lock(mutex);
  bool any = false;
  for (void*& piece : reserve->pieces_) {
    any |= piece != nullptr;
    std::free(piece);
    piece = nullptr;
  }
  reserve->whole_.store(false, std::memory_order_relaxed);
  if (!any) throw std::bad_alloc();
}

}  // namespace offpath
