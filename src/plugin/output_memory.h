// Memory of a function's result, from the worker to the agent without a copy.
//
// The worker makes the memfd and seals it against shrinking, growing and writing before it sends it. The other way, a
// memfd of the agent's that is lent to the worker, would not do: sealing it against writing fails as long as the worker
// has it mapped, and only the worker can end that. As it is the kernel does not grant the seal before the last writable
// mapping is gone, and nobody can take it back. So what the agent finds by F_GET_SEALS and fstat stays true: it can map
// every byte without being killed by SIGBUS, and what it checks (an Arrow message) is what it stores and what readers
// see.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/status.h"

namespace offpath::plugin {

// A result that is being written, in the worker. A page behind it is not accessible: writing beyond the end of the last
// page ends the worker, not its neighbour's memory.
class OutputMemory {
 public:
  [[nodiscard]] static Result<OutputMemory> make(std::uint64_t bytes);
  OutputMemory(OutputMemory&& other) noexcept;
  OutputMemory& operator=(OutputMemory&&) = delete;
  ~OutputMemory() { unmap(); }

  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  void shrink(std::uint64_t bytes) noexcept { bytes_ = bytes < bytes_ ? bytes : bytes_; }

  // Unmaps, gives it exactly bytes() and seals it.
  [[nodiscard]] Result<Fd> seal();

 private:
  OutputMemory() = default;
  void unmap() noexcept;

  Fd fd_;
  void* data_ = nullptr;
  std::uint64_t bytes_ = 0, mapped_ = 0;
};

// In the agent: is this an ordinary memfd of exactly so many bytes which nobody can change any more? `what` names it.
[[nodiscard]] Status check_output(int fd, std::uint64_t bytes, std::string_view what);

// An empty memfd that can be sealed, never executable where the kernel knows that.
[[nodiscard]] Result<Fd> memory_file(const char* name);

// A memfd with these bytes, sealed as outputs are.
[[nodiscard]] Result<Fd> sealed_copy(const char* name, Bytes bytes);

}  // namespace offpath::plugin
