// A list of this process's memory that stays mapped at its place until it is removed from the list: the agent's frames.
// A link whose card needs registered memory (verbs_link, doca_link) registers such memory once and keeps the
// registration under the memory's number. An address may later refer to other memory; a number never does.
//
// Thread-safe: jobs make and drop frames too.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "base/bytes.h"

namespace offpath::link {

class LastingMemory {
 public:
  struct Stretch {
    std::uint64_t number = 0;
    std::byte* begin = nullptr;
    std::uint64_t length = 0;
    [[nodiscard]] bool holds(const std::byte* memory) const noexcept {
      return memory >= begin && memory < begin + length;
    }
  };

  void add(std::byte* begin, std::uint64_t length);
  void remove(std::byte* begin);  // before it is unmapped

  [[nodiscard]] std::optional<Stretch> find(const std::byte* memory) const;
  // Grows with every removal: as long as it is unchanged, every number found before is still valid.
  [[nodiscard]] std::uint64_t removals() const noexcept { return removals_.load(std::memory_order_acquire); }
  [[nodiscard]] bool has(std::uint64_t number) const;

 private:
  mutable std::mutex mutex_;
  std::map<const std::byte*, Stretch> stretches_;  // by their first byte
  std::uint64_t next_number_ = 1;
  std::atomic<std::uint64_t> removals_{0};
};

}  // namespace offpath::link
