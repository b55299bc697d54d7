// The computation of a query for every row: fields, literals and calls of a closed list of functions. An own format
// rather than Substrait, because these bytes come from other processes: a reader of Substrait has to know plans, files
// and registries of functions, and this one knows the table below and nothing else. Python translates pyarrow's
// expressions (python/offpath/expression.py).
//
// Encoded in the order of a walk from the root, each node before its arguments:
//
//   field     u8 1   name text (u16 length, UTF-8)
//   literal   u8 2   type u8, then its value:  null -, boolean u8, signed i64, unsigned u64, float f32, double f64,
//                    text and binary u32 length and bytes, timestamp u8 unit (s, ms, us, ns) and i64, date32 i32
//   call      u8 3   function u8, target u8 (of a cast, otherwise 0), arguments u16, then each of them
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "wire/cursor.h"

namespace offpath::wire {

// name here, number on the wire, least and most arguments, the name in the library that computes it. Numbers stay; new
// functions go at the end. clang-format off: a list
#define OFFPATH_FUNCTIONS(X)                 \
  X(equal, 1, 2, 2, "equal")                 \
  X(not_equal, 2, 2, 2, "not_equal")         \
  X(less, 3, 2, 2, "less")                   \
  X(less_equal, 4, 2, 2, "less_equal")       \
  X(greater, 5, 2, 2, "greater")             \
  X(greater_equal, 6, 2, 2, "greater_equal") \
  X(add, 7, 2, 2, "add_checked")             \
  X(subtract, 8, 2, 2, "subtract_checked")   \
  X(multiply, 9, 2, 2, "multiply_checked")   \
  X(divide, 10, 2, 2, "divide_checked")      \
  X(negate, 11, 1, 1, "negate_checked")      \
  X(abs, 12, 1, 1, "abs_checked")            \
  X(sqrt, 13, 1, 1, "sqrt")                  \
  X(logical_and, 14, 2, 2, "and_kleene")     \
  X(logical_or, 15, 2, 2, "or_kleene")       \
  X(logical_not, 16, 1, 1, "invert")         \
  X(is_null, 17, 1, 1, "is_null")            \
  X(is_valid, 18, 1, 1, "is_valid")          \
  X(is_nan, 19, 1, 1, "is_nan")              \
  X(is_in, 20, 1, 4096, "is_in")             \
  X(cast, 21, 1, 1, "cast")                  \
  X(if_else, 22, 3, 3, "if_else")
// clang-format on

enum class Function : std::uint8_t {
#define X(name, number, least, most, arrow) name = number,
  OFFPATH_FUNCTIONS(X)
#undef X
};

// The type of a literal, and the result of a cast.
enum class ValueType : std::uint8_t {
  null,
  boolean,
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  float32,
  float64,
  text,
  binary,
  timestamp,
  date32
};
inline constexpr ValueType last_value_type = ValueType::date32;

struct Timestamp {
  std::uint8_t unit = 0;  // 0 s, 1 ms, 2 us, 3 ns
  std::int64_t value = 0;
  bool operator==(const Timestamp&) const = default;
};

struct Literal {
  ValueType type = ValueType::null;
  // null, boolean, int64, uint64, float32, float64, text and binary, timestamp, date32
  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, float, double, std::string, Timestamp, std::int32_t>
      value;
  bool operator==(const Literal&) const = default;
};

struct Expression {
  enum class Kind : std::uint8_t { field = 1, literal = 2, call = 3 };

  Kind kind = Kind::literal;
  std::string field = {};
  Literal literal = {};
  Function function = Function::equal;
  ValueType target = ValueType::null;
  std::vector<Expression> arguments = {};
  bool operator==(const Expression&) const = default;
};

// Bounds of one expression: for the stack of a walk over it, and for the time of one row.
inline constexpr std::uint32_t expression_depth_max = 48;
inline constexpr std::uint32_t expression_nodes_max = 8192;
inline constexpr std::uint32_t literal_bytes_max = 64 * 1024;
inline constexpr std::size_t field_bytes_max = 1024;

[[nodiscard]] std::string_view function_name(Function function) noexcept;
[[nodiscard]] const char* arrow_name(Function function) noexcept;  // the library's function

void encode(const Expression& expression, Writer& to);
// One expression from where `from` stands. Counts its nodes down from `nodes_left`, which several expressions share.
[[nodiscard]] Result<Expression> decode_expression(Reader& from, std::uint32_t& nodes_left);

// ---- for programs that write them out by hand: tests, benchmarks

[[nodiscard]] Expression field(std::string name);
[[nodiscard]] Expression literal(double value);
[[nodiscard]] Expression literal(std::int64_t value);
[[nodiscard]] Expression literal(std::string value);
[[nodiscard]] Expression call(Function function, std::vector<Expression> arguments);

// Names of the fields it reads, each once, in the order of a walk.
[[nodiscard]] std::vector<std::string> fields_of(const Expression& expression);

}  // namespace offpath::wire
