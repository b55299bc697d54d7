// Queries as programs in C, C++ and Fortran write them: a filter, and columns or aggregates, as text.
#pragma once

#include <string_view>
#include <vector>

#include "base/status.h"
#include "wire/query/query.h"

namespace offpath::host {

struct QueryText {
  std::string_view filter{};                   // empty: all rows
  std::vector<std::string_view> columns{};     // NAME or NAME=EXPRESSION. None: whole rows
  std::vector<std::string_view> aggregates{};  // NAME=FUNCTION(EXPRESSION) or NAME=count
};

// Messages begin with the text's role: the filter, or a column or an aggregate by its name.
[[nodiscard]] Result<wire::Query> parse_query(const QueryText& text);

}  // namespace offpath::host
