#include "mover/arrow_memory.h"

namespace offpath::mover {

arrow::Status ArrowMemory::take(std::int64_t bytes) {
  const auto more = static_cast<std::uint64_t>(bytes);
  const auto before = static_cast<std::uint64_t>(bytes_.fetch_add(bytes, std::memory_order_relaxed));
  const std::uint64_t own_max = cache_ != nullptr ? own_bytes_max_ : bytes_max_;
  const bool own_fits = bytes >= 0 && more <= own_max && before <= own_max - more;
  if (!own_fits || (cache_ != nullptr && !cache_->hold(more, user_, bytes_max_))) {
    bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    if (!own_fits)
      return arrow::Status::OutOfMemory(bytes, " more bytes are needed, ", before, " are held already, at most ",
                                        own_max, " are allowed",
                                        cache_ != nullptr ? " for one batch" : " (" + setting_ + ")");
    return arrow::Status::OutOfMemory(bytes, " more bytes are needed, ", cache_->held_bytes_of(user_),
                                      " are held already, at most ", bytes_max_, " are allowed (", setting_, ")");
  }
  total_.fetch_add(bytes, std::memory_order_relaxed);
  count_.fetch_add(1, std::memory_order_relaxed);
  return arrow::Status::OK();
}

void ArrowMemory::give_back(std::int64_t bytes) noexcept {
  bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  if (cache_ != nullptr) cache_->let_go(static_cast<std::uint64_t>(bytes), user_);
}

arrow::Status ArrowMemory::Allocate(std::int64_t size, std::int64_t alignment, std::uint8_t** out) {
  ARROW_RETURN_NOT_OK(take(size));
  const arrow::Status allocated = arrow::default_memory_pool()->Allocate(size, alignment, out);
  if (!allocated.ok()) give_back(size);
  return allocated;
}

arrow::Status ArrowMemory::Reallocate(std::int64_t old_size, std::int64_t new_size, std::int64_t alignment,
                                      std::uint8_t** pointer) {
  if (new_size > old_size) ARROW_RETURN_NOT_OK(take(new_size - old_size));
  const arrow::Status moved = arrow::default_memory_pool()->Reallocate(old_size, new_size, alignment, pointer);
  if (!moved.ok() && new_size > old_size) give_back(new_size - old_size);
  if (moved.ok() && new_size < old_size) give_back(old_size - new_size);
  return moved;
}

void ArrowMemory::Free(std::uint8_t* buffer, std::int64_t size, std::int64_t alignment) {
  arrow::default_memory_pool()->Free(buffer, size, alignment);
  give_back(size);
}

std::string ArrowMemory::backend_name() const { return arrow::default_memory_pool()->backend_name(); }

}  // namespace offpath::mover
