// The clock of a program's waits: the monotonic one, or virtual time in a simulation.
#pragma once

#include "base/clock.h"

namespace offpath::channel {

class ChannelClock {
 public:
  using Read = TimeNs (*)(void* context);
  // read: null for the monotonic clock.
  ChannelClock(Read read, void* context) noexcept : read_(read), context_(context) {}
  [[nodiscard]] TimeNs now() const { return read_ != nullptr ? read_(context_) : monotonic_ns(); }
  // Then time passes only in sleeps: waits do not spin.
  [[nodiscard]] bool is_virtual() const noexcept { return read_ != nullptr; }

 private:
  Read read_;
  void* context_;
};

}  // namespace offpath::channel
