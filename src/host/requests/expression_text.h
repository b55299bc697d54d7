// Expressions as people type them, such as `0.5 <= x < 1 and type in (1, 3)`. The language is that of `offpath pool
// query` and of Python's Pool.query (python/offpath/query_text.py), and the same text gives the same bytes in both
// (tests/e2e/pools/test_query_programs.py). From the weakest operator to the strongest:
//
//   or | and | not | == != < <= > >= in, not in | | | & | + - | * / | - ~ | values, columns, functions, ( )
//
// Comparisons may follow each other: a < b < c is a < b and b < c.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "wire/query/expression.h"

namespace offpath::host {

// Messages begin with the place in the text. Counts the parts of the expression down from `nodes_left`, which several
// expressions share.
[[nodiscard]] Result<wire::Expression> parse_expression(std::string_view text, std::uint32_t& nodes_left);

// Could be the name of a column without column("…").
[[nodiscard]] bool is_column_name(std::string_view text) noexcept;

}  // namespace offpath::host
