// How agent.cores = N turns an agent's settings into those of N agents, which share its addresses, its memory and its
// name.
//
// Read this first in src/agent/cores, then core_loads.h (which core has how many connections), hand_over.h (how a
// connection reaches its core) and core_processes.h (who starts, watches and ends the cores).
#pragma once

#include <string>
#include <vector>

#include "agent/config/settings.h"

namespace offpath::agent {

// Where other members reach a core: beside each Unix socket that begins the list, and at the port behind each network
// address of the agent. agent.sock has agent+0.sock, agent+1.sock …; tcp:HOST:7700 has 7701, 7702 …
[[nodiscard]] std::vector<link::Address> addresses_of_core(const std::vector<link::Address>& agent, unsigned core);

// The settings of one core, whose addresses are those of addresses_of_core.
[[nodiscard]] AgentSettings settings_of_core(const AgentSettings& agent, unsigned core);

// Directories with objects of cores that this agent does not start; each is a sentence for the log.
[[nodiscard]] std::vector<std::string> objects_left_out(const AgentSettings& agent);

}  // namespace offpath::agent
