#include "pool/flight/flight_server.h"

namespace offpath::pool {

Result<std::unique_ptr<FlightServer>> FlightServer::start(FlightOptions, FlightBackend&,
                                                          std::shared_ptr<service::BufferCache>) {
  return fail(Error::unsupported, "flight.listen is set, and this agent was built without Arrow's Flight library");
}

}  // namespace offpath::pool
