// A word on which threads of several processes sleep: a sleep flag (base/sleep_flag.h has the rule and its proof) that
// is the place of the sleep as well. Its lowest bit says that somebody sleeps or is about to, the next one that a wake
// has begun and not ended, and the rest counts wakes.
//
//   a thread that sleeps                         a thread or process that publishes
//   S  before = word |= asleep                   P  store what it publishes
//   F  full fence                                G  full fence
//   L  look at everything once more              R  read the word
//      nothing there: sleep while word == before    somebody sleeps: count a wake that has begun, wake those that
//                                                   sleep on the count before, and note that the wake has ended
//
// A wake changes the word before it ends sleeps, so a thread that is between its look and its sleep does not begin to
// sleep. A process that is killed in between leaves a wake that has not ended: the next one that publishes wakes the
// sleepers of all counts before, and the agent does so when it learns that the process has ended. Where two publish at
// once, one of the wakes may be in vain.
//
// Nobody is held up by others that change the word at the same time: after a few tries a wake does with additions.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>

#include "base/sleep_flag.h"

namespace offpath::channel {

class SleepWord {
 public:
  using Value = std::uint32_t;
  static_assert(std::atomic_ref<Value>::is_always_lock_free);

  // Aligned to 4 bytes, in memory that may be shared.
  explicit SleepWord(std::byte* word) noexcept : at_(reinterpret_cast<Value*>(word)) {}

  // ---- the side that sleeps

  // Call it before the last look.
  [[nodiscard]] Value begin() const noexcept {
    const Value before = word().fetch_or(asleep, std::memory_order_relaxed) | asleep;
    fence_before_look();
    return before;
  }
  // `until`: by the monotonic clock; null: no limit. Returns 0 or an errno: EAGAIN if there was a wake since begin().
  // Without a limit it restarts after a handler with SA_RESTART, as the kernel's calls do; with one, never.
  [[nodiscard]] int sleep(Value before, const timespec* until) const noexcept {
    return ::syscall(SYS_futex, at_, FUTEX_WAIT_BITSET, before, until, nullptr, bit_of(before)) == 0 ? 0 : errno;
  }

  // ---- the side that publishes, after fence_before_look()

  // A wake that has begun; wake() ends it. None: nobody sleeps.
  struct Taken {
    Value after;         // the word since then
    std::uint32_t bits;  // of the values on which threads sleep
  };
  [[nodiscard]] std::optional<Taken> take() const noexcept {
    Value found = word().load(std::memory_order_relaxed);
    for (int tries = 0; tries < tries_max; ++tries) {
      if ((found & (asleep | waking)) == 0) return std::nullopt;
      // Another one wakes them now, or has died meanwhile.
      if ((found & asleep) == 0) return Taken{found, ~bit_of(found)};
      const Value after = ((found & ~asleep) | waking) + one_wake;
      if (word().compare_exchange_weak(found, after, std::memory_order_release, std::memory_order_relaxed))
        return Taken{after, (found & waking) != 0 ? ~bit_of(after) : bit_of(found)};
    }
    word().fetch_or(waking, std::memory_order_relaxed);
    const Value after = word().fetch_add(one_wake, std::memory_order_release) + one_wake;
    return Taken{after, ~bit_of(after)};  // the next wake may be in vain
  }
  // Threads that have begun to sleep since take() are not woken. True: there may be more than `most` sleepers; wake()
  // has to follow again.
  bool wake(const Taken& taken, int most = INT_MAX) const noexcept {
    const int before = errno;
    const long woken = ::syscall(SYS_futex, at_, FUTEX_WAKE_BITSET, most, nullptr, nullptr, taken.bits);
    errno = before;
    if (woken >= most) return true;
    Value found = word().load(std::memory_order_relaxed);
    for (int tries = 0; tries < tries_max; ++tries) {
      if ((found & waking) == 0 || found / one_wake != taken.after / one_wake) break;
      if (word().compare_exchange_weak(found, found & ~waking, std::memory_order_relaxed)) break;
    }
    return false;
  }
  // Whether a wake has begun and not ended.
  [[nodiscard]] bool is_waking() const noexcept { return (word().load(std::memory_order_relaxed) & waking) != 0; }

 private:
  static constexpr Value asleep = 1, waking = 2, one_wake = 4;
  static constexpr int tries_max = 16;
  // A bit for each of 32 counts in a row.
  [[nodiscard]] static std::uint32_t bit_of(Value value) noexcept { return 1u << value / one_wake % 32; }
  [[nodiscard]] std::atomic_ref<Value> word() const noexcept { return std::atomic_ref<Value>(*at_); }
  Value* at_;
};

}  // namespace offpath::channel
