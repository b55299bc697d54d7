#include "mover/agent_serialise_table.h"

extern "C" __attribute__((visibility("default")))
const offpath::mover::SerialiseTable ofp_serialise{OFFPATH_MODULE_ID, offpath::mover::make_agent_serialiser};
