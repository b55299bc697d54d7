// How the status and the metrics show a number: a row of a table (figures.h) names its member once.
//
// Read this first in src/agent/status, then figures.h (the numbers themselves), status.h (where the rest comes from),
// families.h and json.h (how both are written).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "agent/status/families.h"
#include "agent/status/json.h"
#include "base/clock.h"

namespace offpath::agent {

using FigureValue = std::variant<std::uint64_t, double, bool>;

template <class Of>
struct Figure {
  std::string_view key;  // in the status; empty: only a metric
  FigureValue (*value)(const Of& of);
  std::string_view metric{};  // without "offpath_". The suffix _total makes it a counter. Empty: no metric
  std::string_view help{};
  std::string_view label{}, label_value{};  // distinguishes figures of one metric
};

namespace detail {
template <class Of, class Number>
Of owner_of(Number Of::*);
}
template <auto member>
using OwnerOf = decltype(detail::owner_of(member));

template <auto member>
FigureValue value(const OwnerOf<member>& of) {
  if constexpr (std::is_same_v<std::decay_t<decltype(of.*member)>, bool>)
    return of.*member;
  else
    return static_cast<std::uint64_t>(of.*member);
}
// A duration in nanoseconds, as seconds.
template <auto member>
FigureValue seconds(const OwnerOf<member>& of) {
  return static_cast<double>(of.*member) / second_ns;
}

// Writes into an open object.
template <class Of>
void write_figures(Json& json, std::type_identity_t<std::span<const Figure<Of>>> figures, const Of& of) {
  for (const Figure<Of>& each : figures)
    if (!each.key.empty()) std::visit([&](const auto& number) { json.member(each.key, number); }, each.value(of));
}

template <class Of>
void add_figures(Families& families, std::type_identity_t<std::span<const Figure<Of>>> figures, const Of& of,
                 const Families::Labels& labels = {}) {
  for (const Figure<Of>& each : figures) {
    if (each.metric.empty()) continue;
    Families::Labels all = labels;
    if (!each.label.empty()) all.emplace_back(each.label, each.label_value);
    const auto number = std::visit([](const auto& any) { return static_cast<double>(any); }, each.value(of));
    families.add(each.metric, each.help, number, std::move(all));
  }
}

}  // namespace offpath::agent
