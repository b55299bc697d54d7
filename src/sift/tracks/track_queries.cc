#include "sift/tracks/track_queries.h"

#include <algorithm>
#include <limits>

#include "pool/query/query_run.h"

namespace offpath::sift {

using pool::Expression;
using pool::Function;
using pool::Query;
using pool::QuerySource;
using pool::ValueType;

namespace {

constexpr std::string_view step_name = "step";
constexpr std::uint64_t frame_bytes = 16ull << 20;  // read at a time

// A whole number as written in the query; the ranges of int64 and uint64 overlap.
struct Whole {
  bool negative = false;
  std::uint64_t magnitude_or_bits = 0;  // bits of an int64 if negative
};

std::optional<Whole> whole_of(const Expression& expression) {
  if (expression.kind != Expression::Kind::literal) return std::nullopt;
  if (expression.literal.type == ValueType::uint64)
    return Whole{false, std::get<std::uint64_t>(expression.literal.value)};
  if (expression.literal.type != ValueType::int64) return std::nullopt;
  const auto value = std::get<std::int64_t>(expression.literal.value);
  return Whole{value < 0, static_cast<std::uint64_t>(value)};
}

// The identifier for a number, if the column can hold it.
std::optional<std::uint64_t> identifier_of(const RowForm& rows, Whole number) {
  const bool is_signed = rows.key_is_signed();
  if (number.negative && !is_signed) return std::nullopt;
  const std::uint64_t largest = std::uint64_t{is_signed ? INT64_MAX : UINT64_MAX} >> (rows.key_bytes() == 4 ? 32 : 0);
  if (!number.negative)
    return number.magnitude_or_bits <= largest ? std::optional(number.magnitude_or_bits) : std::nullopt;
  const bool fits = rows.key_bytes() == 8 || static_cast<std::int64_t>(number.magnitude_or_bits) >= INT32_MIN;
  return fits ? std::optional(number.magnitude_or_bits) : std::nullopt;
}

bool is_field(const Expression& expression, std::string_view name) {
  return expression.kind == Expression::Kind::field && expression.field == name;
}

// The function with swapped operands.
Function turned(Function function) {
  switch (function) {
    case Function::less:
      return Function::greater;
    case Function::less_equal:
      return Function::greater_equal;
    case Function::greater:
      return Function::less;
    case Function::greater_equal:
      return Function::less_equal;
    default:
      return function;
  }
}

void bound_steps(Function function, Whole number, TrackQuery& bounds) {
  constexpr auto largest = static_cast<std::uint64_t>(INT64_MAX);
  // A number beyond all steps has the same effect as the last step.
  const auto value = !number.negative && number.magnitude_or_bits > largest
                         ? INT64_MAX
                         : static_cast<std::int64_t>(number.magnitude_or_bits);
  const bool is_upper = function == Function::equal || function == Function::less || function == Function::less_equal;
  const bool is_lower =
      function == Function::equal || function == Function::greater || function == Function::greater_equal;
  if (is_upper) bounds.last_step = std::min(bounds.last_step, value);
  if (is_lower) bounds.first_step = std::max(bounds.first_step, value);
}

void bound_identifiers(const RowForm& rows, std::span<const Expression> values, TrackQuery& bounds) {
  if (bounds.identifiers) return;  // by another part of the filter: one bound is enough
  std::vector<std::uint64_t> identifiers;
  for (const Expression& value : values) {
    const auto number = whole_of(value);
    const auto identifier = number ? identifier_of(rows, *number) : std::nullopt;
    if (!identifier) return;
    identifiers.push_back(*identifier);
  }
  bounds.identifiers = std::move(identifiers);
}

void bound(const Expression& filter, const RowForm& rows, TrackQuery& bounds) {
  if (filter.kind != Expression::Kind::call || filter.arguments.empty()) return;
  if (filter.function == Function::logical_and) {
    for (const Expression& part : filter.arguments) bound(part, rows, bounds);
    return;
  }
  if (filter.function == Function::is_in) {
    if (is_field(filter.arguments[0], rows.key_name()))
      bound_identifiers(rows, std::span(filter.arguments).subspan(1), bounds);
    return;
  }
  const bool compares = filter.function == Function::equal || filter.function == Function::less ||
                        filter.function == Function::less_equal || filter.function == Function::greater ||
                        filter.function == Function::greater_equal;
  if (!compares) return;
  const bool swapped = filter.arguments[0].kind == Expression::Kind::literal;
  const Expression& column = filter.arguments[swapped ? 1 : 0];
  const Expression& value = filter.arguments[swapped ? 0 : 1];
  const Function function = swapped ? turned(filter.function) : filter.function;
  const auto number = whole_of(value);
  if (!number) return;
  if (is_field(column, step_name))
    bound_steps(function, *number, bounds);
  else if (is_field(column, rows.key_name()) && function == Function::equal)
    bound_identifiers(rows, std::span(&value, 1), bounds);
}

// Columns that a query reads. All, if it names none, or one that does not exist: binding reports that.
std::optional<std::vector<std::uint32_t>> columns_of(const Query& query, const RowForm& rows) {
  if (query.projections.empty() && query.aggregates.empty()) return std::nullopt;
  std::vector<std::string> names;
  const auto add = [&](const Expression& expression) {
    for (std::string& name : fields_of(expression)) names.push_back(std::move(name));
  };
  if (query.filter) add(*query.filter);
  for (const pool::Projection& projection : query.projections) add(projection.expression);
  for (const pool::Aggregate& aggregate : query.aggregates)
    if (aggregate.expression) add(*aggregate.expression);
  std::vector<std::uint32_t> columns = {rows.key_column()};
  for (const std::string& name : names) {
    bool found = name == step_name;
    for (std::uint32_t i = 0; i < rows.schema().fields.size(); ++i) {
      if (rows.schema().fields[i].name != name) continue;
      columns.push_back(i);
      found = true;
    }
    if (!found) return std::nullopt;
  }
  std::ranges::sort(columns);
  columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
  return columns;
}

class TrackFeed final : public pool::QueryFeed {
 public:
  explicit TrackFeed(SiftService::TrackSource source) : source_(std::move(source)) {}
  std::size_t members() const noexcept override { return source_.members; }

  Result<FramePtr> next(const Query& query) override {
    if (reader_ == nullptr) {
      const RowForm& rows = *source_.snapshot.form()->rows;
      const std::uint64_t rows_max =
          std::max<std::uint64_t>(frame_bytes / (rows.row_bytes() + sizeof(std::int64_t)), 1);
      reader_ = std::make_unique<TrackReader>(std::move(source_.snapshot), bounds_of(query, rows), rows_max);
      OFP_ASSIGN(FramePtr first, reader_->next(source_.memory));
      return first != nullptr ? Result<FramePtr>(std::move(first)) : reader_->empty(source_.memory);
    }
    return reader_->next(source_.memory);
  }

 private:
  SiftService::TrackSource source_;
  std::unique_ptr<TrackReader> reader_;
};

bool says_all(std::string_view glob) { return glob.empty() || glob == "*"; }

}  // namespace

TrackQuery bounds_of(const Query& query, const RowForm& rows) {
  TrackQuery bounds;
  if (query.filter) bound(*query.filter, rows, bounds);
  bounds.columns = columns_of(query, rows);
  return bounds;
}

Result<std::vector<QuerySource>> TrackQueries::sources(const std::string& text, std::string_view row_glob,
                                                       std::string_view column_glob, uid_t user,
                                                       service::Effects& effects) {
  if (!says_all(row_glob) || !says_all(column_glob))
    return fail(Error::unsupported, "pool \"{}\": tracks have no row and column keys, such as ({}, {}); use the filter",
                text, brief(row_glob), brief(column_glob));
  OFP_ASSIGN(SiftService::TrackSource source, sifts_.track_source(text, user, effects));
  if (source.snapshot.form() == nullptr) return std::vector<QuerySource>{};
  return std::vector<QuerySource>{{nullptr, "tracks of " + source.text.substr(0, source.text.find('?')), "",
                                   std::make_shared<TrackFeed>(std::move(source))}};
}

Result<std::vector<QuerySource>> TrackQueries::choose(const std::string& pool, std::string_view row_glob,
                                                      std::string_view column_glob, uid_t user) {
  if (!SiftService::is_own(pool)) return pools_.choose(pool, row_glob, column_glob, user);
  service::Effects none;  // the pool exists: there is nothing to report
  OFP_ASSIGN(std::vector<QuerySource> found, sources(pool, row_glob, column_glob, user, none));
  if (found.empty()) return fail(Error::not_found, "pool \"{}\" has no tracks yet", pool);
  return found;
}

Result<std::optional<TrackQueries::Spread>> TrackQueries::spread(const std::string& pool) {
  if (!SiftService::is_own(pool)) return pools_.spread(pool);
  OFP_ASSIGN(auto members, sifts_.members_of(pool));
  if (members.second.size() <= 1) return std::nullopt;
  OFP_ASSIGN(const Settings settings, parse_settings(members.first));
  return Spread{members.first, 0, std::move(members.second), 1, {std::string(settings.key), std::string(step_name)}};
}

Result<std::vector<QuerySource>> TrackQueries::choose_part(const Part& part, service::Effects& effects) {
  if (!SiftService::is_own(part.pool)) return pools_.choose_part(part, effects);
  return sources(part.pool, part.row_glob, part.column_glob, part.user, effects);
}

}  // namespace offpath::sift
