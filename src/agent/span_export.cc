#include "agent/span_export.h"

#include <httplib.h>

#include <charconv>
#include <chrono>
#include <initializer_list>
#include <utility>

#include "agent/status/json.h"
#include "base/log.h"
#include "link/control/authentication.h"

namespace offpath::agent {

namespace {

constexpr std::size_t waiting_max = 2048;
constexpr auto interval = std::chrono::seconds(1);
constexpr auto patience = std::chrono::seconds(2);  // for each of connecting, sending and the answer

// The value of the first variable that is set and not empty.
std::string_view first_of(SpanReceiver::Variable variable, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* text = variable(name); text != nullptr && *text != '\0') return text;
  return {};
}

void add_attribute(Json& json, std::string_view key, std::string_view text) {
  json.begin_object().member("key", key).key("value").begin_object().member("stringValue", text).end_object();
  json.end_object();
}

}  // namespace

Result<SpanReceiver> SpanReceiver::from_environment(Variable variable, std::string agent) {
  const std::string_view own_endpoint = first_of(variable, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"});
  std::string_view endpoint = first_of(variable, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"});
  const std::string_view exporters = first_of(variable, {"OTEL_TRACES_EXPORTER"});
  if (first_of(variable, {"OTEL_SDK_DISABLED"}) == "true" || (exporters.empty() && endpoint.empty()) ||
      (!exporters.empty() && exporters.find("otlp") == exporters.npos))
    return fail(Error::not_found, "the environment asks for no spans");
  if (endpoint.empty()) endpoint = "http://localhost:4318";
  const std::string_view protocol =
      first_of(variable, {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"});
  constexpr std::string_view scheme = "http://";
  if (!endpoint.starts_with(scheme) || protocol == "grpc")
    return fail(Error::unsupported, "an agent sends spans by plain HTTP; the environment asks for {} at {}",
                protocol.empty() ? "http/protobuf" : protocol, endpoint);
  const std::string_view rest = endpoint.substr(scheme.size()), place = rest.substr(0, rest.find('/'));
  SpanReceiver made;
  made.path = rest.substr(place.size());
  if (own_endpoint.empty()) {
    while (made.path.ends_with('/')) made.path.pop_back();
    made.path += "/v1/traces";
  } else if (made.path.empty()) {
    made.path = "/";
  }
  const std::size_t colon = place.ends_with(']') ? place.npos : place.rfind(':');
  const std::string_view port = colon == place.npos ? "80" : place.substr(colon + 1);
  made.host = place.substr(0, colon);
  if (made.host.starts_with('[') && made.host.ends_with(']')) made.host = made.host.substr(1, made.host.size() - 2);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), made.port);
  if (made.host.empty() || error != std::errc() || end != port.data() + port.size() || made.port < 1 ||
      made.port > 65535)
    return fail(Error::unsupported, "the endpoint for spans, {}, has no host or no valid port", endpoint);
  made.service = first_of(variable, {"OTEL_SERVICE_NAME"});
  if (made.service.empty()) made.service = "offpath-agent";
  made.agent = std::move(agent);
  return made;
}

std::string otlp_json(const SpanReceiver& receiver, const std::vector<pool::FlightSpan>& spans,
                      std::uint64_t (*number)()) {
  constexpr std::string_view service = "arrow.flight.protocol.FlightService";
  constexpr int server = 2, failed = 2;
  Json json;
  json.begin_object().key("resourceSpans").begin_list().begin_object().key("resource").begin_object();
  json.key("attributes").begin_list();
  add_attribute(json, "service.name", receiver.service);
  add_attribute(json, "service.instance.id", receiver.agent);
  json.end_list().end_object().key("scopeSpans").begin_list().begin_object();
  json.key("scope").begin_object().member("name", "offpath").end_object().key("spans").begin_list();
  for (const pool::FlightSpan& span : spans) {
    json.begin_object();
    json.member("traceId", span.parent ? span.parent->trace : fmt::format("{:016x}{:016x}", number(), number() | 1));
    json.member("spanId", fmt::format("{:016x}", number() | 1));  // never zero
    if (span.parent) json.member("parentSpanId", span.parent->span);
    json.member("name", fmt::format("{}/{}", service, span.method)).member("kind", server);
    json.member("startTimeUnixNano", std::to_string(span.begin_ns));
    json.member("endTimeUnixNano", std::to_string(span.end_ns)).key("attributes").begin_list();
    add_attribute(json, "rpc.system", "grpc");
    add_attribute(json, "rpc.service", service);
    add_attribute(json, "rpc.method", span.method);
    json.end_list();
    if (!span.error.empty())
      json.key("status").begin_object().member("code", failed).member("message", span.error).end_object();
    json.end_object();
  }
  json.end_list().end_object().end_list().end_object().end_list().end_object();
  return json.text();
}

SpanExport::SpanExport(SpanReceiver receiver) : receiver_(std::move(receiver)), thread_([this] { run(); }) {}

SpanExport::~SpanExport() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void SpanExport::add(pool::FlightSpan span) {
  const std::lock_guard lock(mutex_);
  if (waiting_.size() < waiting_max)
    waiting_.push_back(std::move(span));
  else
    ++dropped_;
}

void SpanExport::run() {
  bool is_taken = true;
  for (bool ends = false; !ends;) {
    std::vector<pool::FlightSpan> spans;
    std::size_t dropped = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, interval, [this] { return ends_; });
      ends = ends_;
      spans.swap(waiting_);
      dropped = std::exchange(dropped_, 0);
    }
    if (dropped > 0) log(LogLevel::warning, "{} spans were dropped, because the queue was full", dropped);
    if (spans.empty()) continue;
    const Status sent = send(spans);
    if (!sent && is_taken) log(LogLevel::warning, "{}: spans are dropped", sent.error().message);
    if (sent && !is_taken) log(LogLevel::info, "{}:{} takes spans again", receiver_.host, receiver_.port);
    is_taken = sent.has_value();
  }
}

Status SpanExport::send(const std::vector<pool::FlightSpan>& spans) const {
  httplib::Client client(receiver_.host, receiver_.port);
  client.set_connection_timeout(patience);
  client.set_read_timeout(patience);
  client.set_write_timeout(patience);
  const auto answer =
      client.Post(receiver_.path, otlp_json(receiver_, spans, &link::random_number), "application/json");
  if (!answer)
    return fail(Error::io, "the receiver of spans at {}:{} does not answer ({})", receiver_.host, receiver_.port,
                httplib::to_string(answer.error()));
  if (answer->status / 100 != 2)
    return fail(Error::io, "the receiver of spans at {}:{} answers {}", receiver_.host, receiver_.port, answer->status);
  return {};
}

}  // namespace offpath::agent
