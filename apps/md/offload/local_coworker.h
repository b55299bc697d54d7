// A coworker in this process, which does what it is asked at once: the same numbers as the agent's, and no time won.
#pragma once

#include <memory>

#include "md/offload/coworker.h"
#include "md/offload/offloaded.h"

namespace md {

std::unique_ptr<Coworker> make_local_coworker(const OffloadShape& shape = {});

}  // namespace md
