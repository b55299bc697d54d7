// Binds a query's names and types to one schema, for libarrow.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <arrow/compute/api.h>
#include <arrow/compute/initialize.h>

#include "pool/query/query_arrow.h"

namespace offpath::pool {

namespace cp = arrow::compute;

namespace {

constexpr std::size_t listed_columns_max = 32;

std::shared_ptr<arrow::DataType> type_of(ValueType type) {
  switch (type) {
    case ValueType::null:
      return arrow::null();
    case ValueType::boolean:
      return arrow::boolean();
    case ValueType::int8:
      return arrow::int8();
    case ValueType::int16:
      return arrow::int16();
    case ValueType::int32:
      return arrow::int32();
    case ValueType::int64:
      return arrow::int64();
    case ValueType::uint8:
      return arrow::uint8();
    case ValueType::uint16:
      return arrow::uint16();
    case ValueType::uint32:
      return arrow::uint32();
    case ValueType::uint64:
      return arrow::uint64();
    case ValueType::float32:
      return arrow::float32();
    case ValueType::float64:
      return arrow::float64();
    case ValueType::text:
      return arrow::utf8();
    case ValueType::binary:
      return arrow::binary();
    case ValueType::timestamp:
      return arrow::timestamp(arrow::TimeUnit::NANO);
    case ValueType::date32:
      return arrow::date32();
  }
  return arrow::null();
}

std::shared_ptr<arrow::Scalar> scalar_of(const Literal& literal) {
  switch (literal.type) {
    case ValueType::boolean:
      return arrow::MakeScalar(std::get<bool>(literal.value));
    case ValueType::int64:
      return arrow::MakeScalar(std::get<std::int64_t>(literal.value));
    case ValueType::uint64:
      return arrow::MakeScalar(std::get<std::uint64_t>(literal.value));
    case ValueType::float32:
      return arrow::MakeScalar(std::get<float>(literal.value));
    case ValueType::float64:
      return arrow::MakeScalar(std::get<double>(literal.value));
    case ValueType::text:
      return std::make_shared<arrow::StringScalar>(std::get<std::string>(literal.value));
    case ValueType::binary:
      return std::make_shared<arrow::BinaryScalar>(std::get<std::string>(literal.value));
    case ValueType::date32:
      return std::make_shared<arrow::Date32Scalar>(std::get<std::int32_t>(literal.value));
    case ValueType::timestamp: {
      const Timestamp at = std::get<Timestamp>(literal.value);
      return std::make_shared<arrow::TimestampScalar>(at.value,
                                                      arrow::timestamp(static_cast<arrow::TimeUnit::type>(at.unit)));
    }
    default:
      return std::make_shared<arrow::NullScalar>();
  }
}

tl::unexpected<Failure> fail_missing(const std::string& name, const arrow::Schema& schema) {
  std::vector<std::string> names = schema.field_names();
  const std::size_t left_out = names.size() > listed_columns_max ? names.size() - listed_columns_max : 0;
  names.resize(names.size() - left_out);
  return fail(Error::not_found, "there is no column \"{}\"; there are {}{}", name, fmt::join(names, ", "),
              left_out > 0 ? fmt::format(" and {} more", left_out) : "");
}

Result<int> column_of(const std::string& name, const arrow::Schema& schema) {
  const std::vector<int> found = schema.GetAllFieldIndices(name);
  if (found.empty()) return fail_missing(name, schema);
  if (found.size() > 1) return fail(Error::invalid, "column \"{}\" is there {} times", name, found.size());
  return found.front();
}

Result<std::shared_ptr<arrow::Array>> value_set(const Expression& call, arrow::MemoryPool& memory) {
  const Literal* first = nullptr;
  for (std::size_t i = 1; i < call.arguments.size(); ++i)
    if (call.arguments[i].literal.type != ValueType::null && first == nullptr) first = &call.arguments[i].literal;
  const auto type = first != nullptr ? scalar_of(*first)->type : arrow::null();
  std::unique_ptr<arrow::ArrayBuilder> builder;
  OFP_ARROW(arrow::MakeBuilder(&memory, type, &builder), "making the values of is_in");
  for (std::size_t i = 1; i < call.arguments.size(); ++i) {
    const Literal& literal = call.arguments[i].literal;
    const auto scalar = scalar_of(literal);
    if (literal.type != ValueType::null && !scalar->type->Equals(type))
      return fail(Error::invalid, "the values of is_in are {} and {}, not of one type", type->ToString(),
                  scalar->type->ToString());
    OFP_ARROW(literal.type == ValueType::null ? builder->AppendNull() : builder->AppendScalar(*scalar),
              "making the values of is_in");
  }
  OFP_ARROW_ASSIGN(std::shared_ptr<arrow::Array> values, builder->Finish(), "making the values of is_in");
  return values;
}

bool has_typed_value(const Expression& call) {
  return std::any_of(call.arguments.begin() + 1, call.arguments.end(),
                     [](const Expression& value) { return value.literal.type != ValueType::null; });
}

Result<cp::Expression> translate(const Expression& expression, const arrow::Schema& schema, arrow::MemoryPool& memory) {
  switch (expression.kind) {
    case Expression::Kind::field: {
      OFP_ASSIGN(const int index, column_of(expression.field, schema));
      return cp::field_ref(arrow::FieldRef(index));
    }
    case Expression::Kind::literal:
      return cp::literal(arrow::Datum(scalar_of(expression.literal)));
    case Expression::Kind::call:
      break;
  }
  std::shared_ptr<cp::FunctionOptions> options;
  std::size_t count = expression.arguments.size();
  if (expression.function == Function::cast)
    options = std::make_shared<cp::CastOptions>(cp::CastOptions::Safe(type_of(expression.target)));
  if (expression.function == Function::is_null) options = std::make_shared<cp::NullOptions>();
  if (expression.function == Function::is_in && !has_typed_value(expression)) {
    // Arrow compares the types of column and values, and these values have no type: only nulls are found, if one is
    // named.
    OFP_ASSIGN(cp::Expression argument, translate(expression.arguments[0], schema, memory));
    return cp::and_(cp::is_null(std::move(argument)), cp::literal(count > 1));
  }
  if (expression.function == Function::is_in) {
    OFP_ASSIGN(std::shared_ptr<arrow::Array> values, value_set(expression, memory));
    options = std::make_shared<cp::SetLookupOptions>(std::move(values));
    count = 1;
  }
  std::vector<cp::Expression> arguments;
  for (std::size_t i = 0; i < count; ++i) {
    OFP_ASSIGN(cp::Expression argument, translate(expression.arguments[i], schema, memory));
    arguments.push_back(std::move(argument));
  }
  return cp::call(arrow_name(expression.function), std::move(arguments), std::move(options));
}

std::shared_ptr<arrow::DataType> sum_type(const arrow::DataType& of) {
  if (arrow::is_signed_integer(of.id()) || of.id() == arrow::Type::NA) return arrow::int64();
  if (arrow::is_unsigned_integer(of.id()) || of.id() == arrow::Type::BOOL) return arrow::uint64();
  if (arrow::is_floating(of.id())) return arrow::float64();
  return nullptr;
}

bool has_order(const arrow::DataType& type) {
  return arrow::is_integer(type.id()) || (arrow::is_floating(type.id()) && type.id() != arrow::Type::HALF_FLOAT) ||
         arrow::is_temporal(type.id()) || type.id() == arrow::Type::BOOL;
}

// The values of an axis, converted to float64.
Result<std::vector<cp::Expression>> bind_axes(const Aggregate& aggregate, const arrow::Schema& input,
                                              arrow::MemoryPool& memory) {
  std::vector<cp::Expression> axes;
  cp::ExecContext context(&memory);
  for (const HistogramAxis& axis : aggregate.axes) {
    OFP_ASSIGN(const cp::Expression values, bind_to(axis.expression, input, memory));
    const arrow::DataType& of = *values.type();
    if (!arrow::is_integer(of.id()) && !arrow::is_floating(of.id()))
      return fail(Error::schema, "histogram \"{}\" is of type {}; it takes numbers", aggregate.name, of.ToString());
    const auto options = std::make_shared<cp::CastOptions>(cp::CastOptions::Unsafe(arrow::float64()));
    OFP_ARROW_ASSIGN(cp::Expression real, cp::call("cast", {values}, options).Bind(input, &context),
                     "binding an expression");
    axes.push_back(std::move(real));
  }
  return axes;
}

Status bind_aggregates(const Query& query, BoundQuery& bound, arrow::MemoryPool& memory) {
  arrow::FieldVector fields;
  for (std::size_t i = 0; i < query.aggregates.size(); ++i) {
    const Aggregate& aggregate = query.aggregates[i];
    BoundQuery::Aggregate made{aggregate.function, aggregate.name, {}};
    std::shared_ptr<arrow::DataType> type = arrow::int64();
    if (aggregate.function == AggregateFunction::histogram) {
      OFP_ASSIGN(made.axes, bind_axes(aggregate, *bound.input, memory));
      type = histogram_type(aggregate);
    }
    if (aggregate.expression) {
      OFP_ASSIGN(made.expression, bind_to(*aggregate.expression, *bound.input, memory));
      const arrow::DataType& of = *made.expression->type();
      const bool sums = aggregate.function == AggregateFunction::sum || aggregate.function == AggregateFunction::mean;
      const bool compares =
          aggregate.function == AggregateFunction::min || aggregate.function == AggregateFunction::max;
      if ((sums && sum_type(of) == nullptr) || (compares && !has_order(of)))
        return fail(Error::schema, "{} \"{}\" is of type {}, which does not support it",
                    aggregate_name(aggregate.function), aggregate.name, of.ToString());
      if (sums) type = sum_type(of);
      if (compares) type = made.expression->type()->GetSharedPtr();
    }
    for (const std::string& name : partial_names(i, aggregate.function))
      fields.push_back(arrow::field(name, name.ends_with("count") ? arrow::int64() : type));
    bound.aggregates.push_back(std::move(made));
  }
  bound.output = arrow::schema(std::move(fields));
  return {};
}

Status bind_projections(const Query& query, const arrow::Schema& schema, BoundQuery& bound, arrow::MemoryPool& memory) {
  arrow::FieldVector fields;
  if (query.projections.empty()) {
    for (int i = 0; i < schema.num_fields(); ++i) {
      bound.projections.push_back({schema.field(i)->name(), cp::field_ref(arrow::FieldRef(i))});
      OFP_ARROW_ASSIGN(bound.projections.back().expression, bound.projections.back().expression.Bind(schema),
                       "binding a column");
    }
    bound.output = bound.input;
    return {};
  }
  for (const Projection& projection : query.projections) {
    OFP_ASSIGN(cp::Expression expression, bind_to(projection.expression, *bound.input, memory));
    const auto* const column = expression.parameter();
    if (column != nullptr && column->indices.size() == 1)  // unchanged, nullability included
      fields.push_back(bound.input->field(column->indices[0])->WithName(projection.name));
    else
      fields.push_back(arrow::field(projection.name, expression.type()->GetSharedPtr()));
    bound.projections.push_back({projection.name, std::move(expression)});
  }
  bound.output = arrow::schema(std::move(fields));
  return {};
}

// Each expression of the query, by reference.
template <class Visit>
Status for_each_expression(const Query& query, Visit visit) {
  if (query.filter) OFP_TRY(visit(*query.filter));
  for (const Projection& projection : query.projections) OFP_TRY(visit(projection.expression));
  for (const Aggregate& aggregate : query.aggregates) {
    if (aggregate.expression) OFP_TRY(visit(*aggregate.expression));
    for (const HistogramAxis& axis : aggregate.axes) OFP_TRY(visit(axis.expression));
  }
  return {};
}

}  // namespace

Result<cp::Expression> bind_to(const Expression& expression, const arrow::Schema& schema, arrow::MemoryPool& memory) {
  cp::ExecContext context(&memory);
  OFP_ASSIGN(const cp::Expression translated, translate(expression, schema, memory));
  OFP_ARROW_ASSIGN(cp::Expression bound, translated.Bind(schema, &context), "binding an expression");
  OFP_ARROW_ASSIGN(bound, cp::FoldConstants(std::move(bound)), "folding constants");
  return bound;
}

std::shared_ptr<arrow::DataType> histogram_type(const Aggregate& aggregate) {
  return arrow::fixed_size_list(arrow::field("item", arrow::int64(), false),
                                static_cast<std::int32_t>(cells_of(aggregate)));
}

std::vector<std::string> partial_names(std::size_t index, AggregateFunction function) {
  if (function == AggregateFunction::mean) return {fmt::format("{}.sum", index), fmt::format("{}.count", index)};
  return {fmt::format("{}.{}", index, aggregate_name(function))};
}

Result<BoundQuery> bind_to(const Query& query, const std::shared_ptr<arrow::Schema>& schema,
                           arrow::MemoryPool& memory) {
  BoundQuery bound;
  const bool whole_rows = query.projections.empty() && query.aggregates.empty();
  std::vector<bool> needed(static_cast<std::size_t>(schema->num_fields()), whole_rows);
  OFP_TRY(for_each_expression(query, [&](const Expression& expression) -> Status {
    for (const std::string& name : fields_of(expression)) {
      OFP_ASSIGN(const int index, column_of(name, *schema));
      needed[static_cast<std::size_t>(index)] = true;
    }
    return {};
  }));
  arrow::FieldVector fields;
  for (int i = 0; i < schema->num_fields(); ++i) {
    if (!needed[static_cast<std::size_t>(i)]) continue;
    bound.columns.push_back(i);
    fields.push_back(schema->field(i));
  }
  bound.input = whole_rows ? schema : arrow::schema(std::move(fields));
  if (query.filter) {
    OFP_ASSIGN(bound.filter, bind_to(*query.filter, *bound.input, memory));
    if (bound.filter->type()->id() != arrow::Type::BOOL)
      return fail(Error::schema, "the filter is of type {}, not bool", bound.filter->type()->ToString());
  }
  if (query.aggregates.empty())
    OFP_TRY(bind_projections(query, *bound.input, bound, memory));
  else
    OFP_TRY(bind_aggregates(query, bound, memory));
  return bound;
}

}  // namespace offpath::pool
