#include "pool/directory/placement.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/hash/fnv1a.h"
#include "base/hash/mix.h"
#include "base/text.h"
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

std::vector<std::string> from_place(std::uint64_t place, std::size_t count, std::span<const std::string> members) {
  std::vector<std::string> owners;
  for (std::size_t i = 0; i < count; ++i) owners.push_back(members[(place + i) % members.size()]);
  return owners;
}

std::vector<std::string> rendezvous(std::string_view text, std::size_t count, std::span<const std::string> members) {
  const std::uint64_t row = hash_of(text);
  std::vector<std::pair<std::uint64_t, const std::string*>> ranked;
  ranked.reserve(members.size());
  for (const std::string& member : members) ranked.emplace_back(mix(row ^ hash_of(member)), &member);
  std::ranges::partial_sort(
      ranked, ranked.begin() + static_cast<std::ptrdiff_t>(count),
      [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : *a.second < *b.second; });
  std::vector<std::string> owners;
  for (std::size_t i = 0; i < count; ++i) owners.push_back(*ranked[i].second);
  return owners;
}

}  // namespace

std::uint64_t hash_of(std::string_view text) noexcept { return mix(fnv1a(text)); }

std::vector<std::string> members_of(const PoolOptions& options, std::span<const std::string> alive) {
  std::vector<std::string> members;
  for (const std::string& member : alive)
    if (std::ranges::any_of(options.members, [&](const std::string& pattern) { return glob_matches(pattern, member); }))
      members.push_back(member);
  return members;
}

std::vector<std::string> owners_of(Policy policy, std::uint32_t replicas, std::string_view row,
                                   std::span<const std::string> members) {
  if (members.empty()) return {};
  const std::size_t count = std::min<std::size_t>(replicas, members.size());
  switch (policy) {
    case Policy::local:
      return from_place(0, count, members);
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
