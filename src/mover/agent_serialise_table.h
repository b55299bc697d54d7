// The exports of the libarrow module for streams (arrow_modules.h).
#pragma once

#include "mover/agent_serialise.h"

namespace offpath::mover {

struct SerialiseTable {
  const char* version;
  decltype(&make_agent_serialiser) make;
};
inline constexpr const char* serialise_table_name = "ofp_serialise";

}  // namespace offpath::mover
