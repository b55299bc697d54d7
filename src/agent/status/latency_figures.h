// The latency histograms: one row for each, as figures.h has for counters. The status and the metrics have their
// buckets, the status percentiles too, and OpenMetrics the newest ticket of each bucket.
#pragma once

#include "agent/status/families.h"
#include "agent/status/json.h"
#include "agent/status/status.h"

namespace offpath::agent {

struct LatencyFigure {
  std::string_view key;                                  // in the status
  const LatencyHistogram* (*of)(const AgentStatus& of);  // null: this agent has none
  std::string_view metric, help;                         // without "offpath_"; in seconds
};

inline constexpr LatencyFigure latency_figures[] = {
    {"pull", [](const AgentStatus& status) { return &status.move_latencies.pull; }, "pull_latency_seconds",
     "Time from when the agent first sees a batch until its bytes are read, including the wait for memory."},
    {"store", [](const AgentStatus& status) { return &status.move_latencies.store; }, "store_latency_seconds",
     "Time from when a batch's bytes are read until its object is in the pool."},
    {"credit_wait", [](const AgentStatus& status) { return &status.move_latencies.credit; },
     "credit_wait_latency_seconds", "Time that streams waited for credit that was not free when they asked for it."},
    {"get", [](const AgentStatus& status) { return &status.request_latencies.get; }, "get_latency_seconds",
     "Time from when the agent first sees a get until it answers, including the wait for the object."},
    {"query", [](const AgentStatus& status) { return &status.request_latencies.query; }, "query_latency_seconds",
     "Time from when the agent first sees a query until its first answer."},
    {"tcp_acknowledged", [](const AgentStatus& status) { return status.tcp ? &status.tcp->acknowledged : nullptr; },
     "tcp_acknowledged_latency_seconds",
     "Time from a segment's departure to its acknowledgement, one measured in each round trip."},
};

inline void write_latencies(Json& json, const AgentStatus& status) {
  json.key("latency").begin_object();
  for (const LatencyFigure& each : latency_figures) {
    const LatencyHistogram* const of = each.of(status);
    if (of == nullptr) continue;
    const auto in_seconds = [](auto ns) { return static_cast<double>(ns) / second_ns; };
    json.key(each.key).begin_object().member("count", of->count()).member("sum_s", in_seconds(of->sum_ns()));
    json.member("p50_s", in_seconds(of->percentile_ns(0.5))).member("p99_s", in_seconds(of->percentile_ns(0.99)));
    json.key("buckets").begin_list();  // those that are not empty; the last one has no bound
    for (std::size_t i = 0; i < LatencyHistogram::buckets; ++i) {
      if (of->bucket(i).count == 0) continue;
      json.begin_object().member("from_s", i == 0 ? 0.0 : in_seconds(LatencyHistogram::bound_ns(i - 1)));
      if (i + 1 < LatencyHistogram::buckets) json.member("up_to_s", in_seconds(LatencyHistogram::bound_ns(i)));
      json.member("count", of->bucket(i).count).end_object();
    }
    json.end_list().end_object();
  }
  json.end_object();
}

inline void add_latencies(Families& families, const AgentStatus& status) {
  for (const LatencyFigure& each : latency_figures)
    if (const LatencyHistogram* const of = each.of(status); of != nullptr)
      families.add_histogram(each.metric, each.help, *of);
}

}  // namespace offpath::agent
