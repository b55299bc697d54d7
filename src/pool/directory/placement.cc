#include "pool/directory/placement.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/hash/fnv1a.h"
#include "base/hash/mix.h"
#include "base/text.h"
#include "group/core_name.h"
#include "pool/directory/glob.h"

namespace offpath::pool {

namespace {

std::string_view digits_at_end(std::string_view row) noexcept {
  const auto last_other = row.find_last_not_of("0123456789");
  return last_other == std::string_view::npos ? row : row.substr(last_other + 1);
}

std::string_view in_braces(std::string_view row) noexcept {
  const auto open = row.find('{');
  const auto close = open == std::string_view::npos ? open : row.find('}', open);
  return close == std::string_view::npos ? std::string_view{} : row.substr(open + 1, close - open - 1);
}

// Of several cores of one agent only the first one counts: copies are there for what ends an agent, or its machine.
bool has_core_of_same_agent(const std::vector<std::string>& owners, std::string_view member) {
  return std::ranges::any_of(
      owners, [&](const std::string& owner) { return group::agent_of(owner) == group::agent_of(member); });
}

std::vector<std::string> from_place(std::uint64_t place, std::size_t count, std::span<const std::string> members) {
  std::vector<std::string> owners;
  for (std::size_t i = 0; i < members.size() && owners.size() < count; ++i) {
    const std::string& member = members[(place + i) % members.size()];
    if (!has_core_of_same_agent(owners, member)) owners.push_back(member);
  }
  return owners;
}

std::vector<std::string> rendezvous(std::string_view text, std::size_t count, std::span<const std::string> members) {
  const std::uint64_t row = hash_of(text);
  std::vector<std::pair<std::uint64_t, const std::string*>> ranked;
  ranked.reserve(members.size());
  bool has_cores = false;
  for (const std::string& member : members) {
    ranked.emplace_back(mix(row ^ hash_of(member)), &member);
    has_cores |= group::is_later_core(member);
  }
  const std::size_t sorted = has_cores && count > 1 ? ranked.size() : count;
  std::ranges::partial_sort(
      ranked, ranked.begin() + static_cast<std::ptrdiff_t>(sorted),
      [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : *a.second < *b.second; });
  std::vector<std::string> owners;
  for (std::size_t i = 0; i < sorted && owners.size() < count; ++i)
    if (!has_core_of_same_agent(owners, *ranked[i].second)) owners.push_back(*ranked[i].second);
  return owners;
}

}  // namespace

std::uint64_t hash_of(std::string_view text) noexcept { return mix(fnv1a(text)); }

std::vector<std::string> members_of(const PoolOptions& options, std::span<const std::string> alive) {
  std::vector<std::string> members;
  for (const std::string& member : alive)
    if (std::ranges::any_of(options.members, [&](const std::string& pattern) {
          return glob_matches(pattern, member) || glob_matches(pattern, group::agent_of(member));
        }))
      members.push_back(member);
  return members;
}

std::vector<std::string> owners_of(Policy policy, std::uint32_t replicas, std::string_view row,
                                   std::span<const std::string> members) {
  if (members.empty()) return {};
  const std::size_t count = std::min<std::size_t>(replicas, members.size());
  switch (policy) {
    case Policy::local:  // of several members only if they are the cores of one agent
    case Policy::hash:
      return rendezvous(row, count, members);
    case Policy::rank:
      if (const auto rank = number_of<std::uint64_t>(digits_at_end(row))) return from_place(*rank, count, members);
      return rendezvous(row, count, members);
    case Policy::tag: {
      const std::string_view tag = in_braces(row);
      if (const auto number = number_of<std::uint64_t>(tag)) return from_place(*number, count, members);
      return rendezvous(tag.empty() ? row : tag, count, members);
    }
  }
  return {};
}

}  // namespace offpath::pool
