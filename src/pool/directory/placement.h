// Which members have a row: pure functions of the row's and the members' names, so agents that know the same members
// agree without messages.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pool/directory/pool_name.h"

namespace offpath::pool {

// Spread over 64 bits. It must never change: placement depends on it.
[[nodiscard]] std::uint64_t hash_of(std::string_view text) noexcept;

// The members of `alive` (sorted by name) that match `options.members`. A pattern that fits an agent fits all of its
// cores (group/core_name.h).
[[nodiscard]] std::vector<std::string> members_of(const PoolOptions& options, std::span<const std::string> alive);

// The row's owners in order: options.replicas of them, or all members, each of another agent. `members` is the result
// of members_of.
//
// hash: rendezvous hashing (Thaler and Ravishankar, 1998): the members with the largest hash of row and member. A
// member that joins or leaves moves its own share of rows only. rank and tag: neighbours in the order of names, so a
// change of members moves most rows. local: as hash, over the cores of one agent.
[[nodiscard]] std::vector<std::string> owners_of(Policy policy, std::uint32_t replicas, std::string_view row,
                                                 std::span<const std::string> members);

}  // namespace offpath::pool
