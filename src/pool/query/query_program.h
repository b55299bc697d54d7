// Expressions as vector loops over chunks of rows. A chunk's intermediate values stay in the core's cache, whereas one
// kernel after the other over whole columns goes to memory each time. Equal parts of expressions are computed once.
// Only query_*.cc include this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "pool/query/query_arrow.h"
#include "pool/query/query_loops.h"

namespace offpath::pool {

inline constexpr std::size_t chunk_rows = 2048;
inline constexpr std::size_t chunk_register_bytes = chunk_rows * 8;

[[nodiscard]] std::optional<Lane> lane_of(const arrow::DataType& type) noexcept;

class VectorProgram {
 public:
  explicit VectorProgram(const LoopTable& loops) : loops_(&loops) {}

  // The number of the result, or nothing if there are no loops for some part of the expression. It is bound to the
  // program's columns, which have no nulls.
  [[nodiscard]] std::optional<std::uint16_t> add(const arrow::compute::Expression& bound);
  // After the last add. False if it would need too many registers.
  [[nodiscard]] bool finish();

  [[nodiscard]] std::size_t register_bytes() const noexcept { return registers_ * chunk_register_bytes; }
  [[nodiscard]] const std::vector<int>& columns() const noexcept { return columns_; }  // that it reads
  [[nodiscard]] Lane lane(std::uint16_t result) const noexcept { return values_[results_[result]].lane; }
  [[nodiscard]] bool is_constant(std::uint16_t result) const noexcept {
    return values_[results_[result]].kind == Kind::constant;
  }

  // At most chunk_rows rows. `columns` by number: where the chunk begins in each.
  void run(const std::byte* const* columns, std::byte* registers, std::size_t rows) const noexcept;
  [[nodiscard]] const std::byte* result(std::uint16_t number, const std::byte* const* columns,
                                        const std::byte* registers) const noexcept {
    return at(results_[number], columns, registers);
  }

 private:
  enum class Kind : std::uint8_t { column, computed, constant };
  struct Value {
    Kind kind;
    Lane lane;
    std::uint16_t place;  // the number of a column, or the register of a computed value
    std::uint64_t bits;   // of a constant
  };
  struct Step {
    Loop loop;
    std::uint16_t a, b, to;  // values
  };
  using Number = std::optional<std::uint16_t>;

  [[nodiscard]] Number compile(const arrow::compute::Expression& bound);
  [[nodiscard]] Number compile_call(const arrow::compute::Expression::Call& call);
  [[nodiscard]] Number compile_narrow(const arrow::compute::Expression::Call& call);
  [[nodiscard]] Number compile_pair(std::string_view function, std::uint16_t a, std::uint16_t b);
  [[nodiscard]] Number compile_cast(const arrow::compute::Expression& from, Lane to);
  [[nodiscard]] Number add_value(Kind kind, Lane lane, std::uint16_t place, std::uint64_t bits);
  [[nodiscard]] Number add_step(Loop loop, std::uint16_t a, std::uint16_t b, Lane lane);
  [[nodiscard]] Number narrowed(std::uint16_t constant, Lane lane);
  [[nodiscard]] const std::byte* at(std::uint16_t value, const std::byte* const* columns,
                                    const std::byte* registers) const noexcept;

  const LoopTable* loops_;
  std::vector<Value> values_;
  std::vector<Step> steps_;
  std::vector<std::uint16_t> results_;
  std::vector<int> columns_;
  std::vector<std::pair<arrow::compute::Expression, std::uint16_t>> known_;
  std::size_t registers_ = 0;
};

}  // namespace offpath::pool
