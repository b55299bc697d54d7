// Memory of a function's result, passed from the worker to the agent without a copy.
//
// The worker makes the memfd and seals it against shrinking, growing and writing before it sends it. Memory lent by the
// agent could not be sealed against writing while the worker has it mapped, and only the worker can unmap it. The
// kernel grants the seal only after the last writable mapping is gone, and never takes it back. So the results of
// F_GET_SEALS and fstat stay true: the agent can map every byte without SIGBUS, and the bytes that it checks (an Arrow
// message) are the bytes that it stores and that readers see.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/status.h"

namespace offpath::plugin {

// A result under construction, in the worker. The page after it is inaccessible: writing beyond the last page ends the
// worker instead of damaging other memory.
class OutputMemory {
 public:
  [[nodiscard]] static Result<OutputMemory> make(std::uint64_t bytes);
  OutputMemory(OutputMemory&& other) noexcept;
  OutputMemory& operator=(OutputMemory&&) = delete;
  ~OutputMemory() { unmap(); }

  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  void shrink(std::uint64_t bytes) noexcept { bytes_ = bytes < bytes_ ? bytes : bytes_; }

  // Unmaps it, sets its size to bytes() and seals it.
  [[nodiscard]] Result<Fd> seal();

 private:
  OutputMemory() = default;
  void unmap() noexcept;

  Fd fd_;
  void* data_ = nullptr;
  std::uint64_t bytes_ = 0, mapped_ = 0;
};

// Called by the agent: checks that this is an ordinary memfd of exactly that size which no process can change any more.
// `what` names it in errors.
[[nodiscard]] Status check_output(int fd, std::uint64_t bytes, std::string_view what);

}  // namespace offpath::plugin
