// Copies memory of this process that may have been unmapped: a program can free what it announced, and that must fail
// one transfer, not raise SIGSEGV. The kernel copies (write(2) into a memfd) and returns EFAULT.
#pragma once

#include <span>

#include "base/bytes.h"
#include "base/status.h"
#include "link/link.h"

namespace offpath::link {

class GuardedCopy {
 public:
  static constexpr std::size_t bytes_max = 256 * 1024;

  [[nodiscard]] static Result<GuardedCopy> create();
  // The first bytes of [from, from + length), at most bytes_max; valid until the next call. Error::unreadable.
  [[nodiscard]] Result<Bytes> copy(const std::byte* from, std::size_t length);
  // The index of the first byte that cannot be read; `length` if all can be.
  [[nodiscard]] std::uint64_t readable_bytes(const std::byte* from, std::uint64_t length);

 private:
  explicit GuardedCopy(SegmentMemory memory) noexcept : memory_(std::move(memory)) {}
  SegmentMemory memory_;
};

}  // namespace offpath::link
