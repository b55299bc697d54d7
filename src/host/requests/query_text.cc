#include "host/requests/query_text.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "base/text.h"
#include "host/report.h"
#include "host/requests/expression_text.h"

namespace offpath::host {

namespace {

using wire::AggregateFunction;

constexpr std::string_view blanks = " \t\r\n\f";
constexpr std::string_view aggregates_form =
    "NAME=count, or NAME=FUNCTION(EXPRESSION) with sum, min, max, mean or count";

std::string_view without_blanks(std::string_view text) {
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) + 1 - first);
}

Result<wire::Expression> parse_named(std::string_view what, std::string_view name, std::string_view text,
                                     std::uint32_t& nodes_left) {
  const std::string whose = name.empty() ? std::string(what) : fmt::format("{} \"{}\"", what, brief(name));
  if (text.size() > wire::query_bytes_max)
    return fail(Error::too_large, "{} has {} bytes of text, at most {} are allowed", whose, text.size(),
                wire::query_bytes_max);
  if (!is_utf8(text)) return fail(Error::invalid, "{} is not UTF-8", whose);
  auto made = parse_expression(text, nodes_left);
  if (!made) return fail(made.error().code, "{}, {}", whose, made.error().message);
  return made;
}

Result<wire::Projection> parse_column(std::string_view text, std::uint32_t& nodes_left) {
  const std::size_t equals = text.find('=');
  const std::string_view name = without_blanks(text.substr(0, equals));
  if (equals == std::string_view::npos || text.substr(equals + 1).starts_with('=') || !is_column_name(name))
    return wire::Projection{std::string(text), wire::field(std::string(text))};
  wire::Projection made{std::string(name), {}};
  OFP_ASSIGN(made.expression, parse_named("column", name, text.substr(equals + 1), nodes_left));
  return made;
}

std::optional<AggregateFunction> aggregate_of(std::string_view name) {
  for (const auto each : {AggregateFunction::sum, AggregateFunction::min, AggregateFunction::max,
                          AggregateFunction::mean, AggregateFunction::count})
    if (wire::aggregate_name(each) == name) return each;
  return std::nullopt;
}

Result<wire::Aggregate> parse_aggregate(std::string_view text, std::uint32_t& nodes_left) {
  const auto wrong = [&] { return fail(Error::invalid, "aggregate \"{}\": write {}", brief(text), aggregates_form); };
  const std::size_t equals = text.find('=');
  const std::string_view name = without_blanks(text.substr(0, equals));
  if (equals == std::string_view::npos || name.empty()) return wrong();
  const std::string_view call = without_blanks(text.substr(equals + 1));
  const std::size_t bracket = call.find('(');
  const auto function = aggregate_of(call.substr(0, bracket));
  if (!function) return wrong();
  wire::Aggregate made{.function = *function, .name = std::string(name)};
  if (bracket == std::string_view::npos) {
    if (*function != AggregateFunction::count) return wrong();
    return made;
  }
  if (!call.ends_with(')')) return wrong();
  const std::string_view inside = call.substr(bracket + 1, call.size() - bracket - 2);
  OFP_ASSIGN(made.expression, parse_named("aggregate", name, inside, nodes_left));
  return made;
}

Status check_count(std::size_t count, std::string_view of) {
  if (count > wire::query_columns_max)
    return fail(Error::too_large, "a query of {} {}, at most {} are allowed", count, of, wire::query_columns_max);
  return {};
}

}  // namespace

Result<wire::Query> parse_query(const QueryText& text) {
  OFP_TRY(check_count(text.columns.size(), "columns"));
  OFP_TRY(check_count(text.aggregates.size(), "aggregates"));
  std::uint32_t nodes_left = wire::expression_nodes_max;
  wire::Query query;
  if (!without_blanks(text.filter).empty()) {
    OFP_ASSIGN(query.filter, parse_named("filter", {}, text.filter, nodes_left));
  }
  for (const std::string_view each : text.columns) {
    OFP_ASSIGN(auto column, parse_column(each, nodes_left));
    query.projections.push_back(std::move(column));
  }
  for (const std::string_view each : text.aggregates) {
    OFP_ASSIGN(auto aggregate, parse_aggregate(each, nodes_left));
    query.aggregates.push_back(std::move(aggregate));
  }
  return query;
}

namespace {

Result<std::vector<std::string_view>> texts(const char* const* given, std::uint32_t count, std::string_view of) {
  if (count != 0 && given == nullptr) return fail(Error::invalid, "{} is NULL, and {}_count is {}", of, of, count);
  std::vector<std::string_view> made;
  OFP_TRY(check_count(count, of));
  for (std::uint32_t i = 0; i < count; ++i) {
    if (given[i] == nullptr) return fail(Error::invalid, "{}[{}] is NULL", of, i);
    made.emplace_back(given[i]);
  }
  return made;
}

Result<std::vector<std::byte>> encode_text(const ofp_query_text& text) {
  if ((text.flags & ~static_cast<std::uint32_t>(OFP_QUERY_PARTIAL | OFP_QUERY_ARROW_ONLY)) != 0)
    return fail(Error::invalid, "ofp_query_text.flags is {:#x}, of which {:#x} are known", text.flags,
                OFP_QUERY_PARTIAL | OFP_QUERY_ARROW_ONLY);
  QueryText parts{.filter = text.filter != nullptr ? text.filter : ""};
  OFP_ASSIGN(parts.columns, texts(text.columns, text.columns_count, "columns"));
  OFP_ASSIGN(parts.aggregates, texts(text.aggregates, text.aggregates_count, "aggregates"));
  OFP_ASSIGN(wire::Query query, parse_query(parts));
  query.without_lost = (text.flags & OFP_QUERY_PARTIAL) != 0;
  query.arrow_only = (text.flags & OFP_QUERY_ARROW_ONLY) != 0;
  if (text.member != nullptr) query.part = wire::QueryPart{text.view, text.member};
  std::vector<std::byte> bytes = wire::encode(query);
  OFP_TRY(wire::decode_query(bytes));  // the bounds that an agent checks
  return bytes;
}

}  // namespace
}  // namespace offpath::host

using namespace offpath;
using namespace offpath::host;

extern "C" {

int ofp_query_make(const ofp_query_text* text, void** query, uint64_t* query_bytes, ofp_error* error) {
  return guarded(error, [&]() -> Status {
    OFP_TRY(required(text, "text"));
    OFP_TRY(required(query, "query"));
    OFP_TRY(required(query_bytes, "query_bytes"));
    *query = nullptr;
    *query_bytes = 0;
    ofp_query_text given{};
    OFP_TRY(check_struct_bytes(text->struct_bytes, sizeof given, "ofp_query_text"));
    std::memcpy(&given, text, std::min<std::size_t>(text->struct_bytes, sizeof given));
    OFP_ASSIGN(const std::vector<std::byte> bytes, encode_text(given));
    auto made = std::make_unique<std::byte[]>(bytes.size());
    std::ranges::copy(bytes, made.get());
    *query = made.release();
    *query_bytes = bytes.size();
    return {};
  });
}

void ofp_query_bytes_free(void* query) { delete[] static_cast<std::byte*>(query); }

}  // extern "C"
