// A bounded mailbox: any thread posts, one loop takes. Cores hand state to each other with it.
//
// A ring of cells, each with a sequence number that says whether it is free for a position (D. Vyukov's bounded queue).
// Posting is one compare-and-swap and, only if the loop sleeps, one system call. Values of one thread arrive in order.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "loop/loop.h"

namespace offpath::loop {

template <class T>
class Mailbox final : public Poller {
 public:
  static constexpr std::size_t taken_in_one_poll_max = 256;

  // `taker` is called on the loop's thread. The mailbox has to be added to the loop as a poller, and outlive all
  // posters. `capacity` is rounded up to a power of two.
  Mailbox(Loop& loop, std::size_t capacity, std::function<void(T, TimeNs now)> taker)
      : waker_(loop.waker()),
        taker_(std::move(taker)),
        mask_(std::bit_ceil(std::max<std::size_t>(capacity, 2)) - 1),
        cells_(std::make_unique<Cell[]>(mask_ + 1)) {
    for (std::size_t i = 0; i <= mask_; ++i) cells_[i].turn.store(i, std::memory_order_relaxed);
  }

  [[nodiscard]] std::size_t capacity() const noexcept { return mask_ + 1; }

  // False, and `value` untouched, if the mailbox is full.
  [[nodiscard]] bool post(T&& value) {
    std::uint64_t position = tail_.load(std::memory_order_relaxed);
    Cell* cell = nullptr;
    for (;;) {
      cell = &cells_[position & mask_];
      auto ahead = static_cast<std::int64_t>(cell->turn.load(std::memory_order_acquire) - position);
      if (ahead == 0) {
        if (tail_.compare_exchange_weak(position, position + 1, std::memory_order_relaxed)) break;
      } else if (ahead < 0) {
        return false;
      } else {
        position = tail_.load(std::memory_order_relaxed);
      }
    }
    cell->value.emplace(std::move(value));
    cell->turn.store(position + 1, std::memory_order_release);
    waker_.wake();
    return true;
  }

  // ---- the loop's thread
  bool poll(TimeNs now) override {
    std::size_t taken = 0;
    for (; taken < taken_in_one_poll_max && !empty(); ++taken) {
      Cell& cell = cells_[head_ & mask_];
      T value = std::move(*cell.value);
      cell.value.reset();
      cell.turn.store(head_ + mask_ + 1, std::memory_order_release);
      ++head_;
      taker_(std::move(value), now);
    }
    return taken > 0;
  }
  bool fall_asleep(TimeNs) override { return empty(); }

 private:
  struct alignas(64) Cell {
    std::atomic<std::uint64_t> turn;  // position: free for it; position + 1: holds it
    std::optional<T> value;
  };
  [[nodiscard]] bool empty() const noexcept {
    return cells_[head_ & mask_].turn.load(std::memory_order_acquire) != head_ + 1;
  }

  Waker& waker_;
  std::function<void(T, TimeNs)> taker_;
  std::size_t mask_;
  std::unique_ptr<Cell[]> cells_;
  std::uint64_t head_ = 0;
  alignas(64) std::atomic<std::uint64_t> tail_{0};
};

}  // namespace offpath::loop
