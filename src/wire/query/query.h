// A question about frames: which rows, which columns of them or which figures over them. The bytes of a query are
//
//   version u8 = 1 | flags u8: 1 a filter follows, 2 the answer is to be combined with those of other members,
//   4 members that are lost with their rows do no harm, 8 objects that are not Arrow are left out, 16 one member's part
//   | [part: view u64, member text] | [filter] | projections u16, each: name text, expression |
//   aggregates u16, each: function u8, has u8, name text, [expression];
//   of a histogram `has` is its number of axes, each: low f64, high f64, bins u32, expression
//
// A query has projections or aggregates, not both; with neither it returns whole rows. A query with histograms has no
// other aggregates.
//
// Read this first in src/wire/query, then expression.h (what is computed for each row). The host library makes these
// bytes from text (host/requests/query_text.h), Python from pyarrow's expressions; agents answer (src/pool/query).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "wire/query/expression.h"

namespace offpath::wire {

enum class AggregateFunction : std::uint8_t { sum, min, max, mean, count, histogram };
inline constexpr AggregateFunction last_aggregate = AggregateFunction::histogram;
[[nodiscard]] std::string_view aggregate_name(AggregateFunction function) noexcept;

struct Projection {
  std::string name;
  Expression expression;
  bool operator==(const Projection&) const = default;
};

// Bins of equal width w, as numpy.histogram has them: bin i holds low + i w <= value < low + (i + 1) w, and the last
// one `high` too. Values that are null, NaN or beyond the range are in none.
struct HistogramAxis {
  double low = 0, high = 1;
  std::uint32_t bins = 1;
  Expression expression;
  bool operator==(const HistogramAxis&) const = default;
};

struct Aggregate {
  AggregateFunction function = AggregateFunction::count;
  std::string name;
  std::optional<Expression> expression{};  // none: count of rows. Otherwise values that are null do not count
  std::vector<HistogramAxis> axes{};       // of a histogram: one or two. Its cells are counted row by row of the first
  bool operator==(const Aggregate&) const = default;
};

// The rows for which one member answers. As `view`, which a listing tells, identifies the pool's members, the parts of
// all members are the whole, each row once.
struct QueryPart {
  std::uint64_t view = 0;  // 0: the pool lies at that member alone
  std::string member;
  bool operator==(const QueryPart&) const = default;
};

struct Query {
  std::optional<Expression> filter;
  std::vector<Projection> projections;
  std::vector<Aggregate> aggregates;
  bool partial = false;           // of aggregates: answer what combine() takes
  bool without_lost = false;      // rows that members took with them are left out; without it they make the query fail
  bool arrow_only = false;        // objects that are not Arrow are left out; without it they make the query fail
  std::optional<QueryPart> part;  // none: all of it
  bool operator==(const Query&) const = default;
};

inline constexpr std::uint64_t query_bytes_max = 1 << 20;
inline constexpr std::size_t query_columns_max = 4096;
inline constexpr std::uint64_t histogram_cells_max = 1 << 20;               // of all histograms of a query
[[nodiscard]] std::uint64_t cells_of(const Aggregate& aggregate) noexcept;  // 0: it is no histogram

[[nodiscard]] std::vector<std::byte> encode(const Query& query);
[[nodiscard]] Result<Query> decode_query(Bytes bytes);

}  // namespace offpath::wire
