// Descriptors of this library. Programs close every open descriptor, usually before they start another program; these
// are protected from that.
#pragma once

#include <atomic>
#include <cstdint>

namespace offpath::sockets {

class OwnDescriptors {
 public:
  static constexpr int numbers = 1 << 20;

  void add(int fd) noexcept {
    if (static_cast<unsigned>(fd) < numbers) words_[fd / 64].fetch_or(bit(fd), std::memory_order_relaxed);
  }
  void remove(int fd) noexcept {
    if (static_cast<unsigned>(fd) < numbers) words_[fd / 64].fetch_and(~bit(fd), std::memory_order_relaxed);
  }
  [[nodiscard]] bool has(int fd) const noexcept {
    return static_cast<unsigned>(fd) < numbers && (words_[fd / 64].load(std::memory_order_relaxed) & bit(fd)) != 0;
  }
  // The first one from `from` on, or `numbers`.
  [[nodiscard]] unsigned next(unsigned from) const noexcept {
    for (unsigned at = from; at < numbers; at = (at / 64 + 1) * 64)
      if (const std::uint64_t left = words_[at / 64].load(std::memory_order_relaxed) >> at % 64; left != 0)
        return at + static_cast<unsigned>(__builtin_ctzll(left));
    return numbers;
  }

 private:
  [[nodiscard]] static std::uint64_t bit(int fd) noexcept { return 1ull << fd % 64; }
  std::atomic<std::uint64_t> words_[numbers / 64];
};

[[nodiscard]] OwnDescriptors& own_descriptors() noexcept;

// Moves a descriptor to the upper half of the allowed numbers, because programs expect small numbers to be theirs. It
// closes with exec(). -1: no number is free there, and `fd` is unchanged.
[[nodiscard]] int move_up(int fd) noexcept;
// The same, but `fd` stays where it is if there is no room.
[[nodiscard]] inline int out_of_the_way(int fd) noexcept {
  const int moved = move_up(fd);
  return moved < 0 ? fd : moved;
}

}  // namespace offpath::sockets
