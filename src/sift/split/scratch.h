// Memory for a running job: in huge pages if the kernel provides them, and kept for the thread's next job.
//
// A sort writes to a thousand places in turn and reads a column in any order; with pages of 4 KiB most of these
// accesses miss the TLB. The first touch of a page costs as much as the work on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/status.h"

namespace offpath::sift {

class Scratch {
 public:
  // The memory that a thread keeps between jobs.
  static constexpr std::uint64_t kept_bytes_max = 32ull << 20;

  // The bytes that `next` takes for so many values.
  template <class Value>
  [[nodiscard]] static constexpr std::uint64_t bytes_of(std::size_t count) noexcept {
    return align_up(count * sizeof(Value), line_bytes);
  }
  // Error::no_memory.
  [[nodiscard]] static Result<Scratch> take(std::uint64_t bytes);
  Scratch(Scratch&& other) noexcept : memory_(std::exchange(other.memory_, {})), used_(other.used_) {}
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch();

  // The next `count` values, uninitialised. All calls together take no more than was requested.
  template <class Value>
  [[nodiscard]] std::span<Value> next(std::size_t count) noexcept {
    return {reinterpret_cast<Value*>(next_bytes(bytes_of<Value>(count))), count};
  }

 private:
  static constexpr std::uint64_t line_bytes = 64;

  explicit Scratch(MutableBytes memory) : memory_(memory) {}
  [[nodiscard]] std::byte* next_bytes(std::uint64_t bytes) noexcept;

  MutableBytes memory_;
  std::uint64_t used_ = 0;
};

}  // namespace offpath::sift
