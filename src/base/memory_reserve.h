// Memory for the moment when there is no more: what stands between a loop and std::bad_alloc in the middle of a change
// of its state.
//
// Where an allocation of a protected thread fails, the reserve is given back to the allocator and the allocation tried
// again (std::set_new_handler). Its owner takes no new work until it has the reserve again. Other threads get
// std::bad_alloc as ever: they run jobs, whose errors it becomes.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <new>

namespace offpath {

// One in a process.
class MemoryReserve {
 public:
  static constexpr std::size_t piece_bytes = 64 * 1024;  // from the heap, where small allocations come from
  static constexpr std::size_t pieces_max = 32;

  MemoryReserve() noexcept;
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  // The calling thread may use it from now on.
  static void protect_this_thread() noexcept;
  // Takes what was given back. True if all of it is there. True without a reserve, too.
  [[nodiscard]] static bool is_whole() noexcept;

 private:
  static void give_back();
  [[nodiscard]] bool take() noexcept;

  std::atomic<bool> whole_ = false;
  std::array<void*, pieces_max> pieces_{};
  std::new_handler before_;
};

}  // namespace offpath
