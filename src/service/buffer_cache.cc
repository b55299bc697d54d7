#include "service/buffer_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>
#include <utility>

#include "base/memory_file.h"

namespace offpath::service {

namespace {

constexpr std::uint64_t at_once_bytes_max = 1ull << 20;  // returned to the kernel in less than 100 us
// munmap blocks other threads' mmap, so memory is unmapped in parts of at most this size.
constexpr std::uint64_t unmapped_bytes_max = 16ull << 20;
constexpr std::uint64_t filled_bytes_max = 2ull << 20;  // the same for filling memory, which takes longer
constexpr std::uint64_t warm_share = 8;                 // the share of single pages in the cache

void fill(MutableBytes memory) noexcept {
  for (std::uint64_t at = 0; at < memory.size(); at += filled_bytes_max) {
    const MutableBytes part = memory.subspan(at, std::min(filled_bytes_max, memory.size() - at));
    if (madvise(part.data(), part.size(), MADV_POPULATE_WRITE) == 0) continue;
    for (std::uint64_t page = 0; page < part.size(); page += page_bytes)
      part[page] = std::byte{0};  // before Linux 5.14
  }
}

}  // namespace

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  if (data_ != nullptr) cache_->give_back(*this);
  data_ = std::exchange(other.data_, nullptr);
  length_ = std::exchange(other.length_, 0);
  capacity_ = std::exchange(other.capacity_, 0);
  user_ = other.user_;
  shared_ = other.shared_;
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

Result<Fd> Buffer::copy() const { return sealed_copy("offpath-copy", {data_, length_}); }

Result<BufferCache::Free> BufferCache::make_buffer(std::uint64_t capacity, uid_t user) const {
  OFP_ASSIGN(Fd fd, memory_file("offpath-frame"));
  if (ftruncate(fd.get(), static_cast<off_t>(capacity)) != 0) return fail_errno(errno, "ftruncate of a buffer");
  OFP_ASSIGN(std::byte* const data, map_for_huge_pages(fd.get(), capacity));
  // This writable mapping was made before the seal and stays; later writable mappings are refused.
  if (auto sealed = add_seals(fd.get(), F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW, "a buffer"); !sealed) {
    munmap(data, capacity);
    return tl::unexpected(std::move(sealed).error());
  }
  if (options_.huge_pages && capacity >= huge_page_bytes) madvise(data, capacity, MADV_HUGEPAGE);
  if (options_.lasting) options_.lasting->add(data, capacity);
  return Free{data, capacity, std::move(fd), user, capacity};
}

Result<Buffer> BufferCache::take(std::uint64_t length, uid_t user) {
  return length <= Slabs::object_bytes_max ? take_page(length, user) : take_file(length, user);
}

Result<Buffer> BufferCache::take_file(std::uint64_t length, uid_t user) {
  const std::uint64_t capacity = class_bytes(length);
  Free memory{};
  {
    const std::lock_guard lock(mutex_);
    OFP_TRY(may_take(user));
    count_in(align_up(length, page_bytes), 1, user);
    if (const auto at = free_.find({user, capacity}); at != free_.end() && !at->second.empty()) {
      memory = std::move(at->second.back());
      at->second.pop_back();
      ++counters_.hits;
      --counters_.cached_buffers;
      counters_.cached_bytes -= capacity;
    } else {
      ++counters_.misses;
      make_place();
    }
  }
  if (memory.data == nullptr) {
    auto made = make_buffer(capacity, user);
    if (!made) {
      const std::lock_guard lock(mutex_);
      count_out(align_up(length, page_bytes), 1, user);
      return tl::unexpected<Failure>(std::move(made).error());
    }
    memory = std::move(*made);
  }
  Buffer buffer;
  buffer.data_ = memory.data;
  buffer.length_ = length;
  buffer.capacity_ = capacity;
  buffer.user_ = user;
  buffer.shared_ = memory.shared;
  buffer.fd_ = std::move(memory.fd);
  buffer.cache_ = shared_from_this();
  return buffer;
}

// A page of a slab. The slab counts as one buffer while any of its pages is used or leaving.
Result<Buffer> BufferCache::take_page(std::uint64_t length, uid_t user) {
  Buffer buffer;
  {
    const std::lock_guard lock(mutex_);
    Slabs::Slab* slab = slabs_.with_room(user);
    if (slab == nullptr || !slab->in_use()) {
      OFP_TRY(may_take(user));
      count_in(0, 1, user);
      if (slab != nullptr) {
        --counters_.cached_buffers;
      } else {
        make_place();
        auto made = slabs_.make(user);
        if (!made) {
          count_out(0, 1, user);
          return tl::unexpected<Failure>(std::move(made).error());
        }
        slab = *made;
      }
    }
    bool warm = false;
    buffer.data_ = slabs_.take(*slab, warm);
    if (warm) counters_.cached_bytes -= page_bytes;
    ++(warm ? counters_.hits : counters_.misses);
    count_in(page_bytes, 0, user);
  }
  buffer.length_ = length;
  buffer.capacity_ = page_bytes;
  buffer.user_ = user;
  buffer.cache_ = shared_from_this();
  return buffer;
}

// The lock is held, here and in count_in and count_out.
Status BufferCache::may_take(uid_t user) const {
  if (!has_place())
    return fail(Error::no_memory, "{} frames are in memory, which is this agent's limit (limits.frames_max)",
                used_buffers_.load());
  const auto used = used_by_.find(user);
  if (used != used_by_.end() && used->second.buffers >= options_.user_buffers_max)
    return fail(Error::no_memory,
                "user {} has {} frames in memory, which is the limit of each user (limits.user_frames_max)", user,
                used->second.buffers);
  return {};
}

void BufferCache::count_in(std::uint64_t bytes, std::uint64_t buffers, uid_t user) noexcept {
  Used& used = used_by_[user];
  used.bytes += bytes;
  used.buffers += buffers;
  used_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  used_buffers_.fetch_add(buffers, std::memory_order_relaxed);
}

void BufferCache::count_out(std::uint64_t bytes, std::uint64_t buffers, uid_t user) noexcept {
  used_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  used_buffers_.fetch_sub(buffers, std::memory_order_relaxed);
  const auto used = used_by_.find(user);
  used->second.bytes -= bytes;
  used->second.buffers -= buffers;
  if (used->second.buffers == 0 && used->second.bytes == 0) used_by_.erase(used);
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
  count_in(bytes, 0, user);
  return true;
}

void BufferCache::let_go(std::uint64_t bytes, uid_t user) noexcept {
  const std::lock_guard lock(mutex_);
  held_by_[user] -= bytes;
  count_out(bytes, 0, user);
}

std::uint64_t BufferCache::held_bytes_of(uid_t user) const {
  const std::lock_guard lock(mutex_);
  const auto at = held_by_.find(user);
  return at == held_by_.end() ? 0 : at->second;
}

bool BufferCache::has_free(std::uint64_t length, uid_t user) const {
  if (length <= Slabs::object_bytes_max) return true;
  const std::lock_guard lock(mutex_);
  const auto at = free_.find({user, class_bytes(length)});
  return at != free_.end() && !at->second.empty();
}

Status BufferCache::prepare(std::uint64_t length, uid_t user) {
  const std::uint64_t capacity = class_bytes(length);
  if (has_free(length, user) || !has_place_for(user)) return {};
  OFP_ASSIGN(Free memory, make_buffer(capacity, user));
  if (options_.huge_pages) huge_pages_.fill({memory.data, capacity});
  fill({memory.data, capacity});
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
  std::byte* const data = std::exchange(buffer.data_, nullptr);
  const std::lock_guard lock(mutex_);
  if (!buffer.fd_) return give_back_page(data);
  Free memory{data, buffer.capacity_, std::move(buffer.fd_), buffer.user_, buffer.capacity_, buffer.shared_};
  count_out(align_up(buffer.length_, page_bytes), 1, buffer.user_);
  make_room(memory.capacity);
  if (counters_.cached_bytes + memory.capacity > options_.cached_bytes_max) return leave(std::move(memory));
  const std::uint64_t capacity = memory.capacity;
  try {
    free_[{buffer.user_, capacity}].push_back(std::move(memory));
  } catch (const std::bad_alloc&) {
    return unmap(memory);
  }
  counters_.cached_bytes += capacity;
  ++counters_.cached_buffers;
}

// The lock is held, here and in all functions up to drop_leaving.
void BufferCache::give_back_page(std::byte* page) noexcept {
  Slabs::Slab& slab = slabs_.of(page);
  const std::uint64_t warm_bytes = slabs_.warm_bytes() + page_bytes;
  if (warm_bytes <= options_.cached_bytes_max / warm_share) make_room(page_bytes);
  const bool warm = warm_bytes <= options_.cached_bytes_max / warm_share &&
                    counters_.cached_bytes + page_bytes <= options_.cached_bytes_max;
  slabs_.give_back(slab, page, warm);
  if (warm) {
    counters_.cached_bytes += page_bytes;
    count_out(page_bytes, 0, slab.user);
  } else {
    leaving_bytes_.fetch_add(page_bytes, std::memory_order_relaxed);
  }
  if (!slab.in_use()) out_of_use(slab);
}

void BufferCache::out_of_use(Slabs::Slab& slab) noexcept {
  slabs_.rest(slab);
  count_out(0, 1, slab.user);
  ++counters_.cached_buffers;
  if (slab.warm.empty()) leave(take_slab(slab));  // no page of it is worth keeping
}

// Releases unused buffers if there are more than allowed: the smallest, because they are unmapped here.
void BufferCache::make_place() noexcept {
  if (used_buffers_ + counters_.cached_buffers <= options_.buffers_max) return;
  auto idle = free_.end();
  for (auto at = free_.begin(); at != free_.end(); ++at)
    if (!at->second.empty() && (idle == free_.end() || at->first.second < idle->first.second)) idle = at;
  Slabs::Slab* const slab = slabs_.idle();
  if (idle == free_.end() && slab == nullptr) return;
  const bool of_slab = idle == free_.end() || (slab != nullptr && slab->warm_bytes() < idle->first.second);
  Free memory = of_slab ? take_slab(*slab) : take_first_of(idle->second);
  if (memory.filled >= at_once_bytes_max) return leave(std::move(memory));
  ++counters_.dropped;
  unmap(memory);
}

// The classes last asked for are likely to be asked for next: other classes make room for them.
void BufferCache::make_room(std::uint64_t capacity) noexcept {
  if (capacity > options_.cached_bytes_max) return;
  while (counters_.cached_bytes + capacity > options_.cached_bytes_max) {
    const auto largest =
        std::ranges::max_element(free_, {}, [](const auto& each) { return each.first.second * each.second.size(); });
    if (largest == free_.end() || largest->second.empty() || largest->first.second == capacity) return;
    leave(take_first_of(largest->second));
  }
}

BufferCache::Free BufferCache::take_first_of(std::deque<Free>& free) noexcept {
  Free memory = std::move(free.front());
  free.pop_front();
  counters_.cached_bytes -= memory.capacity;
  --counters_.cached_buffers;
  return memory;
}

BufferCache::Free BufferCache::take_slab(Slabs::Slab& slab) noexcept {
  const std::uint64_t warm_bytes = slab.warm_bytes();
  const uid_t user = slab.user;
  counters_.cached_bytes -= warm_bytes;
  --counters_.cached_buffers;
  const Slabs::Run memory = slabs_.remove(slab);
  return {memory.data, memory.bytes, Fd(), user, warm_bytes};
}

void BufferCache::leave(Free memory) noexcept {
  ++counters_.dropped;
  const uid_t user = memory.user;
  const std::uint64_t filled = memory.filled;
  try {
    used_by_.try_emplace(user);
    leaving_.push_back(std::move(memory));
  } catch (const std::bad_alloc&) {
    return unmap(memory);
  }
  count_in(filled, 1, user);
  leaving_bytes_.fetch_add(filled, std::memory_order_relaxed);
}

void BufferCache::drop_leaving() {
  std::vector<Slabs::Run> pages;
  {
    const std::lock_guard lock(mutex_);
    pages = slabs_.take_leaving();
  }
  for (const Slabs::Run& run : pages) Slabs::release(run);
  std::vector<Free> leaving;
  {
    const std::lock_guard lock(mutex_);
    for (const Slabs::Run& run : pages) {
      Slabs::Slab& slab = slabs_.of(run.data);
      slabs_.released(slab, run);
      count_out(run.bytes, 0, slab.user);
      leaving_bytes_.fetch_sub(run.bytes, std::memory_order_relaxed);
      if (!slab.in_use()) out_of_use(slab);
    }
    leaving.swap(leaving_);
  }
  for (Free& each : leaving) {
    unmap(each);
    each.fd.reset();  // usually the last reference to its memory
    const std::lock_guard lock(mutex_);
    count_out(each.filled, 1, each.user);
    leaving_bytes_.fetch_sub(each.filled, std::memory_order_relaxed);
  }
}

void BufferCache::unmap(const Free& memory) const noexcept {
  if (options_.lasting && memory.fd) options_.lasting->remove(memory.data);
  for (std::uint64_t at = 0; at < memory.capacity; at += unmapped_bytes_max)
    munmap(memory.data + at, std::min(unmapped_bytes_max, memory.capacity - at));
}

BufferCacheCounters BufferCache::counters() const {
  const std::lock_guard lock(mutex_);
  BufferCacheCounters counters = counters_;
  counters.leaving_bytes = leaving_bytes();
  counters.huge_bytes = huge_pages_.filled_bytes();
  counters.huge_refusals = huge_pages_.refusals();
  counters.used_buffers = used_buffers_.load(std::memory_order_relaxed);
  return counters;
}

void BufferCache::clear() {
  {
    const std::lock_guard lock(mutex_);
    for (auto& [key, buffers] : free_)
      while (!buffers.empty()) leave(take_first_of(buffers));
    while (Slabs::Slab* const slab = slabs_.idle()) leave(take_slab(*slab));
  }
  drop_leaving();
}

}  // namespace offpath::service
