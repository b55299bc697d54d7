// Bounded memory for libarrow, which never uses its own default pool here. Code that passes bytes to libarrow, or has
// it compute, gives it one of these: the size of its allocations depends on users' data (a compressed body states its
// own decompressed size). It outlives all allocations from it.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

#include <arrow/memory_pool.h>

#include "service/buffer_cache.h"

namespace offpath::mover {

// Thread-safe.
class ArrowMemory final : public arrow::MemoryPool {
 public:
  // `setting` is named in the error when the bound is exceeded.
  ArrowMemory(std::uint64_t bytes_max, std::string_view setting) : bytes_max_(bytes_max), setting_(setting) {}
  // All such memory of the user, anywhere, is within the bound (service::BufferCache::hold), and this object's also
  // within `own_bytes_max`.
  ArrowMemory(service::BufferCache& cache, uid_t user, std::uint64_t bytes_max, std::string_view setting,
              std::uint64_t own_bytes_max = UINT64_MAX)
      : cache_(cache.shared_from_this()),
        user_(user),
        bytes_max_(bytes_max),
        own_bytes_max_(own_bytes_max),
        setting_(setting) {}

  arrow::Status Allocate(std::int64_t size, std::int64_t alignment, std::uint8_t** out) override;
  arrow::Status Reallocate(std::int64_t old_size, std::int64_t new_size, std::int64_t alignment,
                           std::uint8_t** pointer) override;
  void Free(std::uint8_t* buffer, std::int64_t size, std::int64_t alignment) override;
  [[nodiscard]] std::int64_t bytes_allocated() const override { return bytes_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t total_bytes_allocated() const override { return total_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t num_allocations() const override { return count_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::string backend_name() const override;

 private:
  [[nodiscard]] arrow::Status take(std::int64_t bytes);
  void give_back(std::int64_t bytes) noexcept;

  std::shared_ptr<service::BufferCache> cache_;
  uid_t user_ = 0;
  std::uint64_t bytes_max_, own_bytes_max_ = UINT64_MAX;
  std::string setting_;
  std::atomic<std::int64_t> bytes_{0}, total_{0}, count_{0};
};

}  // namespace offpath::mover
