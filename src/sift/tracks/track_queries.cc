#include "sift/tracks/track_queries.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>

#include "pool/query/query_run.h"

namespace offpath::sift {

using pool::Expression;
using pool::Function;
using pool::Literal;
using pool::Query;
using pool::QuerySource;
using pool::ValueType;

namespace {

constexpr std::string_view step_name = TrackForm::step_name;
constexpr std::uint64_t frame_bytes = 16ull << 20;  // read at a time

// A whole number as written in the query; the ranges of int64 and uint64 overlap.
struct Whole {
  bool negative = false;
  std::uint64_t magnitude_or_bits = 0;  // bits of an int64 if negative
};

std::optional<Whole> whole_of(const Literal& literal) {
  if (literal.type == ValueType::uint64) return Whole{false, std::get<std::uint64_t>(literal.value)};
  if (literal.type != ValueType::int64) return std::nullopt;
  const auto value = std::get<std::int64_t>(literal.value);
  return Whole{value < 0, static_cast<std::uint64_t>(value)};
}

std::optional<std::uint64_t> integer_identifier(const RowForm& rows, Whole number) {
  const bool is_signed = rows.key().kind() == KeyForm::Kind::signed_number;
  const std::uint32_t unused_bits = 64 - 8 * rows.key_bytes();
  if (number.negative && !is_signed) return std::nullopt;
  const std::uint64_t largest = std::uint64_t{is_signed ? INT64_MAX : UINT64_MAX} >> unused_bits;
  if (!number.negative)
    return number.magnitude_or_bits <= largest ? std::optional(number.magnitude_or_bits) : std::nullopt;
  const bool fits = static_cast<std::int64_t>(number.magnitude_or_bits) >= INT64_MIN >> unused_bits;
  return fits ? std::optional(number.magnitude_or_bits) : std::nullopt;
}

std::optional<double> number_in(const Literal& literal) {
  constexpr std::int64_t exact = std::int64_t{1} << std::numeric_limits<double>::digits;
  if (literal.type == ValueType::float64) return std::get<double>(literal.value);
  if (literal.type == ValueType::float32) return std::get<float>(literal.value);
  if (literal.type != ValueType::int64) return std::nullopt;
  const auto number = std::get<std::int64_t>(literal.value);
  return number >= -exact && number <= exact ? std::optional(static_cast<double>(number)) : std::nullopt;
}

std::optional<std::uint64_t> floating_identifier(const RowForm& rows, const Literal& literal) {
  const auto number = number_in(literal);
  if (!number) return std::nullopt;
  if (rows.key_bytes() == sizeof(double)) return std::bit_cast<std::uint64_t>(*number);
  if (rows.key_bytes() != sizeof(float)) return std::nullopt;
  const auto single = static_cast<float>(*number);
  return double{single} == *number ? std::optional<std::uint64_t>(std::bit_cast<std::uint32_t>(single)) : std::nullopt;
}

// The identifier that a literal means, if the column can hold it. Other literals give no bound.
std::optional<std::uint64_t> identifier_of(const RowForm& rows, const Literal& literal) {
  const frame::Field& field = rows.schema().fields[rows.key_column()];
  switch (field.type) {
    case frame::Type::float32:
    case frame::Type::float64:
      return floating_identifier(rows, literal);
    case frame::Type::timestamp: {
      const auto* const time = std::get_if<wire::Timestamp>(&literal.value);
      if (literal.type != ValueType::timestamp || time->unit != static_cast<std::uint8_t>(field.unit))
        return std::nullopt;
      return static_cast<std::uint64_t>(time->value);
    }
    case frame::Type::date32:
      if (literal.type != ValueType::date32) return std::nullopt;
      return static_cast<std::uint64_t>(std::int64_t{std::get<std::int32_t>(literal.value)});
    case frame::Type::fixed_binary: {
      const auto* const bytes = std::get_if<std::string>(&literal.value);
      if (literal.type != ValueType::binary || bytes->size() != rows.key_bytes()) return std::nullopt;
      return rows.key().identifier_of(reinterpret_cast<const std::byte*>(bytes->data()));
    }
    case frame::Type::int8:
    case frame::Type::int16:
    case frame::Type::int32:
    case frame::Type::int64:
    case frame::Type::uint8:
    case frame::Type::uint16:
    case frame::Type::uint32:
    case frame::Type::uint64: {
      const auto number = whole_of(literal);
      return number ? integer_identifier(rows, *number) : std::nullopt;
    }
    default:
      return std::nullopt;
  }
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

// The same for long identifiers, in the form that is compared.
std::optional<std::string> long_identifier_of(const RowForm& rows, const Literal& literal) {
  const auto* const bytes = std::get_if<std::string>(&literal.value);
  if (bytes == nullptr || (literal.type != ValueType::binary && literal.type != ValueType::text)) return std::nullopt;
  const KeyForm& key = rows.key();
  const bool fits = key.is_text() || (key.kind() == KeyForm::Kind::long_bytes && bytes->size() == key.value_bytes());
  return fits ? std::optional(*bytes) : std::nullopt;
}

void bound_identifiers(const RowForm& rows, std::span<const Expression> values, TrackQuery& bounds) {
  if (bounds.identifiers || bounds.long_identifiers) return;  // by another part of the filter: one bound is enough
  const auto all_of = [&](const auto& identifier_in, auto& bound) {
    typename std::remove_reference_t<decltype(bound)>::value_type identifiers;
    for (const Expression& value : values) {
      if (value.kind != Expression::Kind::literal) return;
      const auto identifier = identifier_in(rows, value.literal);
      if (!identifier) return;
      identifiers.push_back(*identifier);
    }
    bound = std::move(identifiers);
  };
  if (rows.key().is_long())
    all_of(long_identifier_of, bounds.long_identifiers);
  else
    all_of(identifier_of, bounds.identifiers);
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
  if (value.kind != Expression::Kind::literal) return;
  if (is_field(column, step_name)) {
    if (const auto number = whole_of(value.literal)) bound_steps(function, *number, bounds);
  } else if (is_field(column, rows.key_name()) && function == Function::equal) {
    bound_identifiers(rows, std::span(&value, 1), bounds);
  }
}

// Columns that a query reads. All columns if it names none, or a missing one, which binding reports.
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
  OFP_ASSIGN(SiftService::Members members, sifts_.members_of(pool));
  if (members.names.size() <= 1) return std::nullopt;
  return Spread{members.reference, 0, std::move(members.names), 1, {members.key, std::string(step_name)}};
}

Result<std::vector<QuerySource>> TrackQueries::choose_part(const Part& part, service::Effects& effects) {
  if (!SiftService::is_own(part.pool)) return pools_.choose_part(part, effects);
  return sources(part.pool, part.row_glob, part.column_glob, part.user, effects);
}

}  // namespace offpath::sift
