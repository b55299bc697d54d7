#include "sift/split/geometry.h"

#include <algorithm>

#include "base/mix.h"

namespace offpath::sift {

namespace {

// Unlike mix(), its result for 0 is not 0.
constexpr std::uint64_t hash_of(std::uint64_t value) noexcept { return mix(value + golden_ratio); }

std::uint64_t hash_name(std::string_view name) noexcept {  // FNV-1a
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char each : name) hash = (hash ^ static_cast<unsigned char>(each)) * 0x100000001B3;
  return hash_of(hash);
}

}  // namespace

std::vector<std::uint32_t> place_elements(std::uint64_t seed, std::uint32_t elements,
                                          std::span<const std::string> members) {
  const auto count = static_cast<std::uint32_t>(members.size());
  const std::uint32_t most = (elements + count - 1) / count;
  std::vector<std::uint64_t> names(count);
  std::ranges::transform(members, names.begin(), hash_name);
  std::vector<std::uint32_t> held(count), owners(elements);
  for (std::uint32_t element = 0; element < elements; ++element) {
    const std::uint64_t hash = hash_of(seed + element);
    std::uint32_t best = count;
    std::uint64_t highest = 0;
    for (std::uint32_t member = 0; member < count; ++member) {
      if (held[member] == most) continue;
      const std::uint64_t weight = hash_of(hash ^ names[member]);
      if (best != count && weight <= highest) continue;
      best = member;
      highest = weight;
    }
    owners[element] = best;
    ++held[best];
  }
  return owners;
}

Result<Geometry> Geometry::make(const Settings& settings, std::vector<std::string> members) {
  OFP_TRY(check(settings));
  if (members.empty()) return fail(Error::invalid, "sift pool '{}' has no members", settings.pool);
  for (std::size_t i = 1; i < members.size(); ++i) {
    if (members[i - 1] >= members[i]) {
      return fail(Error::invalid, "members of '{}' are not sorted: '{}' comes before '{}'", settings.pool,
                  members[i - 1], members[i]);
    }
  }
  Geometry made;
  made.settings_ = settings;
  made.members_ = std::move(members);
  const auto count = static_cast<std::uint32_t>(made.members_.size());
  made.stages_.resize(settings.track_stage());
  for (std::uint32_t stage = 2; stage <= settings.track_stage(); ++stage) {
    const std::uint32_t elements = settings.elements(stage);
    Stage& placed = made.stages_[stage - 1];
    if (stage < settings.track_stage()) placed.lanes = (count + elements - 1) / elements;
    placed.owners = place_elements(hash_of(hash_name(settings.pool) + stage), elements * placed.lanes, made.members_);
    placed.reached.resize(placed.owners.size());
    for (std::uint32_t index = 0; index < elements; ++index)
      for (std::uint32_t source = 0; source < count; ++source)
        if (made.is_reached(made.before({stage, index}), source))
          placed.reached[index * placed.lanes + made.lane_of({stage, index}, source)] = true;
  }
  return made;
}

std::uint32_t Geometry::position_of(std::string_view member) const noexcept {
  const auto found = std::ranges::lower_bound(members_, member);
  const auto count = static_cast<std::uint32_t>(members_.size());
  return found != members_.end() && *found == member ? static_cast<std::uint32_t>(found - members_.begin()) : count;
}

std::uint32_t Geometry::owner(ElementId element, std::uint32_t source) const noexcept {
  if (element.stage == 1) return source;
  return holder(element, lane_of(element, source));
}

std::uint32_t Geometry::lane_of(ElementId element, std::uint32_t source) const noexcept {
  const std::uint32_t lanes = stages_[element.stage - 1].lanes;
  if (lanes == 1 || element.stage == 2) return source % lanes;
  const Stage& stage = stages_[element.stage - 2];
  const auto* const first = stage.owners.data() + std::size_t{before(element).index} * stage.lanes;
  const auto* const found = std::find(first, first + stage.lanes, source);
  return (found == first + stage.lanes ? source : static_cast<std::uint32_t>(found - first)) % lanes;
}

bool Geometry::is_reached(ElementId element, std::uint32_t member) const noexcept {
  if (element.stage == 1) return true;
  const Stage& stage = stages_[element.stage - 1];
  for (std::size_t slot = std::size_t{element.index} * stage.lanes, end = slot + stage.lanes; slot < end; ++slot)
    if (stage.owners[slot] == member && stage.reached[slot]) return true;
  return false;
}

bool Geometry::holds(std::uint32_t member, ElementId element) const noexcept {
  if (element.stage < 1 || element.stage > stages_.size() || element.index >= settings_.elements(element.stage))
    return false;
  if (element.stage == 1) return member < members_.size();
  const Stage& stage = stages_[element.stage - 1];
  const auto* const first = stage.owners.data() + std::size_t{element.index} * stage.lanes;
  return std::find(first, first + stage.lanes, member) != first + stage.lanes;
}

std::vector<std::uint32_t> Geometry::sources(ElementId element, std::uint32_t member) const {
  std::vector<std::uint32_t> found;
  for (std::uint32_t source = 0; source < members_.size(); ++source)
    if (owner(element, source) == member && is_reached(before(element), source)) found.push_back(source);
  return found;
}

std::vector<std::uint32_t> Geometry::elements_of(std::uint32_t member, std::uint32_t stage) const {
  std::vector<std::uint32_t> held;
  for (std::uint32_t index = 0; index < settings_.elements(stage); ++index)
    if (holds(member, {stage, index})) held.push_back(index);
  return held;
}

ElementId Geometry::track_element(std::uint64_t identifier) const noexcept {
  const std::uint32_t stage = settings_.track_stage();
  return {stage, static_cast<std::uint32_t>(identifier & (settings_.elements(stage) - 1))};
}

ElementId Geometry::next(ElementId element, std::uint32_t part) const noexcept {
  return {element.stage + 1, element.index | part << settings_.matched_bits(element.stage)};
}

}  // namespace offpath::sift
