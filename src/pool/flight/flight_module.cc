#include "pool/flight/flight_table.h"

extern "C" __attribute__((visibility("default")))
const offpath::pool::FlightTable ofp_flight{OFFPATH_MODULE_ID, offpath::pool::FlightServer::start};
