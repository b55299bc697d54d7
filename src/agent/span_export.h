// Spans of this agent on their way to a receiver of OpenTelemetry: OTLP over HTTP, as JSON, from a thread of its own.
// No call waits for it. Spans without room are dropped, and so are spans that the receiver refuses. The log reports
// this once, and again when the receiver accepts them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "pool/flight/flight_span.h"

namespace offpath::agent {

struct SpanReceiver {
  std::string host;
  int port = 0;
  std::string path;     // of the receiver's HTTP
  std::string service;  // the name under which people find the spans
  std::string agent;

  // From the variables of OpenTelemetry, given by `variable` (null: it is not set). Error::not_found: they ask for no
  // spans. Error::unsupported: they ask for gRPC, TLS or another unsupported protocol.
  using Variable = const char* (*)(const char* name);
  [[nodiscard]] static Result<SpanReceiver> from_environment(Variable variable, std::string agent);
};

// The body of a request: ExportTraceServiceRequest in OTLP's JSON. `number` gives numbers for the identities of spans.
[[nodiscard]] std::string otlp_json(const SpanReceiver& receiver, const std::vector<pool::FlightSpan>& spans,
                                    std::uint64_t (*number)());

class SpanExport {
 public:
  explicit SpanExport(SpanReceiver receiver);
  ~SpanExport();                    // sends the rest, or gives up after some seconds
  void add(pool::FlightSpan span);  // on any thread

 private:
  void run();
  [[nodiscard]] Status send(const std::vector<pool::FlightSpan>& spans) const;

  const SpanReceiver receiver_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<pool::FlightSpan> waiting_;
  std::size_t dropped_ = 0;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace offpath::agent
