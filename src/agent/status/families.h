// Metrics as they are collected for one answer: families with their samples, written out as Prometheus' text format or
// as OpenMetrics. Names and units as in Prometheus' conventions: seconds and bytes, counters end in _total.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/measure/latency.h"

namespace offpath::agent {

class Families {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  // A name that ends in _total is a counter's, any other a gauge's.
  void add(std::string_view name, std::string_view help, double value, Labels labels = {});
  void add_histogram(std::string_view name, std::string_view help, const LatencyHistogram& of);
  // Names given by programs and hosts: a field "rays{kind=\"shadow\"}" becomes offpath_PREFIX_rays{labels,
  // kind="shadow"}, with the characters and the suffix (unit, _total) of metrics.
  struct Named {
    std::string_view prefix, field, unit, help;
    bool counter;
  };
  void named(const Named& named, double value, Labels labels);

  [[nodiscard]] std::string text() const;         // version 0.0.4
  [[nodiscard]] std::string openmetrics() const;  // version 1.0.0

 private:
  struct Family {
    std::string name, help, unit;
    bool counter;
  };
  struct Sample {
    Labels labels;
    double value;
  };
  struct Entry {
    Family family;
    std::vector<Sample> samples;
    std::optional<LatencyHistogram> histogram{};  // then there are no samples
    std::set<Labels> seen;                        // to skip duplicates of other programs' names
  };

  enum class Format { text, openmetrics };

  [[nodiscard]] std::string written(Format format) const;
  [[nodiscard]] static std::string unit_of(std::string_view name);
  Entry& entry(Family family);

  std::vector<Entry> entries_;
  std::map<std::string, std::size_t> index_;
};

struct AgentStatus;
// Adds metrics of samples: the cost of sampling, and all fresh values.
void add_sampled(Families& families, const AgentStatus& status);
void add_alarms(Families& families, const AgentStatus& status);

}  // namespace offpath::agent
