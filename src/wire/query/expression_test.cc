#include "wire/query/expression.h"

#include <gtest/gtest.h>

#include "wire/query/query.h"

namespace offpath::wire {
namespace {

Query example() {
  Query query;
  query.filter = call(Function::logical_and,
                      {call(Function::less, {field("x"), literal(0.5)}),
                       call(Function::is_in, {field("name"), literal(std::string("a")), literal(std::string("b"))})});
  Expression cast = call(Function::cast, {field("id")});
  cast.target = ValueType::int32;
  query.projections = {{"twice", call(Function::add, {field("x"), field("x")})}, {"id", cast}};
  return query;
}

Result<Query> around(const std::vector<std::byte>& expression) {
  std::vector<std::byte> bytes = {std::byte{1}, std::byte{1}};
  bytes.insert(bytes.end(), expression.begin(), expression.end());
  bytes.insert(bytes.end(), 4, std::byte{0});
  return decode_query(bytes);
}

TEST(Expression, WhatIsEncodedIsDecoded) {
  const Query query = example();
  const auto back = decode_query(encode(query));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, query);
  Query aggregates;
  aggregates.partial = aggregates.arrow_only = true;
  aggregates.aggregates = {{AggregateFunction::count, "n", {}}, {AggregateFunction::mean, "m", field("x")}};
  EXPECT_EQ(decode_query(encode(aggregates)).value(), aggregates);
  aggregates.part = QueryPart{7, "b"};
  EXPECT_EQ(decode_query(encode(aggregates)).value(), aggregates);
}

TEST(Expression, EveryCutOfItIsRefused) {
  Query query = example();
  query.part = QueryPart{7, "b"};
  const std::vector<std::byte> bytes = encode(query);
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(decode_query(Bytes(bytes).first(length))) << length;
  std::vector<std::byte> longer = bytes;
  longer.push_back({});
  EXPECT_FALSE(decode_query(longer));
}

TEST(Expression, DeepAndWideOnesAreRefused) {
  Expression deep = field("x");
  for (std::uint32_t i = 1; i < expression_depth_max; ++i) deep = call(Function::negate, {deep});
  Query query;
  query.projections = {{"deep", deep}};
  EXPECT_TRUE(decode_query(encode(query)));
  query.projections = {{"deeper", call(Function::negate, {deep})}};
  EXPECT_EQ(decode_query(encode(query)).error().message, "an expression is nested deeper than 48 calls");
  std::vector<Expression> values(4096, literal(std::int64_t{1}));
  values.front() = field("x");
  query.projections = {{"a", call(Function::is_in, values)}, {"b", call(Function::is_in, values)}};
  EXPECT_EQ(decode_query(encode(query)).error().code, Error::too_large);
}

TEST(Expression, WhatIsNoFunctionTypeOrPartIsNamed) {
  const auto bytes = [](std::initializer_list<int> values) {
    std::vector<std::byte> made;
    for (const int value : values) made.push_back(static_cast<std::byte>(value));
    return made;
  };
  EXPECT_EQ(around(bytes({3, 99, 0, 1, 0, 2, 0})).error().message,
            "an expression calls function 99, which does not exist");
  EXPECT_EQ(around(bytes({3, 1, 0, 1, 0, 2, 0})).error().message, "equal is called with 1 arguments, it takes 2 to 2");
  EXPECT_EQ(around(bytes({3, 16, 5, 1, 0, 2, 0})).error().message, "logical_not is called with target type 5");
  EXPECT_EQ(around(bytes({9})).error().message, "an expression has a part of kind 9, which does not exist");
  EXPECT_EQ(around(bytes({2, 4})).error().message, "an expression has a literal of type 4, which does not exist");
}

TEST(Expression, ColumnsAndAggregatesExcludeEachOther) {
  Query query = example();
  query.aggregates = {{AggregateFunction::count, "n", {}}};
  EXPECT_EQ(decode_query(encode(query)).error().code, Error::invalid);
}

}  // namespace
}  // namespace offpath::wire
