#include "host/send/staging.h"

#include <algorithm>

namespace offpath::host {

namespace {

constexpr std::uint64_t block_alignment = 64;
constexpr std::uint64_t first_slab_bytes = 4u << 20;
constexpr TimeNs agent_takes_segment_ns = second_ns;    // normally tens of microseconds
constexpr TimeNs look_again_ns = 100 * microsecond_ns;  // while another thread is still copying into the oldest block

}  // namespace

bool Staging::Ring::take(std::uint64_t length, std::uint64_t number, std::uint64_t& offset) {
  length = align_up(std::max<std::uint64_t>(length, 1), block_alignment);
  if (blocks.empty()) {
    if (length > size_) return false;
    offset = 0;
  } else {
    const std::uint64_t begin = blocks.front().begin, end = blocks.back().end;
    const bool wrapped = blocks.back().begin < begin;
    if (!wrapped && length <= size_ - end)
      offset = end;
    else if (!wrapped && length <= begin)
      offset = 0;
    else if (wrapped && length <= begin - end)
      offset = end;
    else
      return false;
  }
  blocks.push_back({.begin = offset, .end = offset + length, .number = number});
  return true;
}

Staging::Ring::Block* Staging::Ring::find(std::uint64_t number) noexcept {
  const auto at = std::ranges::find(blocks, number, &Block::number);
  return at != blocks.end() ? &*at : nullptr;
}

// ---- segments

void Staging::reclaim() {
  for (const auto& slab : slabs_) {
    auto& blocks = slab->ring.blocks;
    while (!blocks.empty()) {
      const Ring::Block& oldest = blocks.front();
      if (!oldest.given_up && !(oldest.posted && end_.pulled(oldest.stream) >= oldest.ticket)) break;
      blocks.pop_front();
    }
  }
}

bool Staging::take(std::uint64_t length, Place& place) {
  for (const auto& slab : slabs_) {
    if (!slab->ring.take(length, blocks_taken_, place.offset)) continue;
    place.region = slab->region;
    place.data = slab->memory.data() + place.offset;
    place.length = length;
    place.number = blocks_taken_++;
    return true;
  }
  return false;
}

// Adds a segment that takes `length` bytes if the limit allows, after freeing segments that are too small to be of use.
Status Staging::grow(std::uint64_t length) {
  const std::uint64_t needed = align_up(length, page_bytes);
  for (std::size_t i = 0; i < slabs_.size() && held_ + needed > bytes_max_;) {
    if (!slabs_[i]->ring.blocks.empty()) {
      ++i;
      continue;
    }
    held_ -= slabs_[i]->memory.size();
    end_.free(slabs_[i]->region);
    slabs_.erase(slabs_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  if (held_ + needed > bytes_max_)
    return fail(Error::would_block, "the staging memory is full: {} of {} bytes are held for batches not pulled yet",
                held_, bytes_max_);
  const std::uint64_t wanted = std::max({needed, first_slab_bytes, held_});  // doubles
  const std::uint64_t size = std::min(wanted, std::max(needed, (bytes_max_ - held_) & ~(page_bytes - 1)));
  OFP_ASSIGN(const wire::RegionId region, end_.allocate(size, deadline_after(end_.now(), agent_takes_segment_ns)));
  const MutableBytes memory = end_.segment(region);
  slabs_.push_back(std::make_unique<Slab>(Slab{region, memory, Ring(memory.size())}));
  held_ += memory.size();
  return {};
}

Status Staging::wait_for_room(Lock& lock, std::uint64_t length, TimeNs deadline) {
  const Ring::Block* oldest = nullptr;
  for (const auto& slab : slabs_) {
    if (slab->ring.size() < length || slab->ring.blocks.empty()) continue;
    const Ring::Block& front = slab->ring.blocks.front();
    if (front.posted && (oldest == nullptr || front.ticket < oldest->ticket)) oldest = &front;
  }
  // No segment that is large enough: whichever is posted first frees one that can be exchanged for a larger one.
  for (const auto& slab : slabs_) {
    if (oldest != nullptr || slab->ring.blocks.empty()) continue;
    if (const Ring::Block& front = slab->ring.blocks.front(); front.posted) oldest = &front;
  }
  if (deadline <= end_.now())
    return fail(deadline == 0 ? Error::would_block : Error::timeout,
                "the staging memory is full: {} bytes wanted, {} of {} are held for batches not pulled yet", length,
                held_, bytes_max_);
  if (oldest == nullptr) {
    lock.unlock();
    const timespec pause{0, look_again_ns};
    nanosleep(&pause, nullptr);
    lock.lock();
    return {};
  }
  const std::uint32_t stream = oldest->stream;
  const std::uint64_t ticket = oldest->ticket;
  lock.unlock();
  const Status waited = end_.wait(stream, ticket, channel::Progress::pulled, deadline);
  lock.lock();
  // The failure of this older batch does not matter here; its block is free.
  if (!waited && end_.pulled(stream) < ticket) return waited;
  return {};
}

Result<Staging::Place> Staging::reserve(std::uint64_t length, TimeNs deadline) {
  if (align_up(std::max<std::uint64_t>(length, 1), page_bytes) > bytes_max_)
    return fail(Error::too_large,
                "the batch has {} bytes to be copied, the staging memory at most {} (staging_bytes_max)", length,
                bytes_max_);
  Lock lock(mutex_);
  Place place;
  while (true) {
    reclaim();
    if (take(length, place)) return place;
    Status grown = grow(std::max<std::uint64_t>(length, 1));
    if (grown) continue;
    if (grown.error().code != Error::would_block) return tl::unexpected(std::move(grown).error());
    OFP_TRY(wait_for_room(lock, length, deadline));
  }
}

Staging::Slab* Staging::slab_of(const Place& place) noexcept {
  const auto at = std::ranges::find_if(slabs_, [&](const auto& slab) { return slab->region == place.region; });
  return at != slabs_.end() ? at->get() : nullptr;
}

void Staging::commit(const Place& place, std::uint32_t stream, std::uint64_t ticket) {
  const Lock lock(mutex_);
  Slab* slab = slab_of(place);
  OFP_ASSERT(slab != nullptr);
  Ring::Block* block = slab->ring.find(place.number);
  OFP_ASSERT(block != nullptr);
  block->posted = true;
  block->stream = stream;
  block->ticket = ticket;
}

void Staging::give_up(const Place& place) {
  const Lock lock(mutex_);
  if (Slab* slab = slab_of(place))
    if (Ring::Block* block = slab->ring.find(place.number)) block->given_up = true;
}

void Staging::forget(std::uint32_t stream) {
  const Lock lock(mutex_);
  for (const auto& slab : slabs_)
    for (Ring::Block& block : slab->ring.blocks)
      if (block.posted && block.stream == stream) block.given_up = true;
}

std::uint64_t Staging::bytes_held() const {
  const Lock lock(mutex_);
  return held_;
}

}  // namespace offpath::host
