// Descriptors of this library: programs close whatever they find open, before they start others above all, and do not
// mean these.
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
  // The next one from there on; `numbers`: there is none.
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

// The same at a number out of the way of programs that count on small ones, and put what they like there: in the upper
// half of what there may be. It closes with exec(). -1: no number is free there, and `fd` is as it was.
[[nodiscard]] int move_up(int fd) noexcept;
// Where it is, if there is no room.
[[nodiscard]] inline int out_of_the_way(int fd) noexcept {
  const int moved = move_up(fd);
  return moved < 0 ? fd : moved;
}

}  // namespace offpath::sockets
