#include "sift/definition.h"

#include <algorithm>
#include <map>

#include <fmt/ranges.h>

#include "pool/directory/placement.h"
#include "sift/member_ranges.h"
#include "wire/limits.h"

namespace offpath::sift {

namespace {

constexpr std::string_view options_of_members[] = {"members=", "wait=", "racks=", "cards="};

bool is_pattern(std::string_view names) { return names.find_first_of("*?[") != std::string_view::npos; }

// The pool's text with the members' names in place of patterns, as these options say them.
std::string with_members(std::string_view text, std::string_view members) {
  std::vector<std::string> options;
  for (std::string_view rest = text.size() > name_in(text).size() ? text.substr(name_in(text).size() + 1)
                                                                  : std::string_view{};
       !rest.empty();) {
    const std::string_view option = rest.substr(0, rest.find('&'));
    if (std::ranges::none_of(options_of_members, [&](std::string_view each) { return option.starts_with(each); }))
      options.emplace_back(option);
    rest.remove_prefix(std::min(rest.size(), option.size() + 1));
  }
  options.emplace_back(members);
  return fmt::format("{}?{}", name_in(text), fmt::join(options, "&"));
}

// The members with where they are: by rack, in the order of racks, and the cards among them.
Result<std::string> with_places(std::string_view text, const std::vector<std::string>& members,
                                std::span<const std::string> alive, const PlaceOf& place_of) {
  std::map<std::string, std::vector<std::string>> racks;
  std::vector<std::string> cards, texts;
  for (const std::string& member : members) {
    if (!std::ranges::binary_search(alive, member))
      return fail(Error::would_block, "pool \"{}\" has mapped stages and waits for its member {}", name_in(text),
                  member);
    const MemberPlace place = place_of ? place_of(member) : MemberPlace{};
    racks[place.rack].push_back(member);
    if (place.is_card) cards.push_back(member);
  }
  for (const auto& [rack, names] : racks) texts.push_back(fmt::format("{}:{}", rack, member_ranges(names)));
  return fmt::format("racks={}{}{}", fmt::join(texts, "|"), cards.empty() ? "" : "&cards=", member_ranges(cards));
}

bool same_names(std::string_view one, std::string_view other) {
  std::vector<std::string> names = split_names(one), others = split_names(other);
  std::ranges::sort(names);
  std::ranges::sort(others);
  return names == others;
}

}  // namespace

std::vector<std::string> split_names(std::string_view text) {
  std::vector<std::string> names;
  while (true) {
    const std::size_t end = text.find(',');
    names.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return names;
    text.remove_prefix(end + 1);
  }
}

Result<Definition> definition_of(std::string_view text, const Settings& settings, std::span<const std::string> alive,
                                 const PlaceOf& place_of) {
  pool::PoolOptions chosen;
  if (!settings.members.empty()) chosen.members = split_names(settings.members);
  std::vector<std::string> members = pool::members_of(chosen, alive);
  if (members.size() < settings.wait)
    return fail(Error::would_block, "pool \"{}\" waits for {} members, of which {} live", name_in(text), settings.wait,
                members.size());
  if (std::ranges::none_of(chosen.members, is_pattern)) {
    members = chosen.members;
    std::ranges::sort(members);
  }
  if (members.empty()) return fail(Error::not_found, "pool \"{}\": none of its members lives", text);
  std::string full;
  const bool has_places = !settings.places.empty() && !settings.members.empty();
  if (settings.mapped() && has_places && std::ranges::none_of(chosen.members, is_pattern)) {  // it is a definition
    full = text;
  } else if (settings.mapped()) {
    OFP_ASSIGN(const std::string places, with_places(text, members, alive, place_of));
    full = with_members(text, places);
  } else {
    full = with_members(text, fmt::format("members={}", fmt::join(members, ",")));
    if (full.size() > wire::pool_bytes_max)
      full = with_members(text, fmt::format("members={}", member_ranges(members)));
  }
  if (full.size() > wire::pool_bytes_max)
    return fail(
        Error::too_large,
        "pool \"{}\": its name with the names of its {} members has {} bytes, at most {} are allowed; numbered names "
        "are written as ranges",
        name_in(text), members.size(), full.size(), wire::pool_bytes_max);
  return Definition{std::move(full), std::move(members)};
}

Status check_same(std::string_view text, const Settings& existing, std::string_view definition) {
  if (text.size() == name_in(text).size() || text == definition) return {};
  OFP_ASSIGN(const Settings asked, parse_settings(text));
  if (!asked.members.empty() && !is_pattern(asked.members) && !same_names(asked.members, existing.members))
    return fail(
        Error::exists,
        "pool \"{}\" has the members {}, and not {}: they are the members that lived when it was made, as long as "
        "it exists; "
        "drop it to make it again",
        name_in(text), member_ranges(split_names(existing.members)), member_ranges(split_names(asked.members)));
  if (!same_but_members(asked, existing))
    return fail(Error::exists, "pool \"{}\" exists already, as \"{}\"; leave the options out to use it", text,
                definition);
  return {};
}

Result<bool> comes_before(std::string_view text, std::string_view other) {
  OFP_ASSIGN(const Settings settings, parse_settings(text));
  OFP_ASSIGN(const Settings others, parse_settings(other));
  const auto members = std::ranges::count(settings.members, ','),
             others_members = std::ranges::count(others.members, ',');
  return members != others_members ? members > others_members : text < other;
}

bool has_member(const Settings& settings, std::string_view name) {
  return fmt::format(",{},", settings.members).find(fmt::format(",{},", name)) != std::string::npos;
}

}  // namespace offpath::sift
