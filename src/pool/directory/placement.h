// Which members have a row: pure functions of its name and theirs, so that everybody who knows the same members comes
// to the same answer without asking anybody.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pool/directory/pool_name.h"

namespace offpath::pool {

// Spread over 64 bits; the same everywhere and for ever, as placement depends on it.
[[nodiscard]] std::uint64_t hash_of(std::string_view text) noexcept;

// Those of `alive` (sorted by name) that `options.members` names.
[[nodiscard]] std::vector<std::string> members_of(const PoolOptions& options, std::span<const std::string> alive);

// The row's owners, the first one first: options.replicas of them, or all there are. `members` as members_of returns
// them.
//
// hash: rendezvous hashing (Thaler and Ravishankar, 1998): the members with the largest hash of row and member. One
// that leaves or comes moves its own share of rows and no other. rank and tag: neighbours in the order of names, so a
// change of members moves most rows.
[[nodiscard]] std::vector<std::string> owners_of(Policy policy, std::uint32_t replicas, std::string_view row,
                                                 std::span<const std::string> members);

}  // namespace offpath::pool
