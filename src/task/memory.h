// The agent's memory for tasks, which workers keep mapped from task to task. A session reuses it, because the first
// touch of a page costs as much as moving it.
//
//   Memory         inputs: pulled into it, or made by a function that left it here. Sealed; workers read it
//   TargetMemory   an output on its way to the program: a worker writes it, the agent pushes from it. Late writes of
//                  a worker go to that program alone, so it need not be sealed against writing
#pragma once

#include <cstdint>
#include <memory>

#include "service/buffer_cache.h"

namespace offpath::task {

struct Memory {
  std::uint64_t number = 0;  // for workers
  service::Buffer buffer;    // pulled
  Fd made;                   // or made by a function
  std::uint64_t bytes = 0;
  enum class State : std::uint8_t { filling, filled, failed } state = State::filling;
  Failure failure;  // the reason if it has failed

  [[nodiscard]] int share() const noexcept { return made ? made.get() : buffer.share(); }  // for a worker
  [[nodiscard]] std::uint64_t capacity() const noexcept { return made ? bytes : buffer.capacity(); }
};
using MemoryPtr = std::shared_ptr<Memory>;

class TargetMemory {
 public:
  [[nodiscard]] static Result<std::shared_ptr<TargetMemory>> make(std::uint64_t number, std::uint64_t bytes);
  ~TargetMemory();
  TargetMemory(const TargetMemory&) = delete;
  TargetMemory& operator=(const TargetMemory&) = delete;

  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  [[nodiscard]] std::uint64_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] const std::byte* data() const noexcept { return data_; }

 private:
  TargetMemory() = default;
  std::uint64_t number_ = 0, capacity_ = 0;
  Fd fd_;
  const std::byte* data_ = nullptr;
};
using TargetPtr = std::shared_ptr<TargetMemory>;

}  // namespace offpath::task
