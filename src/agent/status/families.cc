#include "agent/status/families.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "base/text.h"

namespace offpath::agent {

namespace {

constexpr std::string_view total = "_total";

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Makes any text a valid part of a metric's or label's name.
std::string word_of(std::string_view text) {
  std::string word;
  for (const char c : text) word += is_letter(c) || (is_digit(c) && !word.empty()) ? c : '_';
  return word.empty() ? "_" : word;
}

// Parses labels such as a="1",b="2"; none if the text is anything else.
std::optional<Families::Labels> parse_labels(std::string_view text) {
  Families::Labels labels;
  while (!text.empty()) {
    const std::size_t equals = text.find("=\"");
    if (equals == std::string_view::npos || equals == 0) return std::nullopt;
    const std::string_view name = text.substr(0, equals);
    if (!is_letter(name.front()) || !std::ranges::all_of(name, [](char c) { return is_letter(c) || is_digit(c); }))
      return std::nullopt;
    text.remove_prefix(equals + 2);
    std::string value;
    for (; !text.empty() && text.front() != '"'; text.remove_prefix(1)) {
      if (text.front() == '\\' && text.size() > 1) text.remove_prefix(1);
      value += text.front();
    }
    if (text.empty()) return std::nullopt;
    text.remove_prefix(1);
    labels.emplace_back(name, std::move(value));
    if (text.empty()) break;
    if (text.front() != ',') return std::nullopt;
    text.remove_prefix(1);
  }
  return labels;
}

void append_escaped(std::string& to, std::string_view text, std::string_view escaped = "\\\"") {
  for (const char c : text) {
    if (escaped.find(c) != std::string_view::npos) to += '\\';
    if (c == '\n')
      to += "\\n";
    else
      to += c;
  }
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

// Values come from programs and hosts: invalid UTF-8 would make readers refuse the whole page.
Families::Labels made_printable(Families::Labels labels) {
  for (auto& [name, value] : labels) value = printable(value);
  return labels;
}

double seconds_of(std::uint64_t ns) { return static_cast<double>(ns) / second_ns; }

double bound_s(std::size_t bucket) {
  const TimeNs bound = LatencyHistogram::bound_ns(bucket);
  return bound == never ? std::numeric_limits<double>::infinity() : static_cast<double>(bound) / second_ns;
}

// With exemplars: the newest ticket of each bucket.
void append_histogram(std::string& text, const std::string& name, const LatencyHistogram& histogram, bool exemplars) {
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < LatencyHistogram::buckets; ++i) {
    const LatencyHistogram::Bucket& bucket = histogram.bucket(i);
    below += bucket.count;
    text += fmt::format("{}_bucket{{le=\"{}\"}} {}", name, number_text(bound_s(i)), below);
    if (exemplars && bucket.ticket != 0)
      text += fmt::format(" # {{channel=\"{}\",ticket=\"{}\"}} {}", bucket.channel, bucket.ticket,
                          number_text(static_cast<double>(bucket.ns) / second_ns));
    text += '\n';
  }
  text += fmt::format("{}_count {}\n{}_sum {}\n", name, below, name, number_text(seconds_of(histogram.sum_ns())));
}

}  // namespace

std::string Families::unit_of(std::string_view name) {
  if (name.ends_with(total)) name.remove_suffix(total.size());
  for (const std::string_view unit : {"seconds", "bytes"})
    if (name.size() > unit.size() && name.ends_with(unit) && name[name.size() - unit.size() - 1] == '_')
      return std::string(unit);
  return {};
}

Families::Entry& Families::entry(Family family) {
  // OpenMetrics has one name for a counter and for a gauge without its suffix.
  std::string name =
      family.name.ends_with(total) ? family.name.substr(0, family.name.size() - total.size()) : family.name;
  const auto [at, added] = index_.emplace(std::move(name), entries_.size());
  if (added) entries_.push_back({.family = std::move(family), .samples = {}, .seen = {}});
  return entries_[at->second];
}

void Families::add(std::string_view name, std::string_view help, double value, Labels labels) {
  entry({std::string(name), std::string(help), unit_of(name), name.ends_with(total)})
      .samples.push_back({made_printable(std::move(labels)), value});
}

void Families::add_histogram(std::string_view name, std::string_view help, const LatencyHistogram& of) {
  entry({std::string(name), std::string(help), unit_of(name), false}).histogram = of;
}

void Families::named(const Named& named, double value, Labels labels) {
  std::string_view base = named.field;
  if (const std::size_t brace = base.find('{'); brace != std::string_view::npos && base.ends_with('}')) {
    if (auto own = parse_labels(base.substr(brace + 1, base.size() - brace - 2))) {
      for (auto& label : *own)
        if (std::ranges::none_of(labels, [&](const auto& each) { return each.first == label.first; }))
          labels.push_back(std::move(label));
      base = base.substr(0, brace);
    }
  }
  Family family{fmt::format("{}_{}", named.prefix, word_of(base)), std::string(named.help),
                named.unit.empty() ? "" : word_of(named.unit), named.counter};
  if (family.name.ends_with(total)) family.name.resize(family.name.size() - total.size());
  if (!family.unit.empty() && !family.name.ends_with("_" + family.unit)) family.name += "_" + family.unit;
  if (named.counter) family.name += total;
  if (family.help.empty()) family.help = fmt::format("Field {}.", named.field.substr(0, named.field.find('{')));
  labels = made_printable(std::move(labels));
  Entry& found = entry(family);
  // Two hosts give one name different meanings, or two names become the same: only the first is shown.
  if (found.family.counter != family.counter || found.family.unit != family.unit || !found.seen.insert(labels).second)
    return;
  found.samples.push_back({std::move(labels), value});
}

std::string Families::text() const { return written(Format::text); }
std::string Families::openmetrics() const { return written(Format::openmetrics) + "# EOF\n"; }

std::string Families::written(Format format) const {
  const bool open = format == Format::openmetrics;
  std::string text;
  for (const Entry& each : entries_) {
    const std::string sample_name = "offpath_" + each.family.name;
    // OpenMetrics names a counter's family without the suffix of its samples.
    const bool ends = open && each.family.counter && sample_name.ends_with(total);
    const std::string name = ends ? sample_name.substr(0, sample_name.size() - total.size()) : sample_name;
    text += fmt::format("# TYPE {} {}\n", name,
                        each.histogram        ? "histogram"
                        : each.family.counter ? "counter"
                                              : "gauge");
    if (open && !each.family.unit.empty()) text += fmt::format("# UNIT {} {}\n", name, each.family.unit);
    text += fmt::format("# HELP {} ", name);
    append_escaped(text, each.family.help, open ? "\\\"" : "\\");
    text += '\n';
    if (each.histogram) append_histogram(text, name, *each.histogram, open);
    for (const Sample& sample : each.samples) {
      text += sample_name;
      char separator = '{';
      for (const auto& [label, value] : sample.labels) {
        text += separator;
        text += label;
        text += "=\"";
        append_escaped(text, value);
        text += '"';
        separator = ',';
      }
      if (separator == ',') text += '}';
      text += fmt::format(" {}\n", number_text(sample.value));
    }
  }
  return text;
}

}  // namespace offpath::agent
