// The texts of the errors for a range or segment that was withdrawn or announced again since a request, a read or a
// write named it. Read region.h first: it says what a generation is.
#pragma once

#include "base/status.h"
#include "wire/region.h"

namespace offpath::wire {

// "range 5" or "segment 2"
[[nodiscard]] std::string name_of(RegionId id);

// The owner knows the region by another generation, or withdrew it at `generation`.
[[nodiscard]] tl::unexpected<Failure> stale_generation(RegionId id, std::uint32_t named, bool announced,
                                                       std::uint32_t generation);

// The range `named` is not announced any more, and the caller does not know its successor.
[[nodiscard]] tl::unexpected<Failure> not_announced(RegionId id, std::uint32_t named);

// One request names the same range by two generations, so one of them is stale.
[[nodiscard]] tl::unexpected<Failure> two_generations(RegionId id, std::uint32_t one, std::uint32_t other);

}  // namespace offpath::wire
