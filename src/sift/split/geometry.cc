#include "sift/split/geometry.h"

#include <algorithm>
#include <map>

#include "base/hash/fnv1a.h"
#include "base/hash/mix.h"

namespace offpath::sift {

namespace {

// Unlike mix(), its result for 0 is not 0.
constexpr std::uint64_t hash_of(std::uint64_t value) noexcept { return mix(value + golden_ratio); }

std::uint64_t hash_name(std::string_view name) noexcept { return hash_of(fnv1a(name)); }

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
  if (settings.mapped()) OFP_TRY(made.map_stages());
  for (std::uint32_t stage = 2; stage <= settings.track_stage(); ++stage) {
    const std::uint32_t elements = settings.elements(stage);
    Stage& placed = made.stages_[stage - 1];
    if (!settings.mapped()) {
      if (stage < settings.track_stage()) placed.lanes = (count + elements - 1) / elements;
      placed.owners = place_elements(hash_of(hash_name(settings.pool) + stage), elements * placed.lanes, made.members_);
    }
    if (settings.mapped() && placed.lanes > 1) OFP_TRY(made.map_lanes(stage));
    made.mark_reached(stage);
  }
  return made;
}

void Geometry::mark_reached(std::uint32_t stage) {
  Stage& placed = stages_[stage - 1];
  placed.reached.resize(placed.owners.size());
  const auto count = static_cast<std::uint32_t>(members_.size());
  for (std::uint32_t index = 0; index < settings_.elements(stage); ++index) {
    const ElementId element{stage, index};
    if (placed.lanes == 1) {  // each element before has a sender
      placed.reached[index] = true;
    } else if (settings_.mapped()) {
      for (std::size_t place = 0, places = places_before(element).size(); place < places; ++place)
        if (sends(element, place)) placed.reached[index * placed.lanes + placed.lane_of[index * places + place]] = true;
    } else {
      for (std::uint32_t source = 0; source < count; ++source)
        if (is_reached(before(element), source)) placed.reached[index * placed.lanes + lane_of(element, source)] = true;
    }
  }
}

// ---- mapped stages

Status Geometry::map_stages() {
  std::vector<MemberPlace> places;
  std::map<std::string, std::uint32_t> numbers;
  for (const std::string& member : members_) {
    const auto known = settings_.places.find(member);
    places.push_back(known != settings_.places.end() ? known->second : MemberPlace{});
    racks_.push_back(numbers.emplace(places.back().rack, static_cast<std::uint32_t>(numbers.size())).first->second);
  }
  for (std::uint32_t stage = 1; stage <= settings_.track_stage(); ++stage) {
    const auto given = settings_.selectors.find(stage);
    StageSelector selector;
    if (given != settings_.selectors.end()) {
      OFP_ASSIGN(selector, parse_selector(given->second));
    }
    const std::vector<std::vector<std::uint32_t>> groups = select_members(selector, members_, places);
    if (groups.empty())
      return fail(Error::invalid, "sift pool '{}': stage{}={}: it has no such member", settings_.pool, stage,
                  given->second);
    if (stage == settings_.track_stage() && selector.in_each_rack)
      return fail(
          Error::invalid,
          "sift pool '{}': stage{}={}: this stage keeps the tracks, each in one place; select members without a "
          "pattern of racks",
          settings_.pool, stage, given->second);
    OFP_TRY(map_stage(stage, groups));
  }
  return {};
}

Status Geometry::map_stage(std::uint32_t stage, const std::vector<std::vector<std::uint32_t>>& groups) {
  if (stage == 1) {
    takes_puts_.resize(members_.size());
    for (const std::vector<std::uint32_t>& group : groups)
      for (const std::uint32_t member : group) {
        takes_puts_[member] = true;
        takers_.push_back(member);
      }
    return {};
  }
  const std::uint64_t elements = settings_.elements(stage);
  const auto lanes_of = [&](const std::vector<std::uint32_t>& group) {
    return stage == settings_.track_stage() ? 1 : (group.size() + elements - 1) / elements;
  };
  std::uint64_t lanes = 0;
  Stage& placed = stages_[stage - 1];
  for (const std::vector<std::uint32_t>& group : groups) {
    lanes += lanes_of(group);
    placed.held_max = std::max(placed.held_max, (elements * lanes_of(group) + group.size() - 1) / group.size());
  }
  if (lanes * elements > mapped_lanes_max)
    return fail(Error::too_large, "sift pool '{}': {} elements of stage {} in {} places each, at most {} in all",
                settings_.pool, elements, stage, lanes, mapped_lanes_max);
  placed.lanes = static_cast<std::uint32_t>(lanes);
  placed.owners.resize(elements * lanes);
  for (std::uint32_t index = 0; index < elements; ++index) {
    const std::uint64_t place = place_of({stage, index});
    auto to = placed.owners.begin() + static_cast<std::ptrdiff_t>(index * lanes);
    for (const std::vector<std::uint32_t>& group : groups) {
      const std::uint64_t own = lanes_of(group);
      for (std::uint64_t lane = 0; lane < own; ++lane)
        *to++ = group[(place * own + lane) * group.size() / (elements * own)];
    }
  }
  return {};
}

// Among the elements of its stage: the parts of an element follow each other.
std::uint32_t Geometry::place_of(ElementId element) const noexcept {
  const std::uint32_t bits = settings_.fanout_bits(), digit = settings_.fanout - 1;
  std::uint32_t place = 0;
  for (std::uint32_t stage = 1; stage < element.stage; ++stage)
    place = place << bits | (element.index >> settings_.matched_bits(stage) & digit);
  return place;
}

// The lane of each member that sends to an element: its own, or one of its rack, or any. Senders of one rack take its
// lanes in turn, and senders without a lane in their rack take any in turn, unused lanes first.
Status Geometry::map_lanes(std::uint32_t stage) {
  Stage& placed = stages_[stage - 1];
  const std::uint64_t elements = settings_.elements(stage), places = places_before({stage, 0}).size();
  if (elements * places > mapped_senders_max)
    return fail(Error::too_large,
                "sift pool '{}': {} members send to each of {} elements of stage {}, at most {} in all", settings_.pool,
                places, elements, stage, mapped_senders_max);
  placed.lane_of.resize(elements * places);
  constexpr std::uint32_t none = UINT32_MAX;
  std::vector<std::uint32_t> own(members_.size(), none);             // the first lane that a member has
  std::vector<std::uint32_t> place(members_.size(), none);           // the first place that a sender has
  std::vector<std::vector<std::uint32_t>> of_rack(members_.size());  // lanes by the number of their rack
  std::vector<std::uint32_t> turns(members_.size()), turn_of(placed.lanes), lanes, others, far;
  for (std::uint32_t index = 0; index < elements; ++index) {
    const ElementId element{stage, index};
    const std::span<const std::uint32_t> owners = owners_of(element), senders = places_before(element);
    std::uint32_t* const to = placed.lane_of.data() + index * places;
    lanes.clear();
    others.clear();
    far.clear();
    for (std::uint32_t lane = 0; lane < owners.size(); ++lane)
      if (own[owners[lane]] == none) {
        own[owners[lane]] = lane;
        lanes.push_back(lane);
      }
    for (std::uint32_t i = 0; i < senders.size(); ++i) {
      if (place[senders[i]] != none) continue;
      place[senders[i]] = i;
      to[i] = own[senders[i]];
      if (to[i] == none) others.push_back(i);
    }
    std::stable_partition(lanes.begin(), lanes.end(), [&](std::uint32_t lane) { return place[owners[lane]] == none; });
    for (const std::uint32_t lane : lanes) {
      std::vector<std::uint32_t>& near = of_rack[racks_[owners[lane]]];
      turn_of[lane] = static_cast<std::uint32_t>(near.size());
      near.push_back(lane);
    }
    for (const std::uint32_t i : others) {
      const std::uint32_t rack = racks_[senders[i]];
      if (of_rack[rack].empty())
        far.push_back(i);
      else
        to[i] = of_rack[rack][turns[rack]++ % of_rack[rack].size()];
    }
    if (!far.empty()) {  // lanes that no other sender has come first
      std::stable_partition(lanes.begin(), lanes.end(), [&](std::uint32_t lane) {
        return place[owners[lane]] == none && turn_of[lane] >= turns[racks_[owners[lane]]];
      });
      for (std::uint32_t turn = 0; turn < far.size(); ++turn) to[far[turn]] = lanes[turn % lanes.size()];
    }
    for (const std::uint32_t owner : owners) {
      own[owner] = none;
      of_rack[racks_[owner]].clear();
    }
    for (const std::uint32_t sender : senders) {
      place[sender] = none;
      turns[racks_[sender]] = 0;
    }
  }
  return {};
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
  if (lanes > 1 && settings_.mapped()) {
    const std::span<const std::uint32_t> senders = places_before(element);
    const auto place = static_cast<std::size_t>(std::ranges::find(senders, source) - senders.begin());
    if (place == senders.size()) return 0;  // it sends nothing there
    return stages_[element.stage - 1].lane_of[element.index * senders.size() + place];
  }
  if (lanes == 1 || element.stage == 2) return source % lanes;
  const Stage& stage = stages_[element.stage - 2];
  const auto* const first = stage.owners.data() + std::size_t{before(element).index} * stage.lanes;
  const auto* const found = std::find(first, first + stage.lanes, source);
  return (found == first + stage.lanes ? source : static_cast<std::uint32_t>(found - first)) % lanes;
}

bool Geometry::is_reached(ElementId element, std::uint32_t member) const noexcept {
  if (element.stage == 1) return takes_puts_.empty() || takes_puts_[member];
  const Stage& stage = stages_[element.stage - 1];
  for (std::size_t slot = std::size_t{element.index} * stage.lanes, end = slot + stage.lanes; slot < end; ++slot)
    if (stage.owners[slot] == member && stage.reached[slot]) return true;
  return false;
}

bool Geometry::holds(std::uint32_t member, ElementId element) const noexcept {
  if (element.stage < 1 || element.stage > stages_.size() || element.index >= settings_.elements(element.stage))
    return false;
  if (element.stage == 1) return member < members_.size() && is_reached(element, member);
  const Stage& stage = stages_[element.stage - 1];
  const auto* const first = stage.owners.data() + std::size_t{element.index} * stage.lanes;
  return std::find(first, first + stage.lanes, member) != first + stage.lanes;
}

std::uint64_t Geometry::held_max(std::uint32_t stage) const noexcept {
  if (settings_.mapped()) return stages_[stage - 1].held_max;
  return lanes(stage) * std::uint64_t{settings_.elements(stage)} / members_.size();
}

std::vector<std::uint32_t> Geometry::sources(ElementId element, std::uint32_t member) const {
  std::vector<std::uint32_t> found;
  if (settings_.mapped()) {
    const std::span<const std::uint32_t> senders = places_before(element);
    const Stage& stage = stages_[element.stage - 1];
    for (std::size_t place = 0; place < senders.size(); ++place) {
      const std::uint32_t lane = stage.lanes == 1 ? 0 : stage.lane_of[element.index * senders.size() + place];
      if (sends(element, place) && holder(element, lane) == member) found.push_back(senders[place]);
    }
    std::ranges::sort(found);
    return found;
  }
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
