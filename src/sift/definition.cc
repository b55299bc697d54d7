#include "sift/definition.h"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/ranges.h>

#include "base/hash/siphash.h"
#include "group/core_name.h"
#include "pool/directory/placement.h"
#include "sift/member_ranges.h"
#include "wire/cursor.h"
#include "wire/limits.h"
#include "wire/messages/peer_messages.h"

namespace offpath::sift {

namespace {

constexpr std::string_view options_of_members[] = {"members=", "wait=", "racks=", "cards="};

constexpr std::uint32_t definition_magic = 0x4453464F;  // "OFSD"
constexpr std::uint16_t definition_version = 1;
constexpr std::size_t head_bytes = 12;
constexpr std::string_view reference_option = "?definition=";
constexpr std::size_t hash_bytes = 16;

bool is_pattern(std::string_view names) { return names.find_first_of("*?[") != std::string_view::npos; }

// The options of the pool's text without those that begin with one of these.
std::vector<std::string> options_without(std::string_view text, std::span<const std::string_view> left_out) {
  std::vector<std::string> options;
  for (std::string_view rest = text.size() > name_in(text).size() ? text.substr(name_in(text).size() + 1)
                                                                  : std::string_view{};
       !rest.empty();) {
    const std::string_view option = rest.substr(0, rest.find('&'));
    if (std::ranges::none_of(left_out, [&](std::string_view each) { return option.starts_with(each); }))
      options.emplace_back(option);
    rest.remove_prefix(std::min(rest.size(), option.size() + 1));
  }
  return options;
}

// The pool's text with the members' names in place of patterns, and with these options.
std::string with_members(std::string_view text, std::string_view members) {
  std::vector<std::string> options = options_without(text, options_of_members);
  options.emplace_back(members);
  return fmt::format("{}?{}", name_in(text), fmt::join(options, "&"));
}

// wait= determines when the pool is made; it is not part of the definition.
std::string without_wait(std::string_view text) {
  static constexpr std::string_view wait[] = {"wait="};
  if (text.size() == name_in(text).size()) return std::string(text);
  return fmt::format("{}?{}", name_in(text), fmt::join(options_without(text, wait), "&"));
}

// The members' places: by rack, in the order of racks, and the cards among them.
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

// The same members, or the same agents where the names that were asked for are those of agents.
bool same_names(std::string_view asked, std::string_view existing) {
  std::vector<std::string> names = split_names(asked), others = split_names(existing);
  if (std::ranges::none_of(names, [](const std::string& name) { return group::is_later_core(name); }))
    std::erase_if(others, [](const std::string& name) { return group::is_later_core(name); });
  std::ranges::sort(names);
  std::ranges::sort(others);
  return names == others;
}

}  // namespace

// ---- objects and their names

std::vector<std::byte> encode_definition(std::string_view text) {
  std::vector<std::byte> object;
  wire::Writer writer(object);
  writer.put(definition_magic);
  writer.put(definition_version);
  writer.put(std::uint16_t{0});
  writer.put(static_cast<std::uint32_t>(text.size()));
  writer.put_bytes(bytes_of(text));
  return object;
}

Result<std::string> decode_definition(Bytes object) {
  wire::Reader reader(object);
  const auto found_magic = reader.take<std::uint32_t>();
  const auto found_version = reader.take<std::uint16_t>(), zero = reader.take<std::uint16_t>();
  const auto bytes = reader.take<std::uint32_t>();
  if (!reader.ok() || found_magic != definition_magic || zero != 0 || bytes != reader.left() ||
      object.size() > wire::definition_bytes_max)
    return fail(Error::protocol, "{} bytes that are not a definition of a sift pool", object.size());
  if (found_version != definition_version)
    return fail(Error::version, "a definition of a sift pool has version {}, expected {}", found_version,
                definition_version);
  std::string text(text_of(object.subspan(head_bytes)));
  OFP_ASSIGN(const Settings settings, parse_settings(text));
  if (settings.members.empty() || is_pattern(settings.members) || settings.wait != 0 || settings.samples_ranges)
    return fail(Error::protocol, "the definition of pool \"{}\" does not name its members, or its ranges",
                name_in(text));
  const std::vector<std::string> members = split_names(settings.members);
  if (members.size() > wire::members_max)
    return fail(Error::too_large, "the definition of pool \"{}\" has {} members, at most {} are allowed", name_in(text),
                members.size(), wire::members_max);
  for (const std::string& member : members)
    if (member.empty() || member.size() > wire::name_bytes_max)
      return fail(Error::protocol, "the definition of pool \"{}\" has a member with a name of {} bytes", name_in(text),
                  member.size());
  OFP_ASSIGN(const Definition made, definition_of(text, settings, {}, {}));
  if (made.text != text || std::ranges::adjacent_find(made.members) != made.members.end())
    return fail(Error::protocol, "the definition of pool \"{}\" is not in the form that members write", name_in(text));
  return text;
}

std::string reference_to(std::string_view text) {
  static constexpr std::uint8_t key[16] = {'o', 'f', 'f', 'p', 'a', 't', 'h', ' ', 'd', 'e', 'f', 'i', 'n', 'e', 's'};
  const std::vector<std::byte> object = encode_definition(text);
  std::array<std::uint8_t, hash_bytes> hash;
  ofp_siphash128(key, object.data(), object.size(), hash.data());
  return fmt::format("{}{}{:02x}", name_in(text), reference_option, fmt::join(hash, ""));
}

bool is_reference(std::string_view text) noexcept {
  return text.substr(name_in(text).size()).starts_with(reference_option);
}

std::string shown(std::string_view text) {
  if (text.size() <= wire::pool_bytes_max) return std::string(text);
  return fmt::format("{}...", text.substr(0, wire::pool_bytes_max));
}

// ----

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
  if (const std::size_t agents = group::agents_among(members); agents < settings.wait)
    return fail(Error::would_block, "pool \"{}\" waits for {} members, of which {} are alive", name_in(text),
                settings.wait, agents);
  if (std::ranges::none_of(chosen.members, is_pattern)) {  // with the cores of the agents among them that live
    std::erase_if(members, [&](const std::string& member) {
      return std::ranges::find(chosen.members, member) != chosen.members.end();
    });
    members.insert(members.end(), chosen.members.begin(), chosen.members.end());
    std::ranges::sort(members);
    for (const std::string& member : members)
      if (member.empty() || member.size() > wire::name_bytes_max)
        return fail(Error::invalid, "pool \"{}\": members= has a name of {} bytes, 1 to {} are expected", name_in(text),
                    member.size(), wire::name_bytes_max);
  }
  if (members.empty()) return fail(Error::not_found, "pool \"{}\": none of its members is alive", text);
  std::string full;
  const bool has_places = !settings.places.empty() && !settings.members.empty();
  if (settings.mapped() && has_places && std::ranges::none_of(chosen.members, is_pattern)) {  // it is a definition
    full = without_wait(text);
  } else if (settings.mapped()) {
    OFP_ASSIGN(const std::string places, with_places(text, members, alive, place_of));
    full = with_members(text, places);
  } else {
    full = with_members(text, fmt::format("members={}", fmt::join(members, ",")));
    if (full.size() > wire::pool_bytes_max)
      full = with_members(text, fmt::format("members={}", member_ranges(members)));
  }
  if (full.size() + head_bytes > wire::definition_bytes_max)
    return fail(Error::too_large,
                "pool \"{}\": its definition with the names of its {} members has {} bytes, at most {} are allowed",
                name_in(text), members.size(), full.size(), wire::definition_bytes_max - head_bytes);
  return Definition{std::move(full), std::move(members)};
}

Status check_same(std::string_view text, const Settings& existing, std::string_view definition) {
  if (text.size() == name_in(text).size() || text == definition) return {};
  OFP_ASSIGN(Settings asked, parse_settings(text));
  if (asked.samples_ranges && existing.by == KeyBy::range) {  // whatever they were
    asked.ranges = existing.ranges;
    asked.samples_ranges = false;
  }
  if (!asked.members.empty() && !is_pattern(asked.members) && !same_names(asked.members, existing.members))
    return fail(
        Error::exists,
        "pool \"{}\" has the members {}, and not {}: a pool keeps the members that were alive when it was made; drop "
        "it to make it again with others",
        name_in(text), shown(member_ranges(split_names(existing.members))),
        shown(member_ranges(split_names(asked.members))));
  if (!same_but_members(asked, existing))
    return fail(Error::exists, "pool \"{}\" exists already, as \"{}\"; leave the options out to use it", shown(text),
                shown(definition));
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
