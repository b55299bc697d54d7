// Names of an agent's cores. An agent of several loops (agent.cores) is as many members of its group: NAME, NAME+1,
// NAME+2 … Everybody tells by the names alone which members are one agent: two copies of a row are never on cores of
// the same agent, and a pattern of members that names an agent names all of its cores.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace offpath::group {

inline constexpr unsigned cores_max = 64;  // of one agent

// Core 0 has the agent's own name.
[[nodiscard]] std::string core_name(std::string_view agent, unsigned core);

// The agent of which the member is a core; of any other member the member itself.
[[nodiscard]] std::string_view agent_of(std::string_view member) noexcept;
[[nodiscard]] inline bool is_later_core(std::string_view member) noexcept { return agent_of(member) != member; }

// The number of agents that these members are.
[[nodiscard]] std::size_t agents_among(std::span<const std::string> members);

}  // namespace offpath::group
