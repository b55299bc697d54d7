#include "link/card/bounce_buffer.h"

#include <algorithm>

#include "link/stream/stream_host_link.h"

namespace offpath::link {

Result<std::unique_ptr<BouncePool::Block>> BouncePool::take(TimeNs now) {
  if (!free_.empty()) {
    std::unique_ptr<Block> block = std::move(free_.back());
    free_.pop_back();
    return block;
  }
  OFP_ASSIGN(SegmentMemory memory, allocate_shared(block_bytes));
  OFP_ASSIGN(std::unique_ptr<Registration> region, registrar_.register_own(memory.data(), memory.length(), true));
  made_at_ = now;
  return std::make_unique<Block>(Block{std::move(memory), std::move(region)});
}

Status BouncePool::prepare(TimeNs now) {
  OFP_ASSIGN(std::unique_ptr<Block> block, take(now));
  give_back(std::move(block));
  return {};
}

void BouncePool::rest(TimeNs now) noexcept {
  if (now >= next_rest()) free_.resize(std::min(free_.size(), kept_max));
}

std::optional<BounceBuffer::Piece> BounceBuffer::take(std::uint64_t length, TimeNs now) {
  OFP_ASSERT(length <= block_bytes);
  std::uint64_t begin = align_up(head_, 8);
  if (begin % block_bytes + length > block_bytes) begin = align_up(begin, block_bytes);
  const std::uint64_t index = begin / block_bytes - first_;
  if (index == blocks_.size()) {
    if (blocks_.size() == blocks_max) return std::nullopt;
    auto block = pool_.take(now);
    if (!block) {
      if (blocks_.empty()) refused_ = std::move(block).error();
      return std::nullopt;
    }
    blocks_.push_back(std::move(*block));
  }
  refused_.reset();
  head_ = begin + length;
  const BouncePool::Block& block = *blocks_[index];
  return Piece{block.memory.data() + begin % block_bytes, block.region->key()};
}

void BounceBuffer::give_back_to(std::uint64_t position) {
  // With nothing in use the block that is partly taken goes back as well.
  if (position == head_) position = head_ = (first_ + blocks_.size()) * block_bytes;
  for (; !blocks_.empty() && (first_ + 1) * block_bytes <= position; ++first_) {
    pool_.give_back(std::move(blocks_.front()));
    blocks_.pop_front();
  }
}

void BounceBuffer::drop() noexcept {
  first_ += blocks_.size();
  head_ = first_ * block_bytes;
  blocks_.clear();
}

}  // namespace offpath::link
