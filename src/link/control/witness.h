// Proof that a pid still names the address space that shook hands. A pid and its pidfd survive an exec, and children
// may hold descriptors, so the proof is in the memory itself. One call of process_vm_readv resolves its address space
// once, for all its vectors. Each call's first vector is the channel's WitnessLine, in which the agent has just stored
// a random value: it is read back only from a process that has the channel's memory mapped where the program said.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>

#include "base/bytes.h"

namespace offpath::link {

class Witness {
 public:
  static constexpr std::size_t bytes = 16;

  // `channel` is the agent's mapping of the channel segment, which outlives this; `there` is its address in the
  // program, as the program claims.
  Witness(MutableBytes channel, std::uint64_t there) noexcept;

  void renew();  // before each call; earlier calls prove nothing about the next
  [[nodiscard]] iovec to() noexcept { return {seen_.data(), bytes}; }
  [[nodiscard]] iovec from() const noexcept { return {reinterpret_cast<void*>(there_), bytes}; }
  [[nodiscard]] bool seen() const noexcept { return seen_ == stored_; }  // for a call that returned `bytes` or more

 private:
  using Value = std::array<std::uint64_t, 2>;

  Value* here_;
  std::uint64_t there_;
  Value stored_{}, seen_{};
  std::array<Value, 256> fresh_;  // random numbers, fetched from the kernel in batches
  std::size_t used_ = 256;
};
static_assert(sizeof(std::array<std::uint64_t, 2>) == Witness::bytes);

}  // namespace offpath::link
