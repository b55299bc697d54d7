// The agent as a coworker: runs tasks of the plug-in `md` on the agent at OFFPATH_AGENT.
#pragma once

#include <memory>

#include "md/offload/coworker.h"
#include "md/offload/offloaded.h"

namespace md {

// Throws offpath::Error if there is no agent.
std::unique_ptr<Coworker> make_agent_coworker(int rank, int ranks, const OffloadShape& shape);

}  // namespace md
