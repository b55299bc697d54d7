// Memory that batches are copied to when their arrays may not stay leased (OFP_SEND_SNAPSHOT) or cannot be read
// where they lie (staged links).
//
// Segments, each used as a ring: a batch takes one block, blocks are free again in the order they were taken, when
// `pulled` of their stream has reached their ticket. Segments are added up to a limit and kept.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "channel/host_end.h"
#include "wire/region.h"

namespace offpath::host {

class Staging {
 public:
  // One ring of blocks in one segment. Offsets are bytes from its beginning.
  class Ring {
   public:
    explicit Ring(std::uint64_t size) noexcept : size_(size) {}
    struct Block {
      std::uint64_t begin, end;
      std::uint64_t number;  // of all blocks of the staging memory
      bool posted = false;
      bool given_up = false;
      std::uint32_t stream = 0;  // of a posted one
      std::uint64_t ticket = 0;
    };
    [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
    // True and `offset` set if there is room for `length` bytes.
    [[nodiscard]] bool take(std::uint64_t length, std::uint64_t number, std::uint64_t& offset);
    [[nodiscard]] Block* find(std::uint64_t number) noexcept;
    std::deque<Block> blocks;

   private:
    std::uint64_t size_;
  };

  struct Place {
    wire::RegionId region = 0;
    std::uint64_t offset = 0;
    std::byte* data = nullptr;
    std::uint64_t length = 0;
    std::uint64_t number = 0;
  };

  Staging(channel::HostEnd& end, std::uint64_t bytes_max) noexcept : end_(end), bytes_max_(bytes_max) {}

  // Every place is committed or given up.
  [[nodiscard]] Result<Place> reserve(std::uint64_t length, TimeNs deadline);
  void commit(const Place& place, std::uint32_t stream, std::uint64_t ticket);
  void give_up(const Place& place);
  // The stream is closed: its line starts again, and nothing of it is in use.
  void forget(std::uint32_t stream);

  [[nodiscard]] std::uint64_t bytes_held() const;
  [[nodiscard]] std::uint64_t bytes_max() const noexcept { return bytes_max_; }

 private:
  struct Slab {
    wire::RegionId region;
    MutableBytes memory;
    Ring ring;
  };
  using Lock = std::unique_lock<std::mutex>;

  void reclaim();
  [[nodiscard]] bool take(std::uint64_t length, Place& place);
  [[nodiscard]] Status grow(std::uint64_t length);
  [[nodiscard]] Status wait_for_room(Lock& lock, std::uint64_t length, TimeNs deadline);
  [[nodiscard]] Slab* slab_of(const Place& place) noexcept;

  channel::HostEnd& end_;
  std::uint64_t bytes_max_;
  mutable std::mutex mutex_;  // taken before the channel's lock
  std::vector<std::unique_ptr<Slab>> slabs_;
  std::uint64_t held_ = 0;
  std::uint64_t blocks_taken_ = 0;
};

// Staging memory of one send: given up, unless it is committed. A send reserves it once, because a second reservation
// might wait for the first.
class StagedBytes {
 public:
  static constexpr std::uint64_t alignment = 64;
  explicit StagedBytes(Staging& staging) noexcept : staging_(staging) {}
  StagedBytes(const StagedBytes&) = delete;
  StagedBytes& operator=(const StagedBytes&) = delete;
  ~StagedBytes() {
    if (reserved_) staging_.give_up(place_);
  }
  [[nodiscard]] Status reserve(std::uint64_t length, TimeNs deadline) {
    OFP_ASSERT(!reserved_);
    OFP_ASSIGN(place_, staging_.reserve(length, deadline));
    reserved_ = true;
    return {};
  }
  // The next `length` bytes of what is reserved.
  [[nodiscard]] Staging::Place take(std::uint64_t length) noexcept {
    const std::uint64_t begin = align_up(used_, alignment);
    OFP_ASSERT(begin <= place_.length && length <= place_.length - begin);
    used_ = begin + length;
    return {place_.region, place_.offset + begin, place_.data + begin, length, place_.number};
  }
  [[nodiscard]] bool reserved() const noexcept { return reserved_; }
  [[nodiscard]] bool holds(const void* address) const noexcept {
    return reserved_ && std::less_equal<const void*>()(place_.data, address) &&
           std::less<const void*>()(address, place_.data + place_.length);
  }
  void commit(std::uint32_t stream, std::uint64_t ticket) {
    if (std::exchange(reserved_, false)) staging_.commit(place_, stream, ticket);
  }

 private:
  Staging& staging_;
  Staging::Place place_;
  std::uint64_t used_ = 0;
  bool reserved_ = false;
};

}  // namespace offpath::host
