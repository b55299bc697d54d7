#include "sift/split/stage_places.h"

#include <algorithm>
#include <map>

#include "pool/directory/glob.h"
#include "sift/member_ranges.h"

namespace offpath::sift {

namespace {

constexpr std::string_view rack_mark = "rack:";

bool matches(const std::string& term, const std::string& member, const MemberPlace& place) {
  if (term == "hosts") return !place.is_card;
  if (term == "dpus") return place.is_card;
  return pool::glob_matches(term, member);
}

bool selects(const StageSelector& selector, const std::string& member, const MemberPlace& place) {
  if (!selector.rack.empty() && !pool::glob_matches(selector.rack, place.rack)) return false;
  if (selector.patterns.empty() && selector.names.empty()) return true;
  return std::ranges::binary_search(selector.names, member) ||
         std::ranges::any_of(selector.patterns, [&](const std::string& term) { return matches(term, member, place); });
}

}  // namespace

Result<StageSelector> parse_selector(std::string_view text) {
  StageSelector selector;
  std::string_view rest = text;
  if (rest.starts_with(rack_mark)) {
    rest.remove_prefix(rack_mark.size());
    selector.rack = rest.substr(0, rest.find('/'));
    rest.remove_prefix(std::min(selector.rack.size() + 1, rest.size()));
    if (selector.rack.empty() || selector.rack.find(',') != std::string::npos)
      return fail(Error::invalid,
                  "'{}': one rack or a pattern of racks is expected behind 'rack:', then '/' and which of its "
                  "members",
                  text);
    OFP_TRY(pool::check_glob(selector.rack));
    selector.in_each_rack = selector.rack.find_first_of("*?[") != std::string::npos;
    if (rest.empty()) return selector;
  }
  OFP_ASSIGN(const std::string names, member_names(rest));
  for (rest = names;;) {
    const std::string_view term = rest.substr(0, rest.find(','));
    if (term.empty()) return fail(Error::invalid, "'{}': hosts, dpus, names or patterns of names are expected", text);
    if (term.starts_with(rack_mark)) return fail(Error::invalid, "'{}': 'rack:' stands at the beginning, once", text);
    OFP_TRY(pool::check_glob(term));
    const bool is_name = term != "hosts" && term != "dpus" && term.find_first_of("*?[") == std::string_view::npos;
    (is_name ? selector.names : selector.patterns).emplace_back(term);
    if (selector.patterns.size() > selector_patterns_max)
      return fail(Error::too_large, "'{}': more than {} patterns", text, selector_patterns_max);
    if (term.size() == rest.size()) break;
    rest.remove_prefix(term.size() + 1);
  }
  std::ranges::sort(selector.names);
  return selector;
}

std::vector<std::vector<std::uint32_t>> select_members(const StageSelector& selector,
                                                       std::span<const std::string> members,
                                                       std::span<const MemberPlace> places) {
  std::map<std::string_view, std::vector<std::uint32_t>> by_rack;
  for (std::uint32_t i = 0; i < members.size(); ++i)
    if (selects(selector, members[i], places[i])) by_rack[places[i].rack].push_back(i);
  std::vector<std::vector<std::uint32_t>> groups;
  for (auto& [rack, positions] : by_rack) {
    if (selector.in_each_rack || groups.empty())
      groups.push_back(std::move(positions));
    else
      groups.front().insert(groups.front().end(), positions.begin(), positions.end());
  }
  return groups;
}

}  // namespace offpath::sift
