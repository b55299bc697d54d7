// The agent's own memory as its card may touch it: a bounce buffer for small pieces, regions for large ones.
//
// A card (verbs_link, doca_link) moves bytes only from and to memory that was registered, which pins its pages. What
// the agent reads to and writes from is of three kinds:
//
//   frames      last and are on a list (lasting_memory.h): registered once, by windows, and kept while they last
//   other large memory            registered for the operation, given free with it
//   other small memory            (rings, lines, on stacks and in vectors) through a bounce buffer that is registered
//                                 once
//
// Nothing is remembered by address: memory may have been unmapped and mapped anew at the same place, and the card would
// go on writing to the old pages. What cannot be registered goes through the bounce buffer as well, in steps.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "link/lasting_memory.h"
#include "link/link.h"

namespace offpath::link {

// Memory that a card may touch for as long as this lives. Each kind of card derives its own.
class Registration {
 public:
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  virtual ~Registration() = default;
  [[nodiscard]] std::uint64_t key() const noexcept { return key_; }  // by which requests name it

 protected:
  explicit Registration(std::uint64_t key) noexcept : key_(key) {}

 private:
  std::uint64_t key_;
};

class Registrar {
 public:
  // `written`: the card writes there as well.
  [[nodiscard]] virtual Result<std::unique_ptr<Registration>> register_own(const void* base, std::uint64_t length,
                                                                           bool written) = 0;

 protected:
  ~Registrar() = default;
};

// Taken and given back in the same order: that of posting.
class BounceRing {
 public:
  static constexpr std::uint64_t bytes = 1 << 20;

  [[nodiscard]] static Result<BounceRing> create(Registrar& registrar);
  // `length` bytes side by side, or null where there is no room now.
  [[nodiscard]] std::byte* take(std::uint64_t length) noexcept;
  [[nodiscard]] std::uint64_t position() const noexcept { return head_; }
  void give_back_to(std::uint64_t position) noexcept { tail_ = position; }
  [[nodiscard]] std::uint64_t key() const noexcept { return region_->key(); }

 private:
  BounceRing(SegmentMemory memory, std::unique_ptr<Registration> region) noexcept
      : memory_(std::move(memory)), region_(std::move(region)) {}
  SegmentMemory memory_;
  std::unique_ptr<Registration> region_;
  std::uint64_t head_ = 0, tail_ = 0;  // positions, not offsets: they only grow
};

// Windows of memory that lasts, kept from one operation to the next. A window is small enough that pinning it does not
// hold up the agent's loop.
class KeptRegions {
 public:
  static constexpr std::uint64_t window_bytes = 4 << 20;
  static constexpr std::size_t windows_max = 1024;  // of one channel; what is beyond is registered for the operation

  explicit KeptRegions(std::shared_ptr<const LastingMemory> lasting) : lasting_(std::move(lasting)) {}
  struct Key {
    std::uint64_t key;
    std::uint64_t length;  // from the memory asked for to the end of its window
  };
  // None: this memory is not on the list, or cannot be registered.
  [[nodiscard]] std::optional<Key> key_of(Registrar& registrar, const std::byte* memory);
  void clear() noexcept {
    windows_.clear();
    newest_ = {};
  }

 private:
  void forget_removed();

  std::shared_ptr<const LastingMemory> lasting_;  // null: nothing lasts
  // By number of the memory and of the window.
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::unique_ptr<Registration>> windows_;
  LastingMemory::Stretch newest_;  // the memory asked about before
  std::uint64_t removals_ = 0;
};

// What one operation has registered.
class OperationRegions {
 public:
  static constexpr std::uint64_t bytes_min = 64 * 1024;  // below this copying is cheaper than pinning

  struct Piece {
    const std::byte* memory;
    std::uint64_t length;
  };
  // Registers whole pages of the stretches of memory that the pieces make up, those that are worth it.
  void cover(Registrar& registrar, std::span<Piece> pieces, bool written);
  void clear() noexcept { stretches_.clear(); }
  // The key for a piece that was covered; none: bounce it.
  [[nodiscard]] std::optional<std::uint64_t> key_of(const std::byte* memory) const noexcept;

 private:
  struct Stretch {
    std::uint64_t begin, end;
    std::unique_ptr<Registration> region;
  };
  std::vector<Stretch> stretches_;  // by address
};

}  // namespace offpath::link
