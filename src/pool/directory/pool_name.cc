#include "pool/directory/pool_name.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/config.h"
#include "base/text.h"
#include "wire/limits.h"

namespace offpath::pool {

namespace {

constexpr std::string_view policies[] = {"local", "hash", "rank", "tag"};
constexpr std::string_view spills[] = {"off", "on", "durable"};

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

template <class Number>
Result<Number> parse_number(std::string_view text, Number min, Number max) {
  const auto number = number_of<Number>(text);
  if (!number || *number < min || *number > max)
    return fail(Error::invalid, "\"{}\" is not a number from {} to {}", text, min, max);
  return *number;
}

Status set_option(PoolOptions& options, std::string_view key, std::string_view value) {
  if (key == "members") {
    options.members = split(value, ',');
    if (std::ranges::any_of(options.members, &std::string::empty)) return fail(Error::invalid, "an empty pattern");
  } else if (key == "replicas") {
    OFP_ASSIGN(options.replicas, parse_number<std::uint32_t>(value, 1, replicas_max));
  } else if (key == "min_copies") {
    OFP_ASSIGN(options.min_copies, parse_number<std::uint32_t>(value, 1, replicas_max));
  } else if (key == "budget") {
    OFP_ASSIGN(const std::int64_t bytes, parse_bytes(value));
    if (bytes <= 0) return fail(Error::invalid, "\"{}\" is not a budget", value);
    options.budget_bytes = static_cast<std::uint64_t>(bytes);
  } else if (key == "ttl") {
    OFP_ASSIGN(options.ttl_ns, parse_duration_ns(value));
    if (options.ttl_ns < millisecond_ns) return fail(Error::invalid, "\"{}\" is less than 1ms", value);
  } else if (key == "overwrite") {
    if (value != "yes" && value != "no") return fail(Error::invalid, "\"{}\" is neither yes nor no", value);
    options.overwrite = value == "yes";
  } else if (key == "readers") {
    for (const std::string& each : split(value, ',')) {
      OFP_ASSIGN(const uid_t user, parse_number<uid_t>(each, 0, UINT32_MAX - 1));
      options.readers.push_back(user);
    }
  } else if (key == "spill") {
    const auto at = std::ranges::find(spills, value);
    if (at == std::end(spills)) return fail(Error::invalid, "\"{}\" is not one of off, on, durable", value);
    options.spill = static_cast<Spill>(at - std::begin(spills));
  } else {
    return fail(Error::invalid,
                "there is no such option; the options are: members, replicas, min_copies, budget, ttl, overwrite, "
                "readers, spill");
  }
  return {};
}

}  // namespace

std::string PoolName::text() const {
  const PoolOptions usual;
  std::vector<std::string> said;
  if (options.members != usual.members) said.push_back(fmt::format("members={}", fmt::join(options.members, ",")));
  if (options.replicas != usual.replicas) said.push_back(fmt::format("replicas={}", options.replicas));
  if (options.min_copies != usual.min_copies) said.push_back(fmt::format("min_copies={}", options.min_copies));
  if (options.budget_bytes != 0) said.push_back(fmt::format("budget={}", options.budget_bytes));
  if (options.ttl_ns != 0) said.push_back(fmt::format("ttl={}ns", options.ttl_ns));
  if (!options.overwrite) said.emplace_back("overwrite=no");
  if (!options.readers.empty()) said.push_back(fmt::format("readers={}", fmt::join(options.readers, ",")));
  if (options.spill != usual.spill)
    said.push_back(fmt::format("spill={}", spills[static_cast<std::size_t>(options.spill)]));
  return said.empty() ? name : fmt::format("{}?{}", name, fmt::join(said, "&"));
}

bool is_reserved(std::string_view name) noexcept { return name.find(kept_mark) != std::string_view::npos; }

Status check_not_reserved(std::string_view text) {
  const std::string_view name = text.substr(0, text.find('?'));
  if (!is_reserved(name)) return {};
  return fail(Error::denied,
              "pool \"{}\": names with \"{}\" are reserved for the agent's own objects; choose another one",
              brief(name), kept_mark);
}

Result<PoolName> parse_pool_name(std::string_view text) {
  if (text.size() > wire::pool_bytes_max)
    return fail(Error::too_large, "a pool's name of {} bytes, at most {} are allowed", text.size(),
                wire::pool_bytes_max);
  PoolName parsed;
  const std::size_t mark = text.find('?');
  parsed.name = text.substr(0, mark);
  const std::size_t colon = parsed.name.find(":/");
  const auto policy =
      std::ranges::find(policies, std::string_view(parsed.name).substr(0, colon == std::string::npos ? 0 : colon));
  if (colon == std::string::npos || policy == std::end(policies))
    return fail(Error::unsupported, "pool \"{}\": a pool's name begins with one of local:/ hash:/ rank:/ tag:/", text);
  if (colon + 2 == parsed.name.size()) return fail(Error::invalid, "pool \"{}\" has no name", text);
  parsed.policy = static_cast<Policy>(policy - std::begin(policies));
  parsed.has_options = mark != std::string_view::npos;
  if (!parsed.has_options) return parsed;
  for (const std::string& option : split(text.substr(mark + 1), '&')) {
    const std::size_t equals = option.find('=');
    const std::string key = option.substr(0, equals);
    if (equals == std::string::npos)
      return fail(Error::invalid, "pool \"{}\": option \"{}\" has no value", parsed.name, option);
    if (auto set = set_option(parsed.options, key, std::string_view(option).substr(equals + 1)); !set)
      return fail(set.error().code, "pool \"{}\": {}: {}", parsed.name, key, set.error().message);
  }
  if (parsed.options.min_copies > parsed.options.replicas)
    return fail(Error::invalid, "pool \"{}\": min_copies: {} of {} replicas; there cannot be more copies than replicas",
                parsed.name, parsed.options.min_copies, parsed.options.replicas);
  if (parsed.policy == Policy::local &&
      (parsed.options.replicas > 1 || parsed.options.members != PoolOptions().members))
    return fail(Error::invalid, "pool \"{}\": a local pool has neither members nor replicas", parsed.name);
  return parsed;
}

}  // namespace offpath::pool
