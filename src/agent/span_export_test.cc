#include "agent/span_export.h"

#include <gtest/gtest.h>

#include <map>

namespace offpath::agent {
namespace {

std::map<std::string, std::string, std::less<>> variables;  // of the environment
const char* variable(const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? nullptr : found->second.c_str();
}
Result<SpanReceiver> receiver_of(std::map<std::string, std::string, std::less<>> of) {
  variables = std::move(of);
  return SpanReceiver::from_environment(variable, "dpu7");
}
Error code_of(std::map<std::string, std::string, std::less<>> of) { return receiver_of(std::move(of)).error().code; }

TEST(SpanReceiver, IsWhereTheVariablesSay) {
  struct Case {
    const char *name, *endpoint, *host;
    int port;
    const char* path;
  };
  constexpr const char *all = "OTEL_EXPORTER_OTLP_ENDPOINT", *traces = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
  for (const Case& each : {Case{all, "http://collector:4318", "collector", 4318, "/v1/traces"},
                           {all, "http://collector:4318/", "collector", 4318, "/v1/traces"},
                           {all, "http://collector/otlp/", "collector", 80, "/otlp/v1/traces"},
                           {all, "http://[::1]:4318", "::1", 4318, "/v1/traces"},
                           {all, "http://[::1]", "::1", 80, "/v1/traces"},
                           {traces, "http://collector:1", "collector", 1, "/"},
                           {traces, "http://collector:1/own", "collector", 1, "/own"},
                           {"OTEL_TRACES_EXPORTER", "console,otlp", "localhost", 4318, "/v1/traces"}}) {
    const auto found = receiver_of({{each.name, each.endpoint}});
    ASSERT_TRUE(found) << each.endpoint << ": " << found.error().message;
    EXPECT_EQ(found->host, each.host);
    EXPECT_EQ(found->port, each.port);
    EXPECT_EQ(found->path, each.path);
    EXPECT_EQ(found->service, "offpath-agent");
  }
  const auto both = receiver_of({{all, "http://one:1"}, {traces, "http://two:2/x"}, {"OTEL_SERVICE_NAME", "pools"}});
  EXPECT_EQ(both->host, "two");
  EXPECT_EQ(both->service, "pools");
}

TEST(SpanReceiver, IsNoneWhereTheyAskForNone) {
  const std::pair<const std::string, std::string> endpoint{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"};
  EXPECT_EQ(code_of({}), Error::not_found);
  EXPECT_EQ(code_of({{"OTEL_EXPORTER_OTLP_ENDPOINT", ""}}), Error::not_found);
  EXPECT_EQ(code_of({endpoint, {"OTEL_SDK_DISABLED", "true"}}), Error::not_found);
  EXPECT_EQ(code_of({endpoint, {"OTEL_TRACES_EXPORTER", "none"}}), Error::not_found);
}

TEST(SpanReceiver, WhatIsNotServedIsNamed) {
  const std::pair<const std::string, std::string> endpoint{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"};
  EXPECT_EQ(code_of({endpoint, {"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"}}), Error::unsupported);
  EXPECT_TRUE(receiver_of({endpoint, {"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"}}));
  for (const char* wrong : {"https://collector:4318", "collector:4318", "http://", "http://:1", "http://x:0",
                            "http://x:65536", "http://x:1x", "http://x:"})
    EXPECT_EQ(code_of({{"OTEL_EXPORTER_OTLP_ENDPOINT", wrong}}), Error::unsupported) << wrong;
}

TEST(SpanExport, WritesOtlp) {
  const pool::FlightSpan of_client{"DoGet", pool::TraceContext{std::string(32, 'a'), std::string(16, 'b'), true},
                                   1'000'000'001, 1'000'000'009, ""};
  const pool::FlightSpan of_its_own{"DoPut", {}, 5, 6, "there is no \"pool\""};
  const SpanReceiver receiver{"collector", 1, "/", "offpath-agent", "dpu7"};
  const auto number = []() -> std::uint64_t { return 16; };
  EXPECT_EQ(
      otlp_json(receiver, {of_client, of_its_own}, number),
      R"({"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"offpath-agent"}},)"
      R"({"key":"service.instance.id","value":{"stringValue":"dpu7"}}]},"scopeSpans":[{"scope":{"name":"offpath"},)"
      R"("spans":[{"traceId":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","spanId":"0000000000000011",)"
      R"("parentSpanId":"bbbbbbbbbbbbbbbb","name":"arrow.flight.protocol.FlightService/DoGet","kind":2,)"
      R"("startTimeUnixNano":"1000000001","endTimeUnixNano":"1000000009","attributes":[)"
      R"({"key":"rpc.system","value":{"stringValue":"grpc"}},)"
      R"({"key":"rpc.service","value":{"stringValue":"arrow.flight.protocol.FlightService"}},)"
      R"({"key":"rpc.method","value":{"stringValue":"DoGet"}}]},)"
      R"({"traceId":"00000000000000100000000000000011","spanId":"0000000000000011",)"
      R"("name":"arrow.flight.protocol.FlightService/DoPut","kind":2,"startTimeUnixNano":"5","endTimeUnixNano":"6",)"
      R"("attributes":[{"key":"rpc.system","value":{"stringValue":"grpc"}},)"
      R"({"key":"rpc.service","value":{"stringValue":"arrow.flight.protocol.FlightService"}},)"
      R"({"key":"rpc.method","value":{"stringValue":"DoPut"}}],)"
      R"("status":{"code":2,"message":"there is no \"pool\""}}]}]}]})");
}

}  // namespace
}  // namespace offpath::agent
