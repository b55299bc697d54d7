// The agent as a coworker: runs tasks of the plug-in `md` on the agent at OFFPATH_AGENT.
#pragma once

#include <memory>

#include "md/offload/coworker.h"
#include "md/offload/offloaded.h"
#include "md/ranks/ranks.h"

namespace md {

// Throws offpath::Error if there is no agent. `team`: of this run, for agents that exchange messages; or empty.
std::unique_ptr<Coworker> make_agent_coworker(const Ranks& ranks, const OffloadShape& shape,
                                              const std::string& team = "");

}  // namespace md
