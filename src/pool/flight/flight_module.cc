#include <utility>

#include "base/module/border.h"
#include "pool/flight/flight_table.h"

namespace offpath::pool {

namespace {

Result<std::unique_ptr<FlightServer>> start(FlightOptions options, FlightBackend& backend,
                                            std::shared_ptr<service::BufferCache> cache) {
  return at_border([&] { return FlightServer::start(std::move(options), backend, std::move(cache)); });
}

}  // namespace

}  // namespace offpath::pool

extern "C" __attribute__((visibility("default")))
const offpath::pool::FlightTable ofp_flight{OFFPATH_MODULE_ID, offpath::pool::start};
