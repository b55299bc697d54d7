// Lets a thread that is about to sleep return instead: an interpreter uses it to check for signals.
#pragma once

#include "base/status.h"

namespace offpath::channel {

struct Interruption {
  int (*is_due)(void* user) = nullptr;  // called before each sleep of the thread, without a lock held
  void* user = nullptr;
};

// The calling thread's own. A wait that is_due interrupts returns Error::cancelled; its operation continues.
[[nodiscard]] Interruption& interruption() noexcept;

template <class Outcome>
[[nodiscard]] bool is_interrupted(const Outcome& waited) noexcept {
  return !waited && waited.error().code == Error::cancelled;
}

}  // namespace offpath::channel
