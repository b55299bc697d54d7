// What is asked of frames: which rows, which columns of them or which figures over them. The bytes of a query are
//
//   version u8 = 1 | flags u8: 1 a filter follows, 2 the answer is to be combined with those of other members,
//   4 members that are lost with their rows do no harm, 8 objects that are not Arrow are left out |
//   [filter] | projections u16, each: name text, expression | aggregates u16, each: function u8, has u8, name text,
//   [expression]
//
// A query has projections or aggregates, not both; with neither it answers whole rows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "pool/query/expression.h"

namespace offpath::pool {

enum class AggregateFunction : std::uint8_t { sum, min, max, mean, count };
inline constexpr AggregateFunction last_aggregate = AggregateFunction::count;
[[nodiscard]] std::string_view aggregate_name(AggregateFunction function) noexcept;

struct Projection {
  std::string name;
  Expression expression;
  bool operator==(const Projection&) const = default;
};

struct Aggregate {
  AggregateFunction function = AggregateFunction::count;
  std::string name;
  std::optional<Expression> expression;  // none: count of rows. Otherwise values that are null do not count
  bool operator==(const Aggregate&) const = default;
};

struct Query {
  std::optional<Expression> filter;
  std::vector<Projection> projections;
  std::vector<Aggregate> aggregates;
  bool partial = false;       // of aggregates: answer what combine() takes
  bool without_lost = false;  // rows that members took with them are left out; without it they make the query fail
  bool arrow_only = false;    // objects that are not Arrow are left out; without it they make the query fail
  bool operator==(const Query&) const = default;
};

inline constexpr std::uint64_t query_bytes_max = 1 << 20;
inline constexpr std::size_t query_columns_max = 4096;

[[nodiscard]] std::vector<std::byte> encode(const Query& query);
[[nodiscard]] Result<Query> decode_query(Bytes bytes);

}  // namespace offpath::pool
