#include "wire/query/expression.h"

#include <algorithm>
#include <utility>

namespace offpath::wire {

namespace {

struct Arity {
  std::uint32_t least = 0, most = 0;  // 0, 0: no such function
};

Arity arity_of(std::uint8_t number) noexcept {
  switch (number) {
#define X(name, at, least, most, arrow) \
  case at:                              \
    return {least, most};
    OFFPATH_FUNCTIONS(X)
#undef X
  }
  return {};
}

// Small integers travel as the widest of their kind: the schema determines the type of comparison.
constexpr bool may_be_literal(ValueType type) noexcept {
  switch (type) {
    case ValueType::int8:
    case ValueType::int16:
    case ValueType::int32:
    case ValueType::uint8:
    case ValueType::uint16:
    case ValueType::uint32:
      return false;
    default:
      return true;
  }
}

Result<Literal> decode_literal(Reader& from) {
  const auto number = from.take<std::uint8_t>();
  if (number > static_cast<std::uint8_t>(last_value_type) || !may_be_literal(static_cast<ValueType>(number)))
    return fail(Error::protocol, "an expression has a literal of type {}, which does not exist", number);
  Literal made{static_cast<ValueType>(number), {}};
  switch (made.type) {
    case ValueType::boolean:
      made.value = from.take<std::uint8_t>() != 0;
      break;
    case ValueType::int64:
      made.value = from.take<std::int64_t>();
      break;
    case ValueType::uint64:
      made.value = from.take<std::uint64_t>();
      break;
    case ValueType::float32:
      made.value = from.take<float>();
      break;
    case ValueType::float64:
      made.value = from.take<double>();
      break;
    case ValueType::date32:
      made.value = from.take<std::int32_t>();
      break;
    case ValueType::timestamp: {
      const auto unit = from.take<std::uint8_t>();
      if (unit > 3) return fail(Error::protocol, "a timestamp in an expression has unit {}, the last one is 3", unit);
      made.value = Timestamp{unit, from.take<std::int64_t>()};
      break;
    }
    case ValueType::text:
    case ValueType::binary: {
      const auto length = from.take<std::uint32_t>();
      if (length > literal_bytes_max)
        return fail(Error::too_large, "a literal has {} bytes, at most {} are allowed", length, literal_bytes_max);
      made.value = std::string(text_of(from.take_bytes(length)));
      break;
    }
    default:
      break;
  }
  return made;
}

Result<Expression> decode_node(Reader& from, std::uint32_t& nodes_left, std::uint32_t depth);

Result<Expression> decode_call(Reader& from, std::uint32_t& nodes_left, std::uint32_t depth) {
  Expression made;
  made.kind = Expression::Kind::call;
  const auto number = from.take<std::uint8_t>();
  const auto target = from.take<std::uint8_t>();
  const auto count = from.take<std::uint16_t>();
  const Arity arity = arity_of(number);
  if (arity.most == 0) return fail(Error::protocol, "an expression calls function {}, which does not exist", number);
  made.function = static_cast<Function>(number);
  if (count < arity.least || count > arity.most)
    return fail(Error::protocol, "{} is called with {} arguments, it takes {} to {}", function_name(made.function),
                count, arity.least, arity.most);
  const bool cast = made.function == Function::cast;
  if (target > static_cast<std::uint8_t>(last_value_type) || (target != 0) != cast)
    return fail(Error::protocol, "{} is called with target type {}", function_name(made.function), target);
  made.target = static_cast<ValueType>(target);
  for (std::uint16_t i = 0; i < count; ++i) {
    OFP_ASSIGN(Expression argument, decode_node(from, nodes_left, depth + 1));
    if (made.function == Function::is_in && i > 0 && argument.kind != Expression::Kind::literal)
      return fail(Error::protocol, "value {} of is_in is not a literal", i);
    made.arguments.push_back(std::move(argument));
  }
  return made;
}

Result<Expression> decode_node(Reader& from, std::uint32_t& nodes_left, std::uint32_t depth) {
  if (depth >= expression_depth_max)
    return fail(Error::too_large, "an expression is nested deeper than {} calls", expression_depth_max);
  if (nodes_left == 0)
    return fail(Error::too_large, "the query's expressions have more than {} parts", expression_nodes_max);
  --nodes_left;
  Expression made;
  const auto kind = from.take<std::uint8_t>();
  if (!from.ok()) return fail(Error::protocol, "an expression ends in its middle");
  switch (static_cast<Expression::Kind>(kind)) {
    case Expression::Kind::field: {
      made.kind = Expression::Kind::field;
      made.field = from.take_text();
      if (made.field.size() > field_bytes_max)
        return fail(Error::too_large, "a column's name has {} bytes, at most {} are allowed", made.field.size(),
                    field_bytes_max);
      break;
    }
    case Expression::Kind::literal: {
      OFP_ASSIGN(made.literal, decode_literal(from));
      break;
    }
    case Expression::Kind::call:
      return decode_call(from, nodes_left, depth);
    default:
      return fail(Error::protocol, "an expression has a part of kind {}, which does not exist", kind);
  }
  if (!from.ok()) return fail(Error::protocol, "an expression ends in its middle");
  return made;
}

void encode_literal(const Literal& from, Writer& to) {
  to.put(from.type);
  switch (from.type) {
    case ValueType::boolean:
      return to.put(static_cast<std::uint8_t>(std::get<bool>(from.value)));
    case ValueType::int64:
      return to.put(std::get<std::int64_t>(from.value));
    case ValueType::uint64:
      return to.put(std::get<std::uint64_t>(from.value));
    case ValueType::float32:
      return to.put(std::get<float>(from.value));
    case ValueType::float64:
      return to.put(std::get<double>(from.value));
    case ValueType::date32:
      return to.put(std::get<std::int32_t>(from.value));
    case ValueType::timestamp: {
      const auto [unit, value] = std::get<Timestamp>(from.value);
      to.put(unit);
      return to.put(value);
    }
    case ValueType::text:
    case ValueType::binary: {
      const auto& text = std::get<std::string>(from.value);
      to.put(static_cast<std::uint32_t>(text.size()));
      return to.put_bytes(bytes_of(text));
    }
    default:
      return;
  }
}

void collect_fields(const Expression& expression, std::vector<std::string>& names) {
  if (expression.kind == Expression::Kind::field && std::ranges::find(names, expression.field) == names.end())
    names.push_back(expression.field);
  for (const Expression& argument : expression.arguments) collect_fields(argument, names);
}

Expression literal_of(ValueType type, decltype(Literal::value) value) {
  return {.kind = Expression::Kind::literal, .literal = {type, std::move(value)}};
}

}  // namespace

std::string_view function_name(Function function) noexcept {
  switch (function) {
#define X(name, number, least, most, arrow) \
  case Function::name:                      \
    return #name;
    OFFPATH_FUNCTIONS(X)
#undef X
  }
  return "unknown";
}

const char* arrow_name(Function function) noexcept {
  switch (function) {
#define X(name, number, least, most, arrow) \
  case Function::name:                      \
    return arrow;
    OFFPATH_FUNCTIONS(X)
#undef X
  }
  return "";
}

void encode(const Expression& expression, Writer& to) {
  to.put(expression.kind);
  switch (expression.kind) {
    case Expression::Kind::field:
      return to.put_text(expression.field);
    case Expression::Kind::literal:
      return encode_literal(expression.literal, to);
    case Expression::Kind::call:
      break;
  }
  to.put(expression.function);
  to.put(expression.target);
  to.put(static_cast<std::uint16_t>(expression.arguments.size()));
  for (const Expression& argument : expression.arguments) encode(argument, to);
}

Result<Expression> decode_expression(Reader& from, std::uint32_t& nodes_left) {
  return decode_node(from, nodes_left, 0);
}

Expression field(std::string name) { return {.kind = Expression::Kind::field, .field = std::move(name)}; }
Expression literal(double value) { return literal_of(ValueType::float64, value); }
Expression literal(std::int64_t value) { return literal_of(ValueType::int64, value); }
Expression literal(std::string value) { return literal_of(ValueType::text, std::move(value)); }
Expression call(Function function, std::vector<Expression> arguments) {
  return {.kind = Expression::Kind::call, .function = function, .arguments = std::move(arguments)};
}

std::vector<std::string> fields_of(const Expression& expression) {
  std::vector<std::string> names;
  collect_fields(expression, names);
  return names;
}

}  // namespace offpath::wire
