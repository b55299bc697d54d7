#include "mover/buffer_cache.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>
#include <utility>

namespace offpath::mover {

namespace {

constexpr std::uint64_t huge_bytes = 2ull << 20;
constexpr std::uint64_t leaving_bytes_min = 1ull
                                            << 20;  // smaller buffers are given to the kernel at once: under 100 us

}  // namespace

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  if (data_ != nullptr) cache_->give_back(*this);
  data_ = std::exchange(other.data_, nullptr);
  length_ = std::exchange(other.length_, 0);
  capacity_ = std::exchange(other.capacity_, 0);
  user_ = other.user_;
  fd_ = std::move(other.fd_);
  cache_ = std::move(other.cache_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) cache_->give_back(*this);
}

std::shared_ptr<BufferCache> BufferCache::make(const BufferCacheOptions& options) {
  return std::shared_ptr<BufferCache>(new BufferCache(options));
}

BufferCache::~BufferCache() { clear(); }

std::uint64_t BufferCache::class_bytes(std::uint64_t length) noexcept {
  const std::uint64_t pages = std::max<std::uint64_t>(1, (length + page_bytes - 1) / page_bytes);
  if (pages <= 8) return pages * page_bytes;
  const int shift = std::bit_width(pages - 1) - 4;  // eight steps from one power of two to the next
  return align_up(pages, 1ull << shift) * page_bytes;
}

Result<BufferCache::Free> BufferCache::make_buffer(std::uint64_t capacity) const {
  Fd fd(memfd_create("offpath-frame", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return fail_errno(errno, "memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(capacity)) != 0) return fail_errno(errno, "ftruncate of a buffer");
  void* data = mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return fail_errno(errno, "mmap of a buffer");
  // Our own writable mapping exists already and stays; nobody gets another one.
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    const int error_number = errno;
    munmap(data, capacity);
    return fail_errno(error_number, "sealing a buffer");
  }
  if (options_.huge_pages && capacity >= huge_bytes) madvise(data, capacity, MADV_HUGEPAGE);
  if (options_.lasting) options_.lasting->add(static_cast<std::byte*>(data), capacity);
  return Free{static_cast<std::byte*>(data), capacity, std::move(fd)};
}

Result<Buffer> BufferCache::take(std::uint64_t length, uid_t user) {
  const std::uint64_t capacity = class_bytes(length);
  Free memory{};
  {
    const std::lock_guard lock(mutex_);
    OFP_TRY(count_in(align_up(length, page_bytes), user));
    if (const auto at = free_.find({user, capacity}); at != free_.end() && !at->second.empty()) {
      memory = std::move(at->second.back());
      at->second.pop_back();
      ++counters_.hits;
      --counters_.cached_buffers;
      counters_.cached_bytes -= capacity;
    } else {
      ++counters_.misses;
      // One that nobody uses leaves for it.
      if (used_buffers_ + counters_.cached_buffers > options_.buffers_max) {
        const auto idle = std::ranges::find_if(free_, [](const auto& each) { return !each.second.empty(); });
        if (idle != free_.end()) discard_first_of(idle->second, idle->first.second);
      }
    }
  }
  if (memory.data == nullptr) {
    auto made = make_buffer(capacity);
    if (!made) {
      const std::lock_guard lock(mutex_);
      count_out(align_up(length, page_bytes), user);
      return tl::unexpected<Failure>(std::move(made).error());
    }
    memory = std::move(*made);
  }
  Buffer buffer;
  buffer.data_ = memory.data;
  buffer.length_ = length;
  buffer.capacity_ = capacity;
  buffer.user_ = user;
  buffer.fd_ = std::move(memory.fd);
  buffer.cache_ = shared_from_this();
  return buffer;
}

// The lock is held, here and in count_out.
Status BufferCache::count_in(std::uint64_t bytes, uid_t user) {
  if (!has_place())
    return fail(Error::no_memory, "{} frames are in memory, which is this agent's limit (limits.frames_max)",
                used_buffers_.load());
  Used& used = used_by_[user];
  if (used.buffers >= options_.user_buffers_max)
    return fail(Error::no_memory,
                "user {} has {} frames in memory, which is the limit of each user (limits.user_frames_max)", user,
                used.buffers);
  used.bytes += bytes;
  ++used.buffers;
  used_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  used_buffers_.fetch_add(1, std::memory_order_relaxed);
  return {};
}

void BufferCache::count_out(std::uint64_t bytes, uid_t user) noexcept {
  used_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  used_buffers_.fetch_sub(1, std::memory_order_relaxed);
  const auto used = used_by_.find(user);
  used->second.bytes -= bytes;
  if (--used->second.buffers == 0) used_by_.erase(used);
}

bool BufferCache::has_place_for(uid_t user) const {
  if (!has_place() || options_.user_buffers_max >= options_.buffers_max) return has_place();
  const std::lock_guard lock(mutex_);
  const auto at = used_by_.find(user);
  return at == used_by_.end() || at->second.buffers < options_.user_buffers_max;
}

std::uint64_t BufferCache::used_bytes_of(uid_t user) const {
  const std::lock_guard lock(mutex_);
  const auto at = used_by_.find(user);
  return at == used_by_.end() ? 0 : at->second.bytes;
}

bool BufferCache::hold(std::uint64_t bytes, uid_t user, std::uint64_t bytes_max) {
  const std::lock_guard lock(mutex_);
  std::uint64_t& held = held_by_[user];
  if (bytes > bytes_max || held > bytes_max - bytes) return false;
  held += bytes;
  return true;
}

void BufferCache::let_go(std::uint64_t bytes, uid_t user) noexcept {
  const std::lock_guard lock(mutex_);
  held_by_[user] -= bytes;
}

std::uint64_t BufferCache::held_bytes_of(uid_t user) const {
  const std::lock_guard lock(mutex_);
  const auto at = held_by_.find(user);
  return at == held_by_.end() ? 0 : at->second;
}

bool BufferCache::has_free(std::uint64_t length, uid_t user) const {
  const std::lock_guard lock(mutex_);
  const auto at = free_.find({user, class_bytes(length)});
  return at != free_.end() && !at->second.empty();
}

Status BufferCache::prepare(std::uint64_t length, uid_t user) {
  const std::uint64_t capacity = class_bytes(length);
  if (has_free(length, user) || !has_place_for(user)) return {};
  OFP_ASSIGN(Free memory, make_buffer(capacity));
  if (madvise(memory.data, capacity, MADV_POPULATE_WRITE) != 0)  // before Linux 5.14
    for (std::uint64_t at = 0; at < capacity; at += page_bytes) memory.data[at] = std::byte{0};
  {
    const std::lock_guard lock(mutex_);
    if (counters_.cached_bytes + capacity <= options_.cached_bytes_max &&
        used_buffers_ + counters_.cached_buffers < options_.buffers_max) {
      free_[{user, capacity}].push_front(std::move(memory));
      counters_.cached_bytes += capacity;
      ++counters_.cached_buffers;
      return {};
    }
  }
  unmap(memory);
  return {};
}

void BufferCache::give_back(Buffer& buffer) noexcept {
  Free memory{std::exchange(buffer.data_, nullptr), buffer.capacity_, std::move(buffer.fd_)};
  const std::lock_guard lock(mutex_);
  count_out(align_up(buffer.length_, page_bytes), buffer.user_);
  make_room(memory.capacity);
  if (counters_.cached_bytes + memory.capacity > options_.cached_bytes_max) return discard(std::move(memory));
  const std::uint64_t capacity = memory.capacity;
  try {
    free_[{buffer.user_, capacity}].push_back(std::move(memory));
  } catch (const std::bad_alloc&) {
    return unmap(memory);
  }
  counters_.cached_bytes += capacity;
  ++counters_.cached_buffers;
}

// The lock is held. What was wanted last is what will be wanted next: other classes leave for it.
void BufferCache::make_room(std::uint64_t capacity) noexcept {
  if (capacity > options_.cached_bytes_max) return;
  while (counters_.cached_bytes + capacity > options_.cached_bytes_max) {
    const auto largest =
        std::ranges::max_element(free_, {}, [](const auto& each) { return each.first.second * each.second.size(); });
    if (largest == free_.end() || largest->second.empty() || largest->first.second == capacity) return;
    discard_first_of(largest->second, largest->first.second);
  }
}

// The lock is held.
void BufferCache::discard_first_of(std::deque<Free>& free, std::uint64_t capacity) noexcept {
  counters_.cached_bytes -= capacity;
  --counters_.cached_buffers;
  discard(std::move(free.front()));
  free.pop_front();
}

// The lock is held. As much may be on its way out as may stay; what exceeds that leaves while its giver waits.
void BufferCache::discard(Free memory) noexcept {
  ++counters_.dropped;
  if (memory.capacity < leaving_bytes_min || leaving_bytes() + memory.capacity > options_.cached_bytes_max)
    return unmap(memory);
  const std::uint64_t capacity = memory.capacity;
  try {
    leaving_.push_back(std::move(memory));
  } catch (const std::bad_alloc&) {
    return unmap(memory);
  }
  leaving_bytes_.fetch_add(capacity, std::memory_order_relaxed);
}

void BufferCache::drop_leaving() {
  std::vector<Free> leaving;
  {
    const std::lock_guard lock(mutex_);
    leaving.swap(leaving_);
  }
  for (Free& each : leaving) {
    unmap(each);
    each.fd.reset();  // the last one of its memory, mostly
    leaving_bytes_.fetch_sub(each.capacity, std::memory_order_relaxed);
  }
}

void BufferCache::unmap(const Free& memory) const noexcept {
  if (options_.lasting) options_.lasting->remove(memory.data);
  munmap(memory.data, memory.capacity);
}

BufferCacheCounters BufferCache::counters() const {
  const std::lock_guard lock(mutex_);
  BufferCacheCounters counters = counters_;
  counters.leaving_bytes = leaving_bytes();
  counters.used_buffers = used_buffers_.load(std::memory_order_relaxed);
  return counters;
}

void BufferCache::clear() {
  const std::lock_guard lock(mutex_);
  for (auto& [key, buffers] : free_)
    for (const Free& each : buffers) unmap(each);
  for (const Free& each : leaving_) unmap(each);
  free_.clear();
  leaving_.clear();
  leaving_bytes_.store(0, std::memory_order_relaxed);
  counters_.cached_bytes = counters_.cached_buffers = 0;
}

}  // namespace offpath::mover
