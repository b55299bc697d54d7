// A memory reserve for the moment when allocation fails. It keeps a loop from meeting std::bad_alloc in the middle of a
// change of its state.
//
// When an allocation of a protected thread fails, the reserve is freed and the allocation is tried again
// (std::set_new_handler). The reserve's owner accepts no new work until the reserve is whole again. Other threads get
// std::bad_alloc as usual: they run jobs, and the job reports it as an error.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <new>

namespace offpath {

// One for each process.
class MemoryReserve {
 public:
  static constexpr std::size_t piece_bytes = 64 * 1024;  // from the heap, where small allocations come from
  static constexpr std::size_t pieces_max = 32;

  MemoryReserve() noexcept;
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  // Allows the calling thread to use the reserve from now on.
  static void protect_this_thread() noexcept;
  // Allocates the missing pieces again. Returns true if the reserve is whole, and also if there is no reserve.
  [[nodiscard]] static bool is_whole() noexcept;

 private:
  static void give_back();
  [[nodiscard]] bool take() noexcept;

  std::atomic<bool> whole_ = false;
  std::array<void*, pieces_max> pieces_{};
  std::new_handler before_;
};

}  // namespace offpath
