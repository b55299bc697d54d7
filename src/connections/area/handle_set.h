// A set of handles in shared memory: a bit for each, and above them two levels that have a bit for each word of the
// level below. To add, remove or find one costs the same for any number of handles. All calls are under the area's
// lock. A process that dies within a call leaves at worst an upper bit that stands for nothing.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <utility>

#include "wire/areas/tcp_area.h"

namespace offpath::channel {

class HandleSet {
 public:
  using Handle = std::uint32_t;

  [[nodiscard]] static constexpr std::uint64_t bytes(std::uint32_t flows) noexcept {
    std::uint64_t words = 0, level = flows;
    for (std::size_t i = 0; i < levels; ++i) words += level = words_of(level);
    return words * sizeof(std::uint64_t);
  }

  // The memory is zeroed at first.
  HandleSet(std::byte* memory, std::uint32_t flows) noexcept {
    auto* at = reinterpret_cast<std::uint64_t*>(memory);
    std::uint64_t level = flows;
    for (std::size_t i = 0; i < levels; ++i) {
      words_[i] = at;
      count_[i] = level = words_of(level);
      at += level;
    }
  }

  [[nodiscard]] bool has(Handle handle) const noexcept { return (words_[0][handle / 64] >> handle % 64 & 1) != 0; }
  void add(Handle handle) noexcept {
    if (has(handle)) return;
    for (std::size_t i = levels; i-- > 0;) {
      const std::uint64_t at = handle >> 6 * i;
      words_[i][at / 64] |= 1ull << at % 64;
    }
  }
  void remove(Handle handle) noexcept {
    std::uint64_t at = handle;
    for (std::size_t i = 0; i < levels; ++i, at /= 64)
      if ((words_[i][at / 64] &= ~(1ull << at % 64)) != 0) return;
  }
  [[nodiscard]] bool empty() noexcept { return !next(0); }
  // The first one from `from` on.
  [[nodiscard]] std::optional<Handle> next(Handle from) noexcept {
    std::uint64_t at = from;
    std::size_t level = 0;
    while (level < levels) {
      const std::uint64_t left = at / 64 < count_[level] ? words_[level][at / 64] >> at % 64 : 0;
      if (left == 0 && level + 1 == levels && at / 64 + 1 < count_[level]) {
        at = (at / 64 + 1) * 64;
      } else if (left == 0) {
        at = at / 64 + 1;
        ++level;
      } else if (at += static_cast<std::uint64_t>(std::countr_zero(left)); level == 0) {
        return static_cast<Handle>(at);
      } else if (words_[level - 1][at] == 0) {
        words_[level][at / 64] &= ~(1ull << at % 64);  // of a process that died
      } else {
        at *= 64;
        --level;
      }
    }
    return std::nullopt;
  }

 private:
  static constexpr std::size_t levels = 3;
  static_assert(wire::tcp_flows_max <= 1u << 6 * (levels + 1));
  [[nodiscard]] static constexpr std::uint64_t words_of(std::uint64_t bits) noexcept { return (bits + 63) / 64; }

  std::array<std::uint64_t*, levels> words_{};
  std::array<std::uint64_t, levels> count_{};
};

// A pass over a set, from the handle at which the last pass has stopped: each member once, and members may be removed
// meanwhile. `from` lies in shared memory, so a pass continues where another process has stopped.
class HandlePass {
 public:
  using Handle = HandleSet::Handle;
  HandlePass(HandleSet& set, Handle& from) noexcept : set_(&set), from_(&from), begun_(from) {}

  // The next member, or none when the pass has ended. The next pass begins behind it.
  [[nodiscard]] std::optional<Handle> next() noexcept {
    auto handle = set_->next(*from_);
    if (!handle && !std::exchange(wrapped_, true)) handle = set_->next(0);
    if (!handle || (wrapped_ && *handle >= begun_)) return std::nullopt;
    *from_ = *handle + 1;
    return handle;
  }

 private:
  HandleSet* set_;
  Handle* from_;
  Handle begun_;
  bool wrapped_ = false;
};

}  // namespace offpath::channel
