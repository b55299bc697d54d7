#include "wire/query/query.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "wire/cursor.h"

namespace offpath::wire {

namespace {

constexpr std::uint8_t version = 1;
constexpr std::uint8_t has_filter = 1, is_partial = 2, leaves_out_lost = 4, leaves_out_bytes = 8, names_member = 16;

Result<std::string> decode_name(Reader& from, std::string_view of) {
  std::string name(from.take_text());
  if (name.size() > field_bytes_max)
    return fail(Error::too_large, "the name of {} has {} bytes, at most {} are allowed", of, name.size(),
                field_bytes_max);
  return name;
}

Result<std::uint16_t> decode_count(Reader& from, std::string_view of) {
  const auto count = from.take<std::uint16_t>();
  if (count > query_columns_max)
    return fail(Error::too_large, "a query of {} {}, at most {} are allowed", count, of, query_columns_max);
  return count;
}

Result<Projection> decode_projection(Reader& from, std::uint32_t& nodes_left) {
  Projection made;
  OFP_ASSIGN(made.name, decode_name(from, "a column"));
  OFP_ASSIGN(made.expression, decode_expression(from, nodes_left));
  return made;
}

Result<std::vector<HistogramAxis>> decode_axes(Reader& from, std::uint8_t count, std::string_view name,
                                               std::uint32_t& nodes_left) {
  if (count < 1 || count > 2) return fail(Error::protocol, "histogram \"{}\" has {} axes, not one or two", name, count);
  std::vector<HistogramAxis> axes(count);
  for (HistogramAxis& axis : axes) {
    axis.low = from.take<double>();
    axis.high = from.take<double>();
    axis.bins = from.take<std::uint32_t>();
    OFP_ASSIGN(axis.expression, decode_expression(from, nodes_left));
    const double width = (axis.high - axis.low) / axis.bins;
    if (axis.bins == 0 || !std::isfinite(width) || !(axis.low < axis.low + width) || !(axis.high - width < axis.high))
      return fail(Error::invalid,
                  "histogram \"{}\": {} bins from {} to {}; the range must be finite, and bins that wide", name,
                  axis.bins, axis.low, axis.high);
  }
  return axes;
}

Status check_histograms(const std::vector<Aggregate>& aggregates) {
  std::uint64_t cells = 0, histograms = 0;
  for (const Aggregate& aggregate : aggregates) {
    if (aggregate.function != AggregateFunction::histogram) continue;
    ++histograms;
    cells += std::min(cells_of(aggregate), histogram_cells_max + 1);
  }
  if (histograms != 0 && histograms != aggregates.size())
    return fail(Error::invalid, "a query has histograms and other aggregates; ask for them in queries of their own");
  if (cells > histogram_cells_max)
    return fail(Error::too_large, "the histograms of a query have more than {} bins together", histogram_cells_max);
  return {};
}

Result<Aggregate> decode_aggregate(Reader& from, std::uint32_t& nodes_left) {
  Aggregate made;
  const auto function = from.take<std::uint8_t>();
  if (function > static_cast<std::uint8_t>(last_aggregate))
    return fail(Error::protocol, "a query has aggregate {}, the last one is {}", function,
                static_cast<int>(last_aggregate));
  made.function = static_cast<AggregateFunction>(function);
  const auto has = from.take<std::uint8_t>();
  OFP_ASSIGN(made.name, decode_name(from, "an aggregate"));
  if (made.function == AggregateFunction::histogram) {
    OFP_ASSIGN(made.axes, decode_axes(from, has, made.name, nodes_left));
  } else if (has != 0) {
    OFP_ASSIGN(made.expression, decode_expression(from, nodes_left));
  } else if (made.function != AggregateFunction::count) {
    return fail(Error::protocol, "{} \"{}\" is of nothing", aggregate_name(made.function), made.name);
  }
  return made;
}

}  // namespace

std::string_view aggregate_name(AggregateFunction function) noexcept {
  constexpr std::array<std::string_view, 6> names = {"sum", "min", "max", "mean", "count", "histogram"};
  return names[static_cast<std::size_t>(function)];
}

std::uint64_t cells_of(const Aggregate& aggregate) noexcept {
  std::uint64_t cells = aggregate.axes.empty() ? 0 : 1;
  for (const HistogramAxis& axis : aggregate.axes) cells *= axis.bins;
  return cells;
}

std::vector<std::byte> encode(const Query& query) {
  std::vector<std::byte> bytes;
  Writer to(bytes);
  to.put(version);
  to.put(static_cast<std::uint8_t>((query.filter ? has_filter : 0) | (query.partial ? is_partial : 0) |
                                   (query.without_lost ? leaves_out_lost : 0) |
                                   (query.arrow_only ? leaves_out_bytes : 0) | (query.part ? names_member : 0)));
  if (query.part) {
    to.put(query.part->view);
    to.put_text(query.part->member);
  }
  if (query.filter) encode(*query.filter, to);
  to.put(static_cast<std::uint16_t>(query.projections.size()));
  for (const Projection& projection : query.projections) {
    to.put_text(projection.name);
    encode(projection.expression, to);
  }
  to.put(static_cast<std::uint16_t>(query.aggregates.size()));
  for (const Aggregate& aggregate : query.aggregates) {
    to.put(aggregate.function);
    to.put(
        static_cast<std::uint8_t>(aggregate.axes.empty() ? aggregate.expression.has_value() : aggregate.axes.size()));
    to.put_text(aggregate.name);
    if (aggregate.expression) encode(*aggregate.expression, to);
    for (const HistogramAxis& axis : aggregate.axes) {
      to.put(axis.low);
      to.put(axis.high);
      to.put(axis.bins);
      encode(axis.expression, to);
    }
  }
  return bytes;
}

Result<Query> decode_query(Bytes bytes) {
  if (bytes.size() > query_bytes_max)
    return fail(Error::too_large, "a query of {} bytes, at most {} are allowed", bytes.size(), query_bytes_max);
  Reader from(bytes);
  Query query;
  if (const auto found = from.take<std::uint8_t>(); found != version)
    return fail(Error::version, "a query of version {}, this agent knows version {}", found, version);
  const auto flags = from.take<std::uint8_t>();
  if ((flags & ~(has_filter | is_partial | leaves_out_lost | leaves_out_bytes | names_member)) != 0)
    return fail(Error::protocol, "a query has the unknown flags {:#x}", flags);
  query.partial = (flags & is_partial) != 0;
  query.without_lost = (flags & leaves_out_lost) != 0;
  query.arrow_only = (flags & leaves_out_bytes) != 0;
  if ((flags & names_member) != 0) {
    const auto view = from.take<std::uint64_t>();
    query.part = QueryPart{view, std::string(from.take_text())};
  }
  std::uint32_t nodes_left = expression_nodes_max;
  if ((flags & has_filter) != 0) {
    OFP_ASSIGN(query.filter, decode_expression(from, nodes_left));
  }
  OFP_ASSIGN(const std::uint16_t projections, decode_count(from, "columns"));
  for (std::uint16_t i = 0; i < projections; ++i) {
    OFP_ASSIGN(Projection projection, decode_projection(from, nodes_left));
    query.projections.push_back(std::move(projection));
  }
  OFP_ASSIGN(const std::uint16_t aggregates, decode_count(from, "aggregates"));
  for (std::uint16_t i = 0; i < aggregates; ++i) {
    OFP_ASSIGN(Aggregate aggregate, decode_aggregate(from, nodes_left));
    query.aggregates.push_back(std::move(aggregate));
  }
  OFP_TRY(check_histograms(query.aggregates));
  if (!from.done()) return fail(Error::protocol, "a query has the wrong length, {} bytes", bytes.size());
  if (!query.projections.empty() && !query.aggregates.empty())
    return fail(Error::invalid, "a query has {} columns and {} aggregates; it may have one kind",
                query.projections.size(), query.aggregates.size());
  return query;
}

}  // namespace offpath::wire
