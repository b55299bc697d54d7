// The placement of elements on agents.
//
// An element is (stage, index); its index is the bits of the identifier that are matched when it is reached. Stage 1
// has one element, and every member holds its own: rows stay on the agent that took them until they are split. The
// other stages' elements are placed by rendezvous hashing, with a bound on how many of a stage one member gets, so that
// none is flooded. Where a stage has fewer elements than there are members, each is held by several (lanes), and a
// source always uses the same one of them; otherwise most agents would be idle in the middle stages. The owners of an
// element divide the lanes of the next stage in their order, so that all are used. Tracks have one lane: all rows of an
// identifier are in one place.
//
// Where the user maps stages (stage_places.h), elements are not spread by hashes: consecutive elements are placed close
// together. They are ordered by their bits, the first matched bits being the most significant. So the parts of an
// element are consecutive, at about the same fraction of their stage as the element in its own. Members are in the
// order of racks and names, and take equal runs of elements. With rack:* each rack holds the whole stage, in lanes of
// its own. A source sends to itself if it can, otherwise within its rack.
//
// All agents compute the same placement from the settings and the members' names.
//
// Read this first in src/sift/split, then row_form.h (the columns) and partition.h (the loop that splits them);
// scratch.h is its memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "sift/settings.h"

namespace offpath::sift {

struct ElementId {
  std::uint32_t stage = 1;
  std::uint32_t index = 0;

  auto operator<=>(const ElementId&) const = default;
};

// The place of each of `elements`, as positions in `members`: the member of the highest hash that has fewer than
// ceil(elements / members) so far.
[[nodiscard]] std::vector<std::uint32_t> place_elements(std::uint64_t seed, std::uint32_t elements,
                                                        std::span<const std::string> members);
// A bound for a mapped stage, over all elements.
inline constexpr std::uint64_t mapped_lanes_max = 1 << 18, mapped_senders_max = 1 << 20;

class Geometry {
 public:
  // `members` are sorted and differ from each other; there is at least one.
  [[nodiscard]] static Result<Geometry> make(const Settings& settings, std::vector<std::string> members);

  [[nodiscard]] std::span<const std::string> members() const noexcept { return members_; }
  // Position of a member; the number of members if the name is not a member.
  [[nodiscard]] std::uint32_t position_of(std::string_view member) const noexcept;

  // The member that `source` (a position) sends pieces for this element to.
  [[nodiscard]] std::uint32_t owner(ElementId element, std::uint32_t source) const noexcept;
  [[nodiscard]] const std::string& owner_name(ElementId element, std::uint32_t source) const noexcept {
    return members_[owner(element, source)];
  }
  // For an element that keeps tracks: it has one owner for all sources.
  [[nodiscard]] std::uint32_t owner(ElementId element) const noexcept { return owner(element, 0); }
  // The owner of a lane of an element of stage 2 or later.
  [[nodiscard]] std::uint32_t holder(ElementId element, std::uint32_t lane) const noexcept {
    const Stage& stage = stages_[element.stage - 1];
    return stage.owners[element.index * stage.lanes + lane];
  }
  [[nodiscard]] bool holds(std::uint32_t member, ElementId element) const noexcept;
  // The members that send pieces for an element of stage 2 or later to `member`, ascending: a flush waits for them.
  [[nodiscard]] std::vector<std::uint32_t> sources(ElementId element, std::uint32_t member) const;
  // Indices a member holds of a stage, ascending.
  [[nodiscard]] std::vector<std::uint32_t> elements_of(std::uint32_t member, std::uint32_t stage) const;

  [[nodiscard]] std::uint32_t lanes(std::uint32_t stage) const noexcept { return stages_[stage - 1].lanes; }
  // About the largest number of elements of stage 2 or later, as lanes, that one member holds.
  [[nodiscard]] std::uint64_t held_max(std::uint32_t stage) const noexcept;
  // The element of an identifier's tracks, and the next element of an element's rows.
  [[nodiscard]] ElementId track_element(std::uint64_t identifier) const noexcept;
  [[nodiscard]] ElementId next(ElementId element, std::uint32_t part) const noexcept;
  [[nodiscard]] const Settings& settings() const noexcept { return settings_; }

 private:
  struct Stage {
    std::uint32_t lanes = 1;
    std::vector<std::uint32_t> owners;  // [index * lanes + lane]
    std::vector<bool> reached;          // likewise: some member sends there
    // Of a mapped stage.
    std::uint64_t held_max = 0;
    std::vector<std::uint32_t> lane_of;  // [index * places + place of the sender], if there are several lanes
  };

  [[nodiscard]] Status map_stages();
  [[nodiscard]] Status map_stage(std::uint32_t stage, const std::vector<std::vector<std::uint32_t>>& groups);
  [[nodiscard]] std::uint32_t place_of(ElementId element) const noexcept;
  [[nodiscard]] std::span<const std::uint32_t> owners_of(ElementId element) const noexcept {
    const Stage& stage = stages_[element.stage - 1];
    return {stage.owners.data() + std::size_t{element.index} * stage.lanes, stage.lanes};
  }
  [[nodiscard]] std::uint32_t lane_of(ElementId element, std::uint32_t source) const noexcept;
  // The possible senders to an element of stage 2 or later, in the order of the lanes of the element before.
  [[nodiscard]] std::span<const std::uint32_t> places_before(ElementId element) const noexcept {
    return element.stage == 2 ? std::span<const std::uint32_t>(takers_) : owners_of(before(element));
  }
  // Whether the sender at this place sends. A member with several lanes of the element before uses the first.
  [[nodiscard]] bool sends(ElementId element, std::size_t place) const noexcept {
    if (element.stage == 2) return true;
    const Stage& stage = stages_[element.stage - 2];
    return stage.reached[std::size_t{before(element).index} * stage.lanes + place];
  }
  [[nodiscard]] Status map_lanes(std::uint32_t stage);
  void mark_reached(std::uint32_t stage);
  [[nodiscard]] ElementId before(ElementId element) const noexcept {
    return {element.stage - 1, element.index & (settings_.elements(element.stage - 1) - 1)};
  }
  [[nodiscard]] bool is_reached(ElementId element, std::uint32_t member) const noexcept;

  Settings settings_;
  std::vector<std::string> members_;
  std::vector<Stage> stages_;  // 1 to stages + 1; the first has no owners
  // By position; empty without mapped stages.
  std::vector<std::uint32_t> racks_;   // numbered
  std::vector<bool> takes_puts_;       // it holds stage 1
  std::vector<std::uint32_t> takers_;  // members that hold stage 1, by rack
};

}  // namespace offpath::sift
