// Descriptors of this library. Programs close every open descriptor, usually before they start another program; these
// are protected from that.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/relax.h"

namespace offpath::sockets {

class OwnDescriptors {
 public:
  static constexpr int numbers = 1 << 20;

  // While it is there, only others of the same kind are: either the library makes descriptors, or the program puts its
  // own at numbers that it chose. Otherwise a dup2() of the program's might replace a descriptor that the kernel has
  // just given to the library. It waits a moment only: a signal handler may have interrupted the very thread that the
  // turn belongs to.
  class Turn {
   public:
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() {
      if (taken_) turns_.fetch_sub(kind_, std::memory_order_release);
    }

   private:
    friend class OwnDescriptors;
    Turn(std::atomic<int>& turns, int kind) noexcept : turns_(turns), kind_(kind) {
      for (int i = 0; i < patience && !taken_; ++i) {
        int now = turns.load(std::memory_order_relaxed);
        taken_ = now * kind >= 0 && turns.compare_exchange_weak(now, now + kind, std::memory_order_acquire);
        if (!taken_) relax();
      }
    }
    std::atomic<int>& turns_;
    const int kind_;
    bool taken_ = false;
  };
  [[nodiscard]] Turn library_makes() noexcept { return {turns_, 1}; }
  [[nodiscard]] Turn program_puts() noexcept { return {turns_, -1}; }

  void add(int fd) noexcept {
    if (static_cast<unsigned>(fd) < numbers) words_[fd / 64].fetch_or(bit(fd), std::memory_order_relaxed);
  }
  void remove(int fd) noexcept {
    if (static_cast<unsigned>(fd) < numbers) words_[fd / 64].fetch_and(~bit(fd), std::memory_order_release);
  }
  [[nodiscard]] bool has(int fd) const noexcept {
    return static_cast<unsigned>(fd) < numbers &&
           ((words_[fd / 64].load(std::memory_order_acquire) & bit(fd)) != 0 || is_leaving(fd));
  }

  // Closes it by `close`, and keeps its number until that is done: otherwise a dup2() of the program's might take the
  // number first, and the program's descriptor would be closed.
  template <class Close>
  void give_back(int fd, const Close& close) noexcept {
    if (static_cast<unsigned>(fd) >= numbers) return close(fd);
    closing_.fetch_add(1, std::memory_order_relaxed);
    // Set: another thread has closed it, and is about to say so; the kernel gave the number to this library again.
    while ((leaving_[fd / 64].fetch_or(bit(fd), std::memory_order_acquire) & bit(fd)) != 0) relax();
    remove(fd);
    close(fd);
    leaving_[fd / 64].fetch_and(~bit(fd), std::memory_order_release);
    closing_.fetch_sub(1, std::memory_order_relaxed);
  }
  // Whether the program may have the number: waits a moment for a thread that is closing it. A signal handler may have
  // interrupted that very thread.
  [[nodiscard]] bool lets_go(int fd) const noexcept {
    for (int i = 0; i < patience && has(fd) && is_leaving(fd); ++i) relax();
    return !has(fd);
  }
  // In a child of fork(): descriptors that other threads were closing stay open there.
  void in_child() noexcept {
    turns_ = 0;
    if (closing_.exchange(0, std::memory_order_relaxed) == 0) return;
    for (auto& word : leaving_) word.store(0, std::memory_order_relaxed);
  }
  // The first one from `from` on, or `numbers`.
  [[nodiscard]] unsigned next(unsigned from) const noexcept {
    for (unsigned at = from; at < numbers; at = (at / 64 + 1) * 64)
      if (const std::uint64_t left =
              (words_[at / 64].load(std::memory_order_acquire) | leaving_[at / 64].load(std::memory_order_acquire)) >>
              at % 64;
          left != 0)
        return at + static_cast<unsigned>(__builtin_ctzll(left));
    return numbers;
  }

 private:
  [[nodiscard]] static std::uint64_t bit(int fd) noexcept { return 1ull << fd % 64; }
  [[nodiscard]] bool is_leaving(int fd) const noexcept {
    return static_cast<unsigned>(fd) < numbers && (leaving_[fd / 64].load(std::memory_order_acquire) & bit(fd)) != 0;
  }
  static constexpr int patience = 100'000;  // without a system call, which a filter of the program's might refuse
  std::atomic<std::uint64_t> words_[numbers / 64], leaving_[numbers / 64];
  std::atomic<int> closing_;  // threads that are in give_back()
  std::atomic<int> turns_;    // how many threads make descriptors, or less than 0: how many put them
};

[[nodiscard]] OwnDescriptors& own_descriptors() noexcept;

// Moves a descriptor to the upper half of the allowed numbers, because programs expect small numbers to be theirs. It
// closes with exec(), and is one of the library's own from then on. -1: no number is free there, and `fd` is unchanged.
[[nodiscard]] int move_up(int fd) noexcept;
// The same, but `fd` stays where it is, as the library's own, if there is no room.
[[nodiscard]] int out_of_the_way(int fd) noexcept;

}  // namespace offpath::sockets
