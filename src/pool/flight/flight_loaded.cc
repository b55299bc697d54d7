// Implements flight_server.h by the module of Arrow Flight, which agents with flight.listen load at start.
#include <utility>

#include "mover/arrow_modules.h"
#include "pool/flight/flight_table.h"

namespace offpath::pool {

Result<std::unique_ptr<FlightServer>> FlightServer::start(FlightOptions options, FlightBackend& backend,
                                                          std::shared_ptr<service::BufferCache> cache) {
  OFP_ASSIGN(const FlightTable* table,
             load_table<FlightTable>(mover::flight_module("flight.listen needs Arrow Flight"), flight_table_name));
  return table->start(std::move(options), backend, std::move(cache));
}

}  // namespace offpath::pool
