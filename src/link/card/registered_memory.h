// The agent's own memory for access by its card: bounce buffers for small pieces, registrations for large ones.
//
// A card (verbs_link, doca_link) moves bytes only from and to registered memory, which pins its pages. The agent's
// sources and targets are of three kinds:
//
//   frames               lasting, and in a list (lasting_memory.h): registered once for all channels on a device
//                        (card_device.h), in windows, as long as they last
//   other large memory   registered for the operation, and released with it
//   other small memory   (rings, lines, on stacks and in vectors) copied through a bounce buffer (bounce_buffer.h)
//
// Nothing is cached by address: memory may have been unmapped and mapped again at the same place, and the card would
// still write to the old pages. Memory that cannot be registered goes through the bounce buffer as well, in steps.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "link/lasting_memory.h"

namespace offpath::link {

// How much memory the kernel lets this process lock, for errors.
[[nodiscard]] std::string locked_memory_limit();

// Registered memory, accessible to a card during this object's life. Each kind of card derives its own.
class Registration {
 public:
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  virtual ~Registration() = default;
  [[nodiscard]] std::uint64_t key() const noexcept { return key_; }  // names it in requests

 protected:
  explicit Registration(std::uint64_t key) noexcept : key_(key) {}

 private:
  std::uint64_t key_;
};

class Registrar {
 public:
  // `written`: the card also writes to it.
  [[nodiscard]] virtual Result<std::unique_ptr<Registration>> register_own(const void* base, std::uint64_t length,
                                                                           bool written) = 0;

 protected:
  ~Registrar() = default;
};

// Registered windows of lasting memory, for all operations of a device. Windows are so small that pinning one does not
// delay the agent's loop.
class KeptRegions {
 public:
  static constexpr std::uint64_t window_bytes = 4 << 20;
  static constexpr std::size_t windows_max = 16384;  // of a device; further memory is registered for each operation

  explicit KeptRegions(std::shared_ptr<const LastingMemory> lasting) : lasting_(std::move(lasting)) {}
  struct Key {
    std::uint64_t key;
    std::uint64_t length;  // from the requested memory to the end of its window
  };
  // None: the memory is not in the list, or cannot be registered.
  [[nodiscard]] std::optional<Key> key_of(Registrar& registrar, const std::byte* memory);
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }  // any thread
  void clear() noexcept {
    windows_.clear();
    newest_ = {};
    bytes_ = 0;
  }

 private:
  struct Window {
    std::unique_ptr<Registration> region;
    std::uint64_t length;
  };
  void forget_removed();

  std::shared_ptr<const LastingMemory> lasting_;  // null: no memory lasts
  // By number of the memory and of the window.
  std::map<std::pair<std::uint64_t, std::uint64_t>, Window> windows_;
  std::atomic<std::uint64_t> bytes_{0};  // of all windows
  LastingMemory::Stretch newest_;        // result of the previous look-up
  std::uint64_t removals_ = 0;
};

// Memory registered for one operation.
class OperationRegions {
 public:
  static constexpr std::uint64_t bytes_min = 64 * 1024;  // below this size copying is cheaper than pinning

  struct Piece {
    const std::byte* memory;
    std::uint64_t length;
  };
  // Registers whole pages of the contiguous stretches of the pieces, if that pays.
  void cover(Registrar& registrar, std::span<Piece> pieces, bool written);
  void clear() noexcept { stretches_.clear(); }
  // The key for a covered piece; none: use the bounce buffer.
  [[nodiscard]] std::optional<std::uint64_t> key_of(const std::byte* memory) const noexcept;

 private:
  struct Stretch {
    std::uint64_t begin, end;
    std::unique_ptr<Registration> region;
  };
  std::vector<Stretch> stretches_;  // by address
};

}  // namespace offpath::link
