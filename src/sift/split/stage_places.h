// The members that hold a stage of a pool, as the option stageN= of its name selects them:
//
//   hosts  dpus              by role
//   dpu*,host1               by name
//   rack:r1  rack:r1/dpus    of one rack: all, or those that the rest selects
//   rack:*   rack:r[12]/dpus in each rack that matches: each of them holds the whole stage, and pieces from a
//                            member of a rack stay in it
//
// Placement within a stage is geometry.h's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace offpath::sift {

// The place of a member.
struct MemberPlace {
  std::string rack{};  // empty: unknown
  bool is_card = false;
  bool operator==(const MemberPlace&) const = default;
};

struct StageSelector {
  std::string rack{};         // a pattern; empty: any
  bool in_each_rack = false;  // of those that match
  // One of these has to match; if all are empty, all members match.
  std::vector<std::string> patterns{};  // hosts, dpus and patterns of names
  std::vector<std::string> names{};     // sorted
};
inline constexpr std::size_t selector_patterns_max = 64;  // each is compared with each member
[[nodiscard]] Result<StageSelector> parse_selector(std::string_view text);

// Positions of the selected `members`, by rack and then in their order, in one group or a group for each rack. No group
// is empty. `places` are those of `members`.
[[nodiscard]] std::vector<std::vector<std::uint32_t>> select_members(const StageSelector& selector,
                                                                     std::span<const std::string> members,
                                                                     std::span<const MemberPlace> places);

}  // namespace offpath::sift
