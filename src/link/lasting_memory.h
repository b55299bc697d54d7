// Memory of this process that stays mapped where it is until it is taken off this list: the agent's frames. A link
// whose card needs memory registered (verbs_link, doca_link) registers such memory once and keeps that under the
// memory's number. An address may come to mean other memory; a number never does.
//
// Thread-safe: frames are made and dropped by jobs, too.
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
  // Grows with every removal: while it is the same, every number that was found is still there.
  [[nodiscard]] std::uint64_t removals() const noexcept { return removals_.load(std::memory_order_acquire); }
  [[nodiscard]] bool has(std::uint64_t number) const;

 private:
  mutable std::mutex mutex_;
  std::map<const std::byte*, Stretch> stretches_;  // by their begin
  std::uint64_t next_number_ = 1;
  std::atomic<std::uint64_t> removals_{0};
};

}  // namespace offpath::link
