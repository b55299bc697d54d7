// The table that the module of Arrow Flight exports (mover/arrow_modules.h).
#pragma once

#include "pool/flight/flight_server.h"

namespace offpath::pool {

struct FlightTable {
  const char* version;
  decltype(&FlightServer::start) start;
};
inline constexpr const char* flight_table_name = "ofp_flight";

}  // namespace offpath::pool
