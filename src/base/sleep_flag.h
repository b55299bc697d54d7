// A flag by which one side of shared memory sleeps and loses no wake, without a system call for a side that is awake.
//
//   the side that sleeps                        the side that publishes
//   S  flag.store(1)                            P  store what it publishes
//   F  full fence                               G  full fence
//   L  look at everything once more             R  read the flag
//      nothing there: sleep on a descriptor        set: write to the descriptor, and clear the flag before
//                                                  where it may: then the next publisher makes no system call
//
// Proof. All sequentially consistent fences have one total order ([atomics.order]), so either F comes before G, or G
// before F. If F comes before G, R reads what S stored or a later store to the flag: the publisher sees the sleeper. If
// G comes before F, L reads what P stored or a later store: the sleeper sees what was published. So no execution
// exists in which both miss each other, although each stores first and looks second (the store-buffering test, which
// processors and compilers fail without the two fences).
//
// A later store to the flag clears it, and two sides do that. The sleeper does when it is awake, and it looks at
// everything afterwards. A publisher does and then writes to the descriptor. A clear of a publisher that comes late, in
// the sleeper's next sleep, is followed by the same write, so that sleep ends early and none lasts too long. The
// descriptor has to remember a write that comes before the sleep (eventfd, socket).
//
// The word may lie in memory that processes share, because its atomic operations are lock-free and so work on the
// memory itself. A process that breaks the rule there loses or repeats wakes and can do no other harm.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>

namespace offpath {

// Between a store and a look at the other side's stores: F or G above. One fence serves any number of looks.
inline void fence_before_look() noexcept { std::atomic_thread_fence(std::memory_order_seq_cst); }

class SleepFlag {
 public:
  static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);

  explicit SleepFlag(std::uint64_t& word) noexcept : word_(word) {}
  // A word of shared memory, aligned to 8 bytes.
  explicit SleepFlag(std::byte* word) noexcept : SleepFlag(*reinterpret_cast<std::uint64_t*>(word)) {}

  // ---- the side that sleeps

  // True if it may sleep; false, and the flag is cleared, if `look` found work. A value above 1 names a further reason
  // to wake.
  template <std::predicate Look>
  [[nodiscard]] bool fall_asleep(Look&& look, std::uint64_t value = 1) const noexcept(noexcept(look())) {
    set(value);
    if (!look()) return true;
    clear();
    return false;
  }
  // The first half, for a side that looks elsewhere: clear() follows, whether it slept or not.
  void set(std::uint64_t value = 1) const noexcept {
    word_.store(value, std::memory_order_release);
    fence_before_look();
  }
  void clear() const noexcept { word_.store(0, std::memory_order_release); }

  // ---- the side that publishes, after fence_before_look()

  [[nodiscard]] std::uint64_t value() const noexcept { return word_.load(std::memory_order_acquire); }
  // True for one of several threads that publish at the same time: that thread wakes the sleeper.
  [[nodiscard]] bool take() const noexcept { return value() != 0 && word_.exchange(0, std::memory_order_acq_rel) != 0; }

 private:
  std::atomic_ref<std::uint64_t> word_;
};

}  // namespace offpath
