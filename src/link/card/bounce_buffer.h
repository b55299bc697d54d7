// Registered memory for what a card moves from and to memory that is not registered: rings, lines, small objects. Read
// registered_memory.h first.
//
// The pool belongs to a device and holds blocks of 64 KiB. An agent's end takes blocks while requests use them, sixteen
// at most, and returns them in the order of posting. So a channel without requests under way pins nothing, and one that
// is stuck holds its own sixteen blocks and leaves the others alone. The pool keeps a few returned blocks for the next
// burst. Further ones are released when none had to be made for a second.
//
// Both belong to the agent's loop.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "link/card/registered_memory.h"
#include "link/link.h"

namespace offpath::link {

class BouncePool {
 public:
  static constexpr std::uint64_t block_bytes = 64 << 10;
  static constexpr std::size_t kept_max = 16;  // returned blocks that stay registered
  static constexpr TimeNs rest_ns = second_ns;

  struct Block {
    SegmentMemory memory;
    std::unique_ptr<Registration> region;
  };

  explicit BouncePool(Registrar& registrar) : registrar_(registrar) {}
  // Error::no_memory and others of the registrar.
  [[nodiscard]] Result<std::unique_ptr<Block>> take(TimeNs now);
  void give_back(std::unique_ptr<Block> block) { free_.push_back(std::move(block)); }
  // Makes a first block, so that a device that cannot register any is known before it is used.
  [[nodiscard]] Status prepare(TimeNs now);

  void rest(TimeNs now) noexcept;  // releases blocks beyond kept_max whose time has come
  [[nodiscard]] TimeNs next_rest() const noexcept { return free_.size() > kept_max ? made_at_ + rest_ns : never; }
  void clear() noexcept { free_.clear(); }

 private:
  Registrar& registrar_;
  std::vector<std::unique_ptr<Block>> free_;  // the newest last
  TimeNs made_at_ = 0;                        // when a block had to be made
};

// The blocks of one agent's end. Space is taken and released in the same order, that of posting.
class BounceBuffer {
 public:
  static constexpr std::size_t blocks_max = 16;

  struct Piece {
    std::byte* memory;
    std::uint64_t key;
  };

  explicit BounceBuffer(BouncePool& pool) : pool_(pool) {}
  // `length` contiguous bytes, a block's at most; none if there is no room now.
  [[nodiscard]] std::optional<Piece> take(std::uint64_t length, TimeNs now);
  [[nodiscard]] std::uint64_t position() const noexcept { return head_; }
  void give_back_to(std::uint64_t position);
  // The reason if the last take found no memory for a first block, so that no completion will make room.
  [[nodiscard]] const Failure* refused() const noexcept { return refused_ ? &*refused_ : nullptr; }
  [[nodiscard]] std::size_t blocks() const noexcept { return blocks_.size(); }
  // The card stopped in the middle of requests: their blocks are released, and never used again.
  void drop() noexcept;

 private:
  static constexpr std::uint64_t block_bytes = BouncePool::block_bytes;

  BouncePool& pool_;
  std::deque<std::unique_ptr<BouncePool::Block>> blocks_;
  std::uint64_t first_ = 0;  // number of the oldest block, counted since the beginning
  std::uint64_t head_ = 0;   // position of the next byte; positions only grow, and block N begins at N * block_bytes
  std::optional<Failure> refused_;
};

}  // namespace offpath::link
