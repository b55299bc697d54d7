// Loops over one chunk of one column, of plain numbers without nulls. One table for each set of instructions, of which
// the best for this processor is used. All tables compute the same bits: no operation is reordered or contracted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace offpath::pool {

// The type of a value. A mask is a byte for each row, 0 or 1.
enum class Lane : std::uint8_t { i8, i16, i32, i64, u8, u16, u32, u64, f32, f64, mask };
inline constexpr std::size_t number_lanes = 10;
[[nodiscard]] constexpr std::size_t lane_bytes(Lane lane) noexcept {
  constexpr std::size_t bytes[] = {1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 1};
  return bytes[static_cast<std::size_t>(lane)];
}

enum class Form : std::uint8_t { two_columns, column_and_constant, constant_and_column };
enum class Arithmetic : std::uint8_t { add, subtract, multiply, divide };
enum class Comparison : std::uint8_t { equal, not_equal, less, less_equal, greater, greater_equal };

// Computes `rows` values from a and b into `to`; a constant is one value. `to` may not overlap a or b.
using Loop = void (*)(const void* a, const void* b, void* to, std::size_t rows);
// Reduces `rows` values into an accumulator of eight bytes: i64, u64 or f64, by the lane's kind.
using Reduction = void (*)(const void* values, std::size_t rows, void* accumulator);

struct LoopTable {
  Loop arithmetic[4][2][3];             // Arithmetic, f32 and f64, Form
  Loop comparison[6][number_lanes][3];  // Comparison, Lane, Form: a mask
  Loop logical_and, logical_or, logical_not;
  Loop to_f64[number_lanes];  // for lanes whose values it represents exactly; null for others
  Reduction sum[number_lanes], least[number_lanes], most[number_lanes];
  // Numbers of the rows whose mask is 1, counted from `first`; returns how many. `numbers` has room for all rows.
  std::size_t (*chosen)(const std::uint8_t* mask, std::size_t rows, std::uint16_t first, std::uint16_t* numbers);
  // The values of those rows side by side. By bytes of a value: 1, 2, 4, 8.
  void (*gather[4])(const void* values, const std::uint16_t* numbers, std::size_t count, void* to);
};

[[nodiscard]] const LoopTable& loops() noexcept;           // the best for this processor
[[nodiscard]] const LoopTable& baseline_loops() noexcept;  // for every processor

}  // namespace offpath::pool
