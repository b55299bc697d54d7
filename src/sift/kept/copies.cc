#include "sift/kept/copies.h"

#include <algorithm>

#include <fmt/format.h>

#include "group/core_name.h"
#include "pool/directory/placement.h"
#include "service/buffer_cache.h"
#include "sift/kept/journal.h"

namespace offpath::sift {

namespace {

constexpr std::size_t members_of_ring_max = 16;
constexpr std::uint32_t salts_max = 1 << 16;

// The number of members whose rows have a copy with this one. With many members the rows are not searched: the result
// is the mean plus one.
std::uint64_t rows_held(std::span<const std::string> members, std::uint32_t replicas, const std::string& self) {
  if (replicas < 2 || members.size() < 2) return 0;
  if (members.size() > members_of_ring_max) return replicas;
  std::uint64_t held = 0;
  for (const std::string& other : members) {
    if (other == self) continue;
    const std::vector<std::string> owners =
        pool::owners_of(pool::Policy::hash, replicas, kept_row(other, replicas, members), members);
    if (std::ranges::find(owners, self) != owners.end()) ++held;
  }
  return held;
}

}  // namespace

std::string kept_row(const std::string& self, std::uint32_t replicas, std::span<const std::string> members) {
  if (replicas == 1) return self;
  const auto at = std::ranges::find(members, self);
  const std::string& next = std::next(at) == members.end() ? members.front() : *std::next(at);
  const bool may_be_second = members.size() <= members_of_ring_max && group::agent_of(next) != group::agent_of(self);
  std::string first_here = self;
  for (std::uint32_t salt = 0; salt < salts_max; ++salt) {
    std::string row = fmt::format("{}#{:x}", self, salt);
    const std::vector<std::string> owners = pool::owners_of(pool::Policy::hash, 2, row, members);
    if (owners.front() != self) continue;
    if (owners.size() < 2 || owners[1] == next || !may_be_second) return row;
    if (first_here == self) first_here = std::move(row);
  }
  return first_here;
}

std::uint64_t copies_bytes(const Geometry& geometry, std::uint32_t member) {
  const Settings& settings = geometry.settings();
  const std::uint64_t rows = rows_held(geometry.members(), settings.replicas, geometry.members()[member]);
  if (rows == 0) return 0;
  // A record of an element's split exists until the next one.
  std::uint64_t records = 0;
  for (std::uint32_t stage = 1; stage <= settings.stages; ++stage)
    records += 2 * (1 + (stage == 1 ? 0 : geometry.held_max(stage)));
  const std::uint64_t stages = settings.durable ? 1 : settings.track_stage();
  return rows * (stages * settings.budget_bytes + records * service::BufferCache::class_bytes(kept_notes_bytes_max));
}

bool copy_stays(std::string_view name) {
  const auto kept = KeptName::parse(name);
  return kept && kept->kind == KeptName::Kind::run;
}

}  // namespace offpath::sift
