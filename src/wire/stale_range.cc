#include "wire/stale_range.h"

namespace offpath::wire {

std::string name_of(RegionId id) {
  return fmt::format("{} {}", is_segment(id) ? "segment" : "range", id & ~segment_flag);
}

tl::unexpected<Failure> stale_generation(RegionId id, std::uint32_t named, bool announced, std::uint32_t generation) {
  return fail(Error::stale, "{}: generation {} was named, it {} generation {}", name_of(id), named,
              announced ? "is announced as" : "was withdrawn at", generation);
}

tl::unexpected<Failure> not_announced(RegionId id, std::uint32_t named) {
  return fail(Error::stale, "{}: generation {} was named, it was withdrawn or announced again", name_of(id), named);
}

tl::unexpected<Failure> two_generations(RegionId id, std::uint32_t one, std::uint32_t other) {
  return fail(Error::stale, "{} is named with the generations {} and {}", name_of(id), one, other);
}

}  // namespace offpath::wire
