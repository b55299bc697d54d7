// The agent as a coworker: tasks of the plug-in `md` at the agent that OFFPATH_AGENT names.
#pragma once

#include <memory>

#include "md/offload/coworker.h"
#include "md/offload/offloaded.h"

namespace md {

// Throws offpath::Error where there is no agent.
std::unique_ptr<Coworker> make_agent_coworker(int rank, int ranks, const OffloadShape& shape);

}  // namespace md
