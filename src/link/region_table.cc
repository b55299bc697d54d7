#include "link/region_table.h"

#include "base/bytes.h"
#include "wire/stale_range.h"

namespace offpath::link {

using wire::RegionId;

namespace {

Status check_range(RegionId id) {
  if (wire::is_segment(id)) return fail(Error::invalid, "region {:#x} is a segment, not a range", id);
  return {};
}

}  // namespace

Status RegionTable::attach(RegionId id, std::uint32_t generation, std::uint64_t base, std::uint64_t length,
                           std::uint32_t key) {
  const std::uint32_t index = id & ~wire::segment_flag;
  if (index >= wire::regions_max)
    return fail(Error::too_large, "{} at generation {}: numbers up to {} are allowed", wire::name_of(id), generation,
                wire::regions_max - 1);
  if (length > wire::region_bytes_max)
    return fail(Error::too_large, "{} at generation {}: {} bytes, at most {} are allowed", wire::name_of(id),
                generation, length, wire::region_bytes_max);
  std::uint64_t end = 0;
  if (!checked_add(base, length, end))
    return fail(Error::invalid, "{} at generation {}: base {:#x} plus length {} is beyond the address space",
                wire::name_of(id), generation, base, length);
  auto& regions = wire::is_segment(id) ? segments_ : ranges_;
  if (index >= regions.size()) regions.resize(index + 1);
  Region& region = regions[index];
  if (!region.live) ++live_;
  region = {generation, true, base, length, key};
  return {};
}

Status RegionTable::detach(RegionId id, std::uint32_t generation) {
  auto& regions = wire::is_segment(id) ? segments_ : ranges_;
  const std::uint32_t index = id & ~wire::segment_flag;
  if (index >= regions.size() || !regions[index].live)
    return fail(Error::unannounced, "{} is not announced; its generation {} cannot be withdrawn", wire::name_of(id),
                generation);
  if (regions[index].generation != generation)
    return wire::stale_generation(id, generation, true, regions[index].generation);
  regions[index].live = false;
  --live_;
  return {};
}

Status RegionTable::attach_range(RegionId range, std::uint32_t generation, std::uint64_t base, std::uint64_t length,
                                 std::uint32_t key) {
  OFP_TRY(check_range(range));
  return attach(range, generation, base, length, key);
}

Status RegionTable::detach_range(RegionId range, std::uint32_t generation) {
  OFP_TRY(check_range(range));
  return detach(range, generation);
}

Result<const Region*> RegionTable::resolve(RegionId id, std::uint32_t generation, std::uint64_t offset,
                                           std::uint64_t length) const {
  const auto& regions = table(id);
  const std::uint32_t index = id & ~wire::segment_flag;
  if (index >= regions.size() || (!regions[index].live && regions[index].generation == 0 && regions[index].length == 0))
    return fail(Error::unannounced, "{} was never announced, generation {} was named", wire::name_of(id), generation);
  const Region& region = regions[index];
  if (!region.live || region.generation != generation)
    return wire::stale_generation(id, generation, region.live, region.generation);
  std::uint64_t end = 0;
  if (!checked_add(offset, length, end) || end > region.length)
    return fail(Error::too_large, "{} at generation {}: offset {} and length {} reach beyond its {} bytes",
                wire::name_of(id), generation, offset, length, region.length);
  return &region;
}

const Region* RegionTable::find(RegionId id) const noexcept {
  const auto& regions = table(id);
  const std::uint32_t index = id & ~wire::segment_flag;
  return index < regions.size() && regions[index].live ? &regions[index] : nullptr;
}

}  // namespace offpath::link
