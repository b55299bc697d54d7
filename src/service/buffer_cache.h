// Memory that data is pulled into: sealed memfds, page aligned, reused by size class.
//
// A buffer is sealed against shrinking, growing and every *further* writable mapping when it is made; the agent keeps
// the one writable mapping that it made before. So its descriptor may be handed to a reader as it is: the reader can
// neither write, nor map writable, nor truncate. A buffer returns to the cache when its last owner releases it, but
// only for the same user: a buffer that one user's readers could see is never filled for another user.
//
// Size classes: eight steps in each doubling, from one page up, so at most one eighth is unused.
//
// A buffer of at most a page is part of a slab (slabs.h) and has no descriptor, unless it was taken as a file.
//
// A job returns released memory to the kernel, which takes a tenth of a second for a gigabyte. Until then its bytes and
// its mapping count as used by its user.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/status.h"
#include "link/lasting_memory.h"
#include "service/huge_pages.h"
#include "service/slabs.h"

namespace offpath::service {

class BufferCache;

class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();  // returns it to the cache

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::uint64_t length() const noexcept { return length_; }      // as requested
  [[nodiscard]] std::uint64_t capacity() const noexcept { return capacity_; }  // of the memfd, or the page
  [[nodiscard]] MutableBytes bytes() const noexcept { return {data_, length_}; }
  // The memfd, for another process; -1: the buffer is part of a slab, which other processes never map. The agent cannot
  // verify that a process has unmapped the memfd, so the memory counts as shared until it is returned to the kernel,
  // even if it is reused. Called by the loop's thread.
  [[nodiscard]] int share() const noexcept {
    shared_ = static_cast<bool>(fd_);
    return fd_.get();
  }
  [[nodiscard]] bool is_shared() const noexcept { return shared_; }
  // A sealed copy of the bytes as they are now, for a process that needs to map a buffer without descriptor.
  [[nodiscard]] Result<Fd> copy() const;
  explicit operator bool() const noexcept { return data_ != nullptr; }

 private:
  friend class BufferCache;
  std::byte* data_ = nullptr;
  std::uint64_t length_ = 0, capacity_ = 0;
  uid_t user_ = 0;
  mutable bool shared_ = false;
  Fd fd_;
  std::shared_ptr<BufferCache> cache_;
};

struct BufferCacheOptions {
  std::uint64_t cached_bytes_max = 1ull << 30;     // of unused buffers
  bool huge_pages = true;                          // ask for them for buffers of 2 MiB and more (huge_pages.h)
  std::shared_ptr<link::LastingMemory> lasting{};  // lists every buffer while it is mapped; may be null
  // The kernel limits mappings and descriptors of a process. A buffer takes one of each; all small buffers of a slab
  // together take one mapping.
  std::uint64_t buffers_max = UINT64_MAX;       // in use or cached
  std::uint64_t user_buffers_max = UINT64_MAX;  // in use by one user
};

struct BufferCacheCounters {
  std::uint64_t hits = 0, misses = 0, dropped = 0;
  std::uint64_t cached_bytes = 0, cached_buffers = 0;
  std::uint64_t leaving_bytes = 0;
  std::uint64_t used_buffers = 0;
  std::uint64_t huge_bytes = 0, huge_refusals = 0;  // made of huge pages so far, and requests that were refused
};

// Thread-safe: jobs release buffers too.
class BufferCache : public std::enable_shared_from_this<BufferCache> {
 public:
  [[nodiscard]] static std::shared_ptr<BufferCache> make(const BufferCacheOptions& options);
  ~BufferCache();

  // The contents are left over from the user's previous frame. Error::no_memory: the limit of buffers is reached, or
  // the kernel has no more memory, mappings or descriptors.
  [[nodiscard]] Result<Buffer> take(std::uint64_t length, uid_t user);
  // The same, always with a descriptor: for memory that others map while it is written.
  [[nodiscard]] Result<Buffer> take_file(std::uint64_t length, uid_t user);
  // Makes a buffer for a later take(), with its pages already in memory, in huge ones where the kernel permits it: the
  // first touch of a page costs as much as moving it. Does nothing if a buffer is free or the cache is full. Blocks for
  // a while: run it in a job.
  [[nodiscard]] Status prepare(std::uint64_t length, uid_t user);
  // A buffer is free, or can be made at once.
  [[nodiscard]] bool has_free(std::uint64_t length, uid_t user) const;
  // Bytes of buffers in use, in whole pages, and of buffers that are being returned to the kernel.
  [[nodiscard]] std::uint64_t used_bytes() const noexcept { return used_bytes_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t used_bytes_of(uid_t user) const;
  // Accounts for memory that libarrow allocates for a user beside the buffers. False: all memory of the user would
  // exceed `bytes_max`.
  [[nodiscard]] bool hold(std::uint64_t bytes, uid_t user, std::uint64_t bytes_max);
  void let_go(std::uint64_t bytes, uid_t user) noexcept;
  [[nodiscard]] std::uint64_t held_bytes_of(uid_t user) const;
  // Whether one more buffer may be taken.
  [[nodiscard]] bool has_place() const noexcept {
    return used_buffers_.load(std::memory_order_relaxed) < options_.buffers_max;
  }
  [[nodiscard]] bool has_place_for(uid_t user) const;
  // Memory that found no room in the cache and is to be returned to the kernel. `drop_leaving` does that: run it in a
  // job.
  [[nodiscard]] std::uint64_t leaving_bytes() const noexcept { return leaving_bytes_.load(std::memory_order_relaxed); }
  void drop_leaving();
  [[nodiscard]] BufferCacheCounters counters() const;
  void clear();

  [[nodiscard]] static std::uint64_t class_bytes(std::uint64_t length) noexcept;

 private:
  friend class Buffer;
  struct Free {
    std::byte* data = nullptr;
    std::uint64_t capacity = 0;
    Fd fd{};  // none: a slab
    uid_t user = 0;
    std::uint64_t filled = 0;  // bytes that take memory; all of a memfd
    bool shared = false;       // set by Buffer::share
  };
  explicit BufferCache(const BufferCacheOptions& options) : options_(options) {}
  [[nodiscard]] Result<Free> make_buffer(std::uint64_t capacity, uid_t user) const;
  [[nodiscard]] Result<Buffer> take_page(std::uint64_t length, uid_t user);
  void give_back(Buffer& buffer) noexcept;
  void give_back_page(std::byte* page) noexcept;
  [[nodiscard]] Status may_take(uid_t user) const;
  void count_in(std::uint64_t bytes, std::uint64_t buffers, uid_t user) noexcept;
  void count_out(std::uint64_t bytes, std::uint64_t buffers, uid_t user) noexcept;
  void make_place() noexcept;
  void make_room(std::uint64_t capacity) noexcept;
  [[nodiscard]] Free take_first_of(std::deque<Free>& free) noexcept;
  [[nodiscard]] Free take_slab(Slabs::Slab& slab) noexcept;
  void out_of_use(Slabs::Slab& slab) noexcept;
  void leave(Free memory) noexcept;
  void unmap(const Free& memory) const noexcept;

  BufferCacheOptions options_;
  mutable std::mutex mutex_;
  // Last in, first out: the buffer released last is still in the processor's cache. The longest unused one is removed
  // first. Empty classes stay: there are few, and the next frame mostly has a size that occurred before.
  std::map<std::pair<uid_t, std::uint64_t>, std::deque<Free>> free_;
  Slabs slabs_;
  std::vector<Free> leaving_;
  struct Used {
    std::uint64_t bytes = 0, buffers = 0;
  };
  std::map<uid_t, Used> used_by_;
  std::map<uid_t, std::uint64_t> held_by_;
  BufferCacheCounters counters_;
  HugePages huge_pages_;
  std::atomic<std::uint64_t> used_bytes_{0}, used_buffers_{0};
  std::atomic<std::uint64_t> leaving_bytes_{0};  // of leaving_, of slabs_, and of the work of drop_leaving
};

}  // namespace offpath::service
