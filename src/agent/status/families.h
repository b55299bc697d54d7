// Metrics as they are collected for one answer: families with their samples, written out as Prometheus' text format or
// as OpenMetrics. Names and units as in Prometheus' conventions: seconds and bytes, counters end in _total.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace offpath::agent {

class Families {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  template <class Number>
  void counter(const std::string& name, const std::string& help, Number value, Labels labels = {}) {
    add({name, help, unit_of(name), true}, static_cast<double>(value), std::move(labels));
  }
  template <class Number>
  void gauge(const std::string& name, const std::string& help, Number value, Labels labels = {}) {
    add({name, help, unit_of(name), false}, static_cast<double>(value), std::move(labels));
  }
  // What others named: a field "rays{kind=\"shadow\"}" becomes offpath_PREFIX_rays{labels, kind="shadow"}, its
  // characters and its name's end (unit, _total) as metrics have them.
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
    std::set<Labels> seen;  // of what others named
  };

  [[nodiscard]] static std::string unit_of(std::string_view name);
  Entry& entry(Family family);
  void add(Family family, double value, Labels labels) {
    entry(std::move(family)).samples.push_back({std::move(labels), value});
  }

  std::vector<Entry> entries_;
  std::map<std::string, std::size_t> index_;
};

struct AgentStatus;
// Of samples: what sampling costs, and all values that are fresh.
void add_sampled(Families& families, const AgentStatus& status);
void add_alarms(Families& families, const AgentStatus& status);

}  // namespace offpath::agent
