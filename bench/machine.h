// The benchmarks' access to the machine: cores, caches, CPU time, memory of a process.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace offpath::bench {

// Size of the largest cache of CPU 0 according to /sys; otherwise 32 MiB.
[[nodiscard]] std::uint64_t last_level_cache_bytes();
// "AMD EPYC, 2 cores, Linux 6.1.0, 24 GiB".
[[nodiscard]] std::string machine_description();

// Restricts the calling thread, and threads that it starts, to `core`.
[[nodiscard]] Status pin_to_core(int core);

// CPU time of a whole process (0: this one), all its threads, in nanoseconds.
[[nodiscard]] Result<std::int64_t> process_cpu_ns(pid_t pid);
// How often threads of a process (0: this one) have gone to sleep so far; of those that it has now.
[[nodiscard]] Result<std::uint64_t> process_sleeps(pid_t pid);
// Resident memory of a process (0: this one), from /proc/PID/status, which every user may read.
[[nodiscard]] Result<std::uint64_t> process_resident_bytes(pid_t pid);

// The time-stamp counter as a clock for events of tens of nanoseconds, because reading CLOCK_MONOTONIC costs as much as
// these. Calibrated once against CLOCK_MONOTONIC, which is used if there is no counter.
[[nodiscard]] std::uint64_t ticks() noexcept;
[[nodiscard]] double ns_per_tick();

void sleep_ns(TimeNs duration_ns) noexcept;

// Anonymous, page-aligned memory with every page touched by the constructor. Move-only.
class Pages {
 public:
  enum class Kind { anonymous, shared_file };  // shared_file: a memfd, like an agent's frames

  Pages() = default;
  [[nodiscard]] static Result<Pages> map(std::uint64_t length_bytes, Kind kind = Kind::anonymous);
  Pages(Pages&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), length_bytes_(std::exchange(other.length_bytes_, 0)) {}
  Pages& operator=(Pages&& other) noexcept;
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages();

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return length_bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::uint64_t length_bytes_ = 0;
};

// Equal buffers that together exceed the last-level cache, used in turn, so that no source is read from the cache. One
// allocation; buffer i starts at i * stride (+ `misalign_bytes`).
class RotatedBuffers {
 public:
  // As many as fill `working_set_bytes`, at least one.
  [[nodiscard]] static Result<RotatedBuffers> make(std::uint64_t buffer_bytes, std::uint64_t working_set_bytes,
                                                   std::uint64_t misalign_bytes = 0);

  [[nodiscard]] std::byte* next() noexcept;
  [[nodiscard]] std::byte* at(std::size_t index) const noexcept;
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] std::uint64_t stride_bytes() const noexcept { return stride_bytes_; }
  [[nodiscard]] const Pages& whole() const noexcept { return pages_; }

 private:
  Pages pages_;
  std::uint64_t stride_bytes_ = 0;
  std::uint64_t misalign_bytes_ = 0;
  std::size_t count_ = 0;
  std::size_t turn_ = 0;
};
// The working set for RotatedBuffers on this machine.
[[nodiscard]] std::uint64_t beyond_cache_bytes();

}  // namespace offpath::bench
