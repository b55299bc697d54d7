// A coworker in this process that does its tasks at once: the same numbers as the agent's, but without saving time.
#pragma once

#include <memory>

#include "md/offload/coworker.h"
#include "md/offload/offloaded.h"

namespace md {

// `messages`: to the coworkers of other ranks, which exchange at once, too.
std::unique_ptr<Coworker> make_local_coworker(const OffloadShape& shape = {}, RankMessages* messages = nullptr);

}  // namespace md
