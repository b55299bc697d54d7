// libarrow is in two modules of the agent (base/module/module.h), which the first request that needs them loads. It and
// gRPC, which Flight brings, have relocations and static objects of 2.7 MiB that no other process shares, and most
// agents never compute a query.
//
//   liboffpath_arrow-ID.so   ofp_serialise   streams of other forms   mover/agent_serialise_table.h
//                            ofp_query       queries                  pool/query/query_table.h
//   liboffpath_flight-ID.so  ofp_flight      the Flight endpoint      pool/flight/flight_table.h
//
// ID is a sum over the sources of both sides (OffpathLayout.cmake). An agent that runs on after an upgrade looks for
// the files that it was built with, and never loads others.
//
// A target with the property OFFPATH_LOADS_ARROW, the agent, has *_loaded.cc of these folders. All others, tests among
// them, are linked with libarrow and the same sources as the modules.
#pragma once

#include "base/module/module.h"

namespace offpath::mover {

// `purpose`: the user of libarrow, for errors.
[[nodiscard]] constexpr Module arrow_module(std::string_view purpose) {
  return {"liboffpath_arrow-" OFFPATH_MODULE_ID ".so", OFFPATH_MODULES_FROM_BIN, OFFPATH_MODULE_ID, purpose,
          "offpath-agent"};
}
[[nodiscard]] constexpr Module flight_module(std::string_view purpose) {
  return {"liboffpath_flight-" OFFPATH_MODULE_ID ".so", OFFPATH_MODULES_FROM_BIN, OFFPATH_MODULE_ID, purpose,
          "offpath-agent"};
}

}  // namespace offpath::mover
