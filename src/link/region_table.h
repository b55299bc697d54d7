// Memory that the other side announced, and the one check that every operation passes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "wire/region.h"

namespace offpath::link {

struct Region {
  std::uint32_t generation = 0;
  bool live = false;
  std::uint64_t base = 0;  // address on the other side; for segments of this side's mapping
  std::uint64_t length = 0;
  std::uint32_t key = 0;
};

class RegionTable {
 public:
  Status attach(wire::RegionId id, std::uint32_t generation, std::uint64_t base, std::uint64_t length,
                std::uint32_t key);
  Status detach(wire::RegionId id, std::uint32_t generation);
  // The same for announcements by the request ring: segments are refused, because they arrive by the control socket.
  Status attach_range(wire::RegionId range, std::uint32_t generation, std::uint64_t base, std::uint64_t length,
                      std::uint32_t key);
  Status detach_range(wire::RegionId range, std::uint32_t generation);

  // The region if [offset, offset + length) of it may be accessed; otherwise unannounced, stale or too_large.
  [[nodiscard]] Result<const Region*> resolve(wire::RegionId id, std::uint32_t generation, std::uint64_t offset,
                                              std::uint64_t length) const;
  [[nodiscard]] const Region* find(wire::RegionId id) const noexcept;
  [[nodiscard]] std::uint64_t live() const noexcept { return live_; }

 private:
  [[nodiscard]] const std::vector<Region>& table(wire::RegionId id) const noexcept {
    return wire::is_segment(id) ? segments_ : ranges_;
  }
  std::vector<Region> ranges_, segments_;
  std::uint64_t live_ = 0;
};

}  // namespace offpath::link
