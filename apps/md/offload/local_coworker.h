// A coworker in this process that does its tasks at once: the same numbers as the agent's, but without saving time.
#pragma once

#include <memory>

#include "md/offload/coworker.h"
#include "md/offload/offloaded.h"

namespace md {

std::unique_ptr<Coworker> make_local_coworker(const OffloadShape& shape = {});

}  // namespace md
