// Whether a thread that is about to sleep should rather return: an interpreter asks whether a signal has come.
#pragma once

#include "base/status.h"

namespace offpath::channel {

struct Interruption {
  int (*is_due)(void* user) = nullptr;  // called before each sleep of the thread, without a lock held
  void* user = nullptr;
};

// This thread's own. A wait that is_due ends returns Error::cancelled; what it waited for goes on.
[[nodiscard]] Interruption& interruption() noexcept;

template <class Outcome>
[[nodiscard]] bool is_interrupted(const Outcome& waited) noexcept {
  return !waited && waited.error().code == Error::cancelled;
}

}  // namespace offpath::channel
