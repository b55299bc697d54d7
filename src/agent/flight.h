// The agent's Flight endpoint: Flight's own threads pass their requests for pools to the loop, which carries them out.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "agent/config/flight_settings.h"
#include "base/status.h"
#include "link/address.h"

namespace offpath::loop {
class Loop;
}
namespace offpath::pool {
class FlightServer;
}

namespace offpath::agent {

class Dispatcher;
struct DispatcherOptions;
class SpanExport;

// Reads the token that every call must send. Only the file's owner may have access to it.
[[nodiscard]] Result<std::string> read_token(const std::string& path);

// All Flight clients act as one user, the agent's own: the token does not distinguish them.
class FlightEndpoint {
 public:
  // `loop` and `dispatcher` outlive it. Calls are answered once the loop runs. Their spans have the name of the agent
  // and are sent where OpenTelemetry's variables say.
  [[nodiscard]] static Result<std::unique_ptr<FlightEndpoint>> start(const FlightSettings& settings,
                                                                     const std::string& agent,
                                                                     const DispatcherOptions& options, loop::Loop& loop,
                                                                     Dispatcher& dispatcher);
  ~FlightEndpoint();  // on the loop's thread, after the loop has ended
  // "grpc+tls://host:port". A wildcard host is told as `machine`, if that is given.
  [[nodiscard]] std::string text(const std::string& machine = {}) const;
  void change_token(std::string token);  // for later calls

 private:
  class Backend;
  FlightEndpoint(link::Address listen, std::unique_ptr<Backend> backend);
  link::Address listen_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<SpanExport> spans_;           // null: the environment asks for none
  std::unique_ptr<pool::FlightServer> server_;  // ends before the backend that it calls
};

}  // namespace offpath::agent
