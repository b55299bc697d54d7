#include "pool/query/query_program.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

#include <arrow/compute/cast.h>

namespace offpath::pool {

namespace cp = arrow::compute;

namespace {

constexpr std::size_t values_max = 512, registers_max = 24;

template <class T>
std::uint64_t bits_of(T value) noexcept {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T>
T from_bits(std::uint64_t bits) noexcept {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Calls `visit` with a value of the lane's type.
template <class Visit>
auto with_lane(Lane lane, Visit visit) {
  switch (lane) {
    case Lane::i8:
      return visit(std::int8_t{});
    case Lane::i16:
      return visit(std::int16_t{});
    case Lane::i32:
      return visit(std::int32_t{});
    case Lane::i64:
      return visit(std::int64_t{});
    case Lane::u8:
      return visit(std::uint8_t{});
    case Lane::u16:
      return visit(std::uint16_t{});
    case Lane::u32:
      return visit(std::uint32_t{});
    case Lane::u64:
      return visit(std::uint64_t{});
    case Lane::f32:
      return visit(float{});
    default:
      return visit(double{});
  }
}

std::optional<std::uint64_t> constant_bits(const arrow::Scalar& scalar, Lane lane) {
  if (!scalar.is_valid) return {};
  return with_lane(lane, [&](auto sample) -> std::optional<std::uint64_t> {
    using T = decltype(sample);
    using ArrowType = typename arrow::CTypeTraits<T>::ArrowType;
    return bits_of(static_cast<const typename arrow::TypeTraits<ArrowType>::ScalarType&>(scalar).value);
  });
}

// The same number in a narrower type, if that represents it.
std::optional<std::uint64_t> narrow(std::uint64_t bits, Lane from, Lane to) {
  return with_lane(from, [&](auto wide) -> std::optional<std::uint64_t> {
    using Wide = decltype(wide);
    wide = from_bits<Wide>(bits);
    return with_lane(to, [&](auto sample) -> std::optional<std::uint64_t> {
      using Narrow = decltype(sample);
      if constexpr (std::is_floating_point_v<Wide>) {
        if (!std::isfinite(wide)) return {};
        if constexpr (std::is_integral_v<Narrow>) {
          const auto limit = std::ldexp(Wide{1}, std::numeric_limits<Narrow>::digits);
          if (!(wide >= (std::is_signed_v<Narrow> ? -limit : Wide{0}) && wide < limit)) return {};
        } else if (std::fabs(static_cast<double>(wide)) > static_cast<double>(std::numeric_limits<Narrow>::max())) {
          return {};
        }
        const auto made = static_cast<Narrow>(wide);
        return static_cast<Wide>(made) == wide ? std::optional(bits_of(made)) : std::nullopt;
      } else if constexpr (std::is_integral_v<Narrow>) {
        return std::in_range<Narrow>(wide) ? std::optional(bits_of(static_cast<Narrow>(wide))) : std::nullopt;
      } else {
        return {};
      }
    });
  });
}

// Is every number of one type a number of the other?
bool keeps_values(Lane from, Lane to) noexcept {
  return with_lane(from, [&](auto narrow_sample) {
    return with_lane(to, [&](auto wide_sample) {
      using Narrow = std::numeric_limits<decltype(narrow_sample)>;
      using Wide = std::numeric_limits<decltype(wide_sample)>;
      const bool whole = Narrow::is_integer || !Wide::is_integer;
      return whole && Narrow::digits <= Wide::digits && (Wide::is_signed || !Narrow::is_signed);
    });
  });
}

constexpr std::array<std::string_view, 6> comparison_names = {"equal",      "not_equal", "less",
                                                              "less_equal", "greater",   "greater_equal"};
constexpr std::array<std::string_view, 4> arithmetic_names = {"add", "subtract", "multiply", "divide"};

template <std::size_t n>
std::optional<std::size_t> index_in(const std::array<std::string_view, n>& names, std::string_view name) {
  const auto at = std::ranges::find(names, name);
  if (at == names.end()) return {};
  return static_cast<std::size_t>(at - names.begin());
}

}  // namespace

std::optional<Lane> lane_of(const arrow::DataType& type) noexcept {
  switch (type.id()) {
    case arrow::Type::INT8:
      return Lane::i8;
    case arrow::Type::INT16:
      return Lane::i16;
    case arrow::Type::INT32:
      return Lane::i32;
    case arrow::Type::INT64:
      return Lane::i64;
    case arrow::Type::UINT8:
      return Lane::u8;
    case arrow::Type::UINT16:
      return Lane::u16;
    case arrow::Type::UINT32:
      return Lane::u32;
    case arrow::Type::UINT64:
      return Lane::u64;
    case arrow::Type::FLOAT:
      return Lane::f32;
    case arrow::Type::DOUBLE:
      return Lane::f64;
    default:
      return {};
  }
}

VectorProgram::Number VectorProgram::add_value(Kind kind, Lane lane, std::uint16_t place, std::uint64_t bits) {
  if (values_.size() >= values_max) return {};
  values_.push_back({kind, lane, place, bits});
  return static_cast<std::uint16_t>(values_.size() - 1);
}

VectorProgram::Number VectorProgram::add_step(Loop loop, std::uint16_t a, std::uint16_t b, Lane lane) {
  const Number to = add_value(Kind::computed, lane, 0, 0);
  if (to && loop != nullptr) steps_.push_back({loop, a, b, *to});
  return loop != nullptr ? to : Number{};
}

VectorProgram::Number VectorProgram::narrowed(std::uint16_t constant, Lane lane) {
  const Value from = values_[constant];
  if (from.kind != Kind::constant) return {};
  const auto bits = narrow(from.bits, from.lane, lane);
  return bits ? add_value(Kind::constant, lane, 0, *bits) : Number{};
}

// A comparison of a widened x with a constant that x's own type represents: compares x itself.
VectorProgram::Number VectorProgram::compile_narrow(const cp::Expression::Call& call) {
  for (const std::size_t side : {0u, 1u}) {
    const auto* const cast = call.arguments[side].call();
    if (cast == nullptr || cast->function_name != "cast" || call.arguments[1 - side].literal() == nullptr) continue;
    const auto to = lane_of(*cast->type.type), from = lane_of(*cast->arguments.at(0).type());
    if (!to || !from || !keeps_values(*from, *to)) continue;
    const Number wide = compile(call.arguments[1 - side]);
    const Number constant = wide ? narrowed(*wide, *from) : Number{};
    const Number x = constant ? compile(cast->arguments[0]) : Number{};
    if (x)
      return side == 0 ? compile_pair(call.function_name, *x, *constant)
                       : compile_pair(call.function_name, *constant, *x);
  }
  return {};
}

VectorProgram::Number VectorProgram::compile_pair(std::string_view function, std::uint16_t a, std::uint16_t b) {
  if (function.ends_with("_checked")) function.remove_suffix(8);
  const auto compares = index_in(comparison_names, function);
  const Lane lane = values_[a].lane;
  if (values_[b].lane != lane) return {};
  const bool constant_a = values_[a].kind == Kind::constant, constant_b = values_[b].kind == Kind::constant;
  if (constant_a && constant_b) return {};
  const auto form = static_cast<std::size_t>(constant_a   ? Form::constant_and_column
                                             : constant_b ? Form::column_and_constant
                                                          : Form::two_columns);
  const auto number = static_cast<std::size_t>(lane);
  if (lane == Lane::mask) {
    if (constant_a || constant_b) return {};
    if (function == "and_kleene") return add_step(loops_->logical_and, a, b, Lane::mask);
    if (function == "or_kleene") return add_step(loops_->logical_or, a, b, Lane::mask);
    return {};
  }
  if (compares) return add_step(loops_->comparison[*compares][number][form], a, b, Lane::mask);
  // Integer overflow and division by zero are errors, which loops do not report: not supported here.
  const auto computes = index_in(arithmetic_names, function);
  if (!computes || (lane != Lane::f32 && lane != Lane::f64)) return {};
  if (*computes == static_cast<std::size_t>(Arithmetic::divide)) return {};  // by zero it is an error, too
  return add_step(loops_->arithmetic[*computes][lane == Lane::f64][form], a, b, lane);
}

VectorProgram::Number VectorProgram::compile_cast(const cp::Expression& argument, Lane to) {
  const Number from = compile(argument);
  if (!from || values_[*from].lane == to) return from;
  const auto [kind, lane, place, bits] = values_[*from];
  if (lane == Lane::mask) return {};
  if (to == Lane::f64 && kind != Kind::constant)
    return add_step(loops_->to_f64[static_cast<std::size_t>(lane)], *from, *from, Lane::f64);
  return kind == Kind::constant ? narrowed(*from, to) : Number{};
}

VectorProgram::Number VectorProgram::compile_call(const cp::Expression::Call& call) {
  if (call.function_name == "cast") {
    const auto to = lane_of(*call.type.type);
    return to ? compile_cast(call.arguments.at(0), *to) : Number{};
  }
  if (call.arguments.size() == 1 && call.function_name == "invert") {
    const Number a = compile(call.arguments[0]);
    return a && values_[*a].lane == Lane::mask ? add_step(loops_->logical_not, *a, *a, Lane::mask) : Number{};
  }
  if (call.arguments.size() != 2) return {};
  if (index_in(comparison_names, call.function_name))
    if (const Number narrow = compile_narrow(call)) return narrow;
  const Number a = compile(call.arguments[0]);
  const Number b = a ? compile(call.arguments[1]) : Number{};
  return b ? compile_pair(call.function_name, *a, *b) : Number{};
}

VectorProgram::Number VectorProgram::compile(const cp::Expression& bound) {
  for (const auto& [expression, value] : known_)
    if (expression.Equals(bound)) return value;
  Number made;
  if (const auto* parameter = bound.parameter()) {
    const auto lane = lane_of(*parameter->type.type);
    if (!lane || parameter->indices.size() != 1) return {};
    const int column = parameter->indices[0];
    if (std::ranges::find(columns_, column) == columns_.end()) columns_.push_back(column);
    made = add_value(Kind::column, *lane, static_cast<std::uint16_t>(column), 0);
  } else if (const auto* literal = bound.literal()) {
    if (!literal->is_scalar()) return {};
    const auto lane = lane_of(*literal->type());
    const auto bits = lane ? constant_bits(*literal->scalar(), *lane) : std::nullopt;
    made = bits ? add_value(Kind::constant, *lane, 0, *bits) : Number{};
  } else if (const auto* call = bound.call()) {
    made = compile_call(*call);
  }
  if (made) known_.emplace_back(bound, *made);
  return made;
}

std::optional<std::uint16_t> VectorProgram::add(const cp::Expression& bound) {
  const Number value = compile(bound);
  if (!value) return {};
  results_.push_back(*value);
  return static_cast<std::uint16_t>(results_.size() - 1);
}

// A register is free again after its last reader. Steps without a reader, such as a copy that a narrower constant has
// replaced, are left out.
bool VectorProgram::finish() {
  known_.clear();
  std::vector<bool> used(values_.size(), false);
  for (const std::uint16_t result : results_) used[result] = true;
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step)
    if (used[step->to]) used[step->a] = used[step->b] = true;
  std::erase_if(steps_, [&](const Step& step) { return !used[step.to]; });

  std::vector<std::size_t> last_use(values_.size(), 0);
  for (std::size_t i = 0; i < steps_.size(); ++i) last_use[steps_[i].a] = last_use[steps_[i].b] = i;
  for (const std::uint16_t result : results_) last_use[result] = steps_.size();
  std::vector<std::uint16_t> spare;
  const auto give_back = [&](std::uint16_t value, std::size_t step) {
    if (values_[value].kind == Kind::computed && last_use[value] == step) spare.push_back(values_[value].place);
  };
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    if (spare.empty()) spare.push_back(static_cast<std::uint16_t>(registers_++));
    values_[step.to].place = spare.back();  // never the register of a or b: those are released later
    spare.pop_back();
    give_back(step.a, i);
    if (step.b != step.a) give_back(step.b, i);
  }
  return registers_ <= registers_max;
}

const std::byte* VectorProgram::at(std::uint16_t number, const std::byte* const* columns,
                                   const std::byte* registers) const noexcept {
  const Value& value = values_[number];
  switch (value.kind) {
    case Kind::column:
      return columns[value.place];
    case Kind::computed:
      return registers + value.place * chunk_register_bytes;
    default:
      return reinterpret_cast<const std::byte*>(&value.bits);
  }
}

void VectorProgram::run(const std::byte* const* columns, std::byte* registers, std::size_t rows) const noexcept {
  for (const Step& step : steps_)
    step.loop(at(step.a, columns, registers), at(step.b, columns, registers),
              registers + values_[step.to].place * chunk_register_bytes, rows);
}

}  // namespace offpath::pool
