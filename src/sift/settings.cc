#include "sift/settings.h"

#include <fmt/ranges.h>

#include "base/config.h"
#include "base/text.h"
#include "pool/directory/pool_name.h"
#include "sift/member_ranges.h"
#include "wire/limits.h"
#include "wire/messages/peer_messages.h"

namespace offpath::sift {

namespace {

constexpr std::string_view scheme = "sift:";

Result<std::uint32_t> parse_number(std::string_view name, std::string_view text) {
  const auto number = number_of<std::uint32_t>(text);
  if (!number) return fail(Error::invalid, "{}={}: a number is expected", name, text);
  return *number;
}

Result<std::uint64_t> parse_size(std::string_view name, std::string_view text) {
  const auto bytes = parse_bytes(text);
  if (!bytes) return fail(Error::invalid, "{}={}: {}", name, text, bytes.error().message);
  return static_cast<std::uint64_t>(*bytes);
}

// The stage of "stage2"; 0: another setting. Each has one name: "stage02" would set it twice.
std::uint32_t stage_of(std::string_view name) {
  constexpr std::string_view stage = "stage";
  if (!name.starts_with(stage) || name.substr(stage.size()).starts_with('0')) return 0;
  return number_of<std::uint32_t>(name.substr(stage.size())).value_or(0);
}

// Calls `take` with each name of "a,b{1..3}".
template <class Take>
Status each_name(std::string_view text, const Take& take) {
  OFP_ASSIGN(const std::string names, member_names(text));
  for (std::string_view rest = names; !rest.empty();) {
    const std::string name(rest.substr(0, rest.find(',')));
    OFP_TRY(take(name));
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
  }
  return {};
}

// Members by rack; these are all members if no others are named.
Status set_racks(Settings& settings, std::string_view text) {
  std::string all;
  while (!text.empty()) {
    const std::string_view group = text.substr(0, text.find('|'));
    const std::size_t colon = group.find(':');
    if (colon == std::string_view::npos) return fail(Error::invalid, "racks: '{}': RACK:NAMES is expected", group);
    OFP_TRY(each_name(group.substr(colon + 1), [&](const std::string& name) -> Status {
      if (settings.places.size() == wire::members_max)
        return fail(Error::too_large, "racks: more than {} members", wire::members_max);
      if (!settings.places.emplace(name, MemberPlace{std::string(group.substr(0, colon))}).second)
        return fail(Error::invalid, "racks: '{}' is listed twice", name);
      all += fmt::format("{}{}", all.empty() ? "" : ",", name);
      return {};
    }));
    text.remove_prefix(std::min(group.size() + 1, text.size()));
  }
  if (settings.members.empty()) settings.members = std::move(all);
  return {};
}

// Called when the racks are known.
Status set_cards(Settings& settings, std::string_view text) {
  return each_name(text, [&](const std::string& card) -> Status {
    const auto place = settings.places.find(card);
    if (place == settings.places.end())
      return fail(Error::invalid, "cards: '{}' is not one of the members that racks= says", card);
    place->second.is_card = true;
    return {};
  });
}

Status set(Settings& settings, std::string_view name, std::string_view text) {
  if (name == "key")
    settings.key = text;
  else if (name == "by") {
    if (text != "bits" && text != "hash" && text != "range")
      return fail(Error::invalid, "by={}: bits, hash or range is expected", text);
    settings.by = text == "bits" ? KeyBy::bits : text == "hash" ? KeyBy::hash : KeyBy::range;
  } else if (name == "ranges" && text == "sample") {
    settings.samples_ranges = true;
  } else if (name == "ranges") {
    for (std::string_view rest = text;; rest.remove_prefix(settings.ranges.back().size() + 1)) {
      settings.ranges.emplace_back(rest.substr(0, rest.find(',')));
      if (settings.ranges.back().size() == rest.size()) break;
    }
  } else if (name == "members") {
    OFP_ASSIGN(settings.members, member_names(text));
  } else if (const std::uint32_t stage = stage_of(name); stage != 0) {
    if (const auto selector = parse_selector(text); !selector)
      return fail(Error::invalid, "{}: {}", name, selector.error().message);
    settings.selectors.emplace(stage, text);
  } else if (name == "racks") {
    OFP_TRY(set_racks(settings, text));
  } else if (name == "wait") {
    OFP_ASSIGN(settings.wait, parse_number(name, text));
  } else if (name == "stages") {
    OFP_ASSIGN(settings.stages, parse_number(name, text));
  } else if (name == "fanout") {
    OFP_ASSIGN(settings.fanout, parse_number(name, text));
  } else if (name == "replicas") {
    OFP_ASSIGN(settings.replicas, parse_number(name, text));
  } else if (name == "spill") {
    if (text != "off" && text != "on" && text != "durable")
      return fail(Error::invalid, "spill={}: off, on or durable is expected", text);
    settings.durable = text == "durable";
    settings.spill_on = text == "on";
  } else if (name == "tracks_budget") {
    OFP_ASSIGN(settings.tracks_budget_bytes, parse_size(name, text));
  } else if (name == "threshold") {
    OFP_ASSIGN(settings.threshold_bytes, parse_size(name, text));
  } else if (name == "budget") {
    OFP_ASSIGN(settings.budget_bytes, parse_size(name, text));
  } else if (name == "credit") {
    OFP_ASSIGN(settings.credit_bytes, parse_size(name, text));
  } else if (name == "age") {
    const auto age = parse_duration_ns(text);
    if (!age) return fail(Error::invalid, "age={}: {}", text, age.error().message);
    settings.age_ns = *age;
  } else {
    return fail(Error::invalid,
                "'{}' is not a setting of a sift pool: key, by, ranges, stages, fanout, threshold, age, budget, "
                "credit, members, "
                "wait, replicas, spill, tracks_budget, and stage1 and so on are",
                name);
  }
  return {};
}

// Called before the type of identifiers is known: some type must have all of these values.
Status check_ranges(const Settings& settings) {
  using frame::Type;
  constexpr std::pair<Type, std::uint32_t> types[] = {{Type::int64, 8},        {Type::uint64, 8},
                                                      {Type::float64, 8},      {Type::fixed_binary, 8},
                                                      {Type::decimal256, 32u}, {Type::binary, 0}};
  for (const auto& [type, value_bytes] : types)
    if (KeyForm::make({.name = settings.key, .type = type}, value_bytes, settings.key_rule())) return {};
  return fail(Error::invalid, "ranges={}: ascending values of one type of identifiers are expected",
              fmt::join(settings.ranges, ","));
}

}  // namespace

Result<Settings> parse_settings(std::string_view name) {
  if (!name.starts_with(scheme))
    return fail(Error::invalid, "'{}' is not the name of a sift pool, which begins with 'sift:'", name);
  name.remove_prefix(scheme.size());
  Settings settings;
  const std::size_t question = std::min(name.find('?'), name.size());
  settings.pool = name.substr(0, question);
  std::string_view rest = name.substr(std::min(question + 1, name.size()));
  std::string seen = "&";
  std::string_view cards;
  while (!rest.empty()) {
    const std::string_view setting = rest.substr(0, std::min(rest.find('&'), rest.size()));
    rest.remove_prefix(std::min(setting.size() + 1, rest.size()));
    const std::size_t equals = setting.find('=');
    if (equals == std::string_view::npos || equals + 1 == setting.size())
      return fail(Error::invalid, "'{}' of '{}': name=value is expected", setting, settings.pool);
    const std::string_view which = setting.substr(0, equals);
    if (seen.find(fmt::format("&{}&", which)) != std::string::npos)
      return fail(Error::invalid, "'{}' is set twice for '{}'", which, settings.pool);
    seen += fmt::format("{}&", which);
    if (which == "cards")
      cards = setting.substr(equals + 1);
    else
      OFP_TRY(set(settings, which, setting.substr(equals + 1)));
  }
  OFP_TRY(set_cards(settings, cards));
  if (settings.budget_bytes == 0)
    settings.budget_bytes = settings.threshold_bytes < (1ull << 50) ? 8 * settings.threshold_bytes : 0;
  if (settings.credit_bytes == 0) settings.credit_bytes = settings.budget_bytes;
  if (settings.spill_on && settings.tracks_budget_bytes == 0)
    settings.tracks_budget_bytes = std::max(settings.budget_bytes, tracks_budget_bytes_min);
  OFP_TRY(check(settings));
  return settings;
}

bool same_but_members(Settings a, Settings b) {
  a.members = b.members = {};
  a.places = b.places = {};
  a.wait = b.wait = 0;
  return a == b;
}

Status check(const Settings& settings) {
  if (settings.pool.size() < 2 || settings.pool[0] != '/')
    return fail(Error::invalid, "'{}' is not a pool's name: '/' and a name are expected", settings.pool);
  if (settings.pool.size() > wire::pool_bytes_max - reference_more_bytes)
    return fail(Error::too_large, "the name of a sift pool has {} bytes, at most {} are allowed", settings.pool.size(),
                wire::pool_bytes_max - reference_more_bytes);
  if (settings.key.empty())
    return fail(Error::invalid, "sift pool '{}' needs key=COLUMN, the column with identifiers", settings.pool);
  if (settings.fanout < 2 || settings.fanout > fanout_max || !std::has_single_bit(settings.fanout))
    return fail(Error::invalid, "fanout={}: a power of two from 2 to {} is expected", settings.fanout, fanout_max);
  if (settings.stages < 1 || settings.stages * std::uint64_t{settings.fanout_bits()} > matched_bits_max) {
    return fail(
        Error::invalid, "stages={} with fanout={} makes {} bits of the identifier, 1 stage to {} bits are allowed",
        settings.stages, settings.fanout, settings.stages * std::uint64_t{settings.fanout_bits()}, matched_bits_max);
  }
  if ((settings.by == KeyBy::range) == (settings.ranges.empty() && !settings.samples_ranges))
    return fail(Error::invalid,
                "by=range needs ranges=, the least identifier of each range but the first, or ranges=sample; and "
                "ranges= needs by=range");
  if (settings.ranges.size() >= settings.elements(settings.track_stage()))
    return fail(Error::invalid, "ranges= makes {} ranges, stages={} with fanout={} makes {} elements",
                settings.ranges.size() + 1, settings.stages, settings.fanout,
                settings.elements(settings.track_stage()));
  if (settings.by == KeyBy::range) OFP_TRY(check_ranges(settings));
  if (settings.threshold_bytes < threshold_bytes_min)
    return fail(Error::invalid, "threshold={}: at least {} bytes are expected", settings.threshold_bytes,
                threshold_bytes_min);
  if (settings.budget_bytes < settings.threshold_bytes)
    return fail(Error::invalid, "budget={} is less than threshold={}", settings.budget_bytes, settings.threshold_bytes);
  if (settings.credit_bytes < 1) return fail(Error::invalid, "credit=0: nothing could be published");
  if (settings.age_ns <= 0) return fail(Error::invalid, "age={} ns: more than 0 is expected", settings.age_ns);
  if (!settings.selectors.empty() && settings.selectors.rbegin()->first > settings.track_stage())
    return fail(Error::invalid, "stage{}=: with stages={} there are stage1 to stage{}, which keeps the tracks",
                settings.selectors.rbegin()->first, settings.stages, settings.track_stage());
  if (settings.replicas < 1 || settings.replicas > pool::replicas_max)
    return fail(Error::invalid, "replicas={}: 1 to {} are expected", settings.replicas, pool::replicas_max);
  if (settings.spills() && !settings.spill_on && !settings.durable)
    return fail(Error::invalid, "tracks_budget={}: tracks leave memory with spill=on or spill=durable only",
                settings.tracks_budget_bytes);
  if (settings.spills() && settings.tracks_budget_bytes < tracks_budget_bytes_min)
    return fail(Error::invalid, "tracks_budget={}: at least {} bytes are expected", settings.tracks_budget_bytes,
                tracks_budget_bytes_min);
  if (settings.spills() && settings.replicas > 1)
    return fail(Error::unsupported,
                "{} with replicas={}: copies of tracks stay in memory, which tracks_budget= would not bound",
                settings.spill_on ? "spill=on" : "tracks_budget=", settings.replicas);
  if (settings.mapped() && settings.kept())
    return fail(Error::unsupported,
                "stage{}= with replicas or spill=durable: stages of a pool that keeps copies cannot "
                "be mapped",
                settings.selectors.begin()->first);
  return {};
}

}  // namespace offpath::sift
