// Requests that have arrived and wait: for room among the pulls of their channel, or for memory.
#pragma once

#include <cstdint>

#include "mover/operation.h"
#include "mover/options.h"

namespace offpath::mover {

class RequestQueues {
 public:
  explicit RequestQueues(const MoverOptions& options) : options_(options) {}

  // Its memory is there: it is the last of its channel to be pulled.
  void wait_for_pull(Operation& operation);
  // The next one to be pulled; null: none waits.
  Operation* next_pull(Channel& channel);
  // It is the last of its stream to get memory.
  void wait_for_memory(Operation& operation);
  // The stream's first request has got its memory: it waits for its pull.
  Operation& has_memory(Stream& stream);
  void forget(const Channel& channel) noexcept;

  [[nodiscard]] bool lack_memory() const noexcept { return lacking_bytes_ > 0; }
  // Some channel may have so many that no further request should be taken from it.
  [[nodiscard]] bool may_be_full() const noexcept {
    return waiting_bytes_ >= options_.waiting_bytes_max || lacking_bytes_ >= lacking_bytes_max();
  }
  [[nodiscard]] bool are_full(const Channel& channel) const noexcept;

 private:
  [[nodiscard]] std::uint64_t lacking_bytes_max() const noexcept;  // of one channel

  const MoverOptions& options_;
  std::uint64_t waiting_bytes_ = 0, lacking_bytes_ = 0;  // of all channels
};

}  // namespace offpath::mover
