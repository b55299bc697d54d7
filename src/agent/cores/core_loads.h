// How many connections each core of an agent has: one page that its processes share, with a line for each core. Only
// that core writes it, and only the process that spreads connections reads it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/status.h"
#include "group/core_name.h"

namespace offpath::agent {

class CoreLoads {
 public:
  // Before the cores' processes are started.
  [[nodiscard]] static Result<CoreLoads> make();

  // ---- the core's process: a connection came, and one ended, in its handshake or as a channel
  void took(unsigned core) noexcept;
  void ended(unsigned core) noexcept;
  // ---- the process that spreads them
  struct Load {
    std::uint64_t taken = 0;  // all that ever came
    std::uint64_t open = 0;   // those that have not ended
  };
  [[nodiscard]] Load of(unsigned core) const noexcept;
  void begin_anew(unsigned core) noexcept;  // its process has ended

 private:
  struct alignas(64) Line {
    std::atomic<std::uint64_t> taken, open;
  };
  struct Page {
    Line lines[group::cores_max];
  };
  static_assert(sizeof(Page) == group::cores_max * 64 && sizeof(Page) <= 4096);
  struct Unmap {
    void operator()(Page* page) const noexcept;
  };
  explicit CoreLoads(Page* page) noexcept : page_(page) {}
  std::unique_ptr<Page, Unmap> page_;
};

// One core as the spreading sees it.
struct CoreChoice {
  bool serves = false;
  std::uint64_t connections = 0;  // open ones, and those that are on their way to it
  std::uint64_t given = 0;        // all that it was ever given
};

// The core that gets the next connection: one with the fewest, of those the one that was given the fewest, and of those
// the first. None: no core serves.
[[nodiscard]] std::optional<unsigned> least_loaded(std::span<const CoreChoice> cores) noexcept;

}  // namespace offpath::agent
