// Memory of the agent's that a task's inputs lie in: pulled into it, or made by a function that left it here. Sealed, so that
// workers map it as it is.
#pragma once

#include <cstdint>
#include <memory>

#include "mover/buffer_cache.h"

namespace offpath::task {

struct Memory {
  mover::Buffer buffer;  // pulled
  Fd made;               // or made by a function
  std::uint64_t bytes = 0;
  enum class State : std::uint8_t { filling, filled, failed } state = State::filling;
  Failure failure;       // when it has failed

  [[nodiscard]] int fd() const noexcept { return made ? made.get() : buffer.fd(); }
};
using MemoryPtr = std::shared_ptr<Memory>;

}  // namespace offpath::task
