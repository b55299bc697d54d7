// A card without a card: libdoca_common.so.2 and libdoca_dma.so.2 in software, for doca_link's tests.
//
// It is less orderly than a card. Tasks under way are copied in any order, piece by piece, and complete in any order; a
// progress call may miss completed tasks. Work is done only in progress calls, by a seed, so there are no threads.
// Memory of the other end is reached by process_vm_readv and process_vm_writev, this process's own included, each time
// only if its export still lives. Unlike a card it pins nothing: memory that is unmapped fails its task.
//
// It is also stricter: uses that are undefined for a card are counted in `misuses`.
#pragma once

#include <atomic>
#include <cstdint>

struct SoftwareCard {
  std::atomic<std::uint64_t> seed{1};  // of contexts started from now on
  // So many of the next calls fail.
  std::atomic<int> opens_fail{0}, maps_fail{0}, exports_fail{0}, imports_fail{0}, starts_fail{0}, submits_fail{0};
  std::atomic<int> tasks_until_failure{-1};  // counts down; the task that finds 0 fails
  std::atomic<bool> gone{false};             // contexts stop by themselves
  std::atomic<std::uint64_t> tasks{0},
      overtaken{0};  // completed; of them those that were posted later than one still under way
  std::atomic<std::uint64_t> misuses{0};
};

extern "C" SoftwareCard* software_card();
