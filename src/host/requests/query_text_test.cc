#include "host/requests/query_text.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>

#include "offpath/offpath.h"

namespace offpath::host {
namespace {

using wire::call;
using wire::Expression;
using wire::field;
using wire::Function;
using wire::literal;
using wire::Literal;
using wire::ValueType;

Expression value(Literal made) { return {.kind = Expression::Kind::literal, .literal = std::move(made)}; }
Expression whole(std::int64_t number) { return literal(number); }
Expression text(const char* of) { return literal(std::string(of)); }
Expression negated(Expression of) { return call(Function::logical_not, {std::move(of)}); }
Expression both(Expression left, Expression right) { return call(Function::logical_and, {left, right}); }

Result<wire::Query> filtered(std::string_view filter) { return parse_query({.filter = filter}); }
Expression meaning(std::string_view filter) {
  const auto query = filtered(filter);
  EXPECT_TRUE(query) << filter << ": " << (query ? "" : query.error().message);
  return query && query->filter ? *query->filter : Expression{};
}
std::string complaint(std::string_view filter) {
  const auto query = filtered(filter);
  return query ? "none" : query.error().message;
}
std::string repeated(std::string_view what, int times) {
  std::string made;
  for (int i = 0; i < times; ++i) made += what;
  return made;
}

TEST(QueryText, OperatorsBindAsInPython) {
  const Expression x = field("x"), y = field("y"), z = field("z");
  const auto less = [](Expression left, Expression right) { return call(Function::less, {left, right}); };
  EXPECT_EQ(meaning("x + y * z"), call(Function::add, {x, call(Function::multiply, {y, z})}));
  EXPECT_EQ(meaning("(x + y) * z"), call(Function::multiply, {call(Function::add, {x, y}), z}));
  EXPECT_EQ(meaning("x - y - z"), call(Function::subtract, {call(Function::subtract, {x, y}), z}));
  EXPECT_EQ(meaning("x / y * z"), call(Function::multiply, {call(Function::divide, {x, y}), z}));
  EXPECT_EQ(meaning("-x * y"), call(Function::multiply, {call(Function::negate, {x}), y}));
  EXPECT_EQ(meaning("x < y < z"), both(less(x, y), less(y, z)));
  EXPECT_EQ(meaning("not x < y and z"), both(negated(less(x, y)), z));
  EXPECT_EQ(meaning("x or y and z"), call(Function::logical_or, {x, both(y, z)}));
  EXPECT_EQ(meaning("x < y & z"), less(x, both(y, z)));
  EXPECT_EQ(meaning("(x < y) & ~z | x"), call(Function::logical_or, {both(less(x, y), negated(z)), x}));
  EXPECT_EQ(meaning("x == y != z"), both(call(Function::equal, {x, y}), call(Function::not_equal, {y, z})));
  EXPECT_EQ(meaning("x <= y"), call(Function::less_equal, {x, y}));
  EXPECT_EQ(meaning("x >= y > z"), both(call(Function::greater_equal, {x, y}), call(Function::greater, {y, z})));
  EXPECT_EQ(
      meaning("if_else(is_nan(x), sqrt(abs(y)), z)"),
      call(Function::if_else, {call(Function::is_nan, {x}), call(Function::sqrt, {call(Function::abs, {y})}), z}));
}

TEST(QueryText, ValuesHaveTheTypesThatArrowGivesThem) {
  EXPECT_EQ(meaning("7"), whole(7));
  EXPECT_EQ(meaning("0x1F"), whole(31));
  EXPECT_EQ(meaning("-7"), whole(-7));
  EXPECT_EQ(meaning("-(7)"), whole(-7));
  EXPECT_EQ(meaning("- -7"), call(Function::negate, {whole(-7)}));
  EXPECT_EQ(meaning("-9223372036854775808"), whole(INT64_MIN));
  EXPECT_EQ(meaning("9223372036854775808"), value({ValueType::uint64, std::uint64_t{1} << 63}));
  EXPECT_EQ(meaning("2.5"), literal(2.5));
  EXPECT_EQ(meaning("-.5e1"), literal(-5.0));
  EXPECT_EQ(meaning("1e-3"), literal(1e-3));
  EXPECT_EQ(meaning("1-2"), call(Function::subtract, {whole(1), whole(2)}));
  EXPECT_EQ(meaning("True"), value({ValueType::boolean, true}));
  EXPECT_EQ(meaning("None"), value({}));
  EXPECT_EQ(meaning("'it\\'s'"), text("it's"));
  EXPECT_EQ(meaning("\"\\\\ \\n\\x41\\xe9\""), text("\\ \nA\xC3\xA9"));
  EXPECT_EQ(meaning("b'\\xff\\x00'"), value({ValueType::binary, std::string("\xFF\0", 2)}));
  EXPECT_EQ(meaning("column(\"two words\")"), field("two words"));
  EXPECT_EQ(meaning("größe"), field("größe"));
  EXPECT_EQ(meaning("b"), field("b"));
}

TEST(QueryText, ValuesOfAListHaveOneType) {
  const auto is_in = [](std::vector<Expression> values) {
    values.insert(values.begin(), field("x"));
    return call(Function::is_in, values);
  };
  EXPECT_EQ(meaning("x in (1, -2, 3,)"), is_in({whole(1), whole(-2), whole(3)}));
  EXPECT_EQ(meaning("x not in ['a', None]"), negated(is_in({text("a"), value({})})));
  EXPECT_EQ(meaning("x in (1, 2.5)"), is_in({literal(1.0), literal(2.5)}));
  EXPECT_EQ(meaning("x in ()"), is_in({}));
  EXPECT_EQ(meaning("x in (1, 9223372036854775808)"),
            is_in({value({ValueType::uint64, std::uint64_t{1}}), value({ValueType::uint64, std::uint64_t{1} << 63})}));
  EXPECT_EQ(meaning("0 < x in (1, 2)"),
            both(call(Function::less, {whole(0), field("x")}), is_in({whole(1), whole(2)})));
  for (const char* const mixed : {"x in (1, 'a')", "x in (True, 1)", "x in (9007199254740993, 0.5)",
                                  "x in (-1, 9223372036854775808)", "x in ('a', b'a')"})
    EXPECT_EQ(complaint(mixed), "filter, character 6: the values after \"in\" have different types") << mixed;
}

TEST(QueryText, ColumnsAndAggregatesHaveNames) {
  const auto columns = parse_query({.columns = {"id", " double = 2 * x", "a==b", "a b=c", "two words"}});
  ASSERT_TRUE(columns) << columns.error().message;
  const std::vector<wire::Projection> expected = {{"id", field("id")},
                                                  {"double", call(Function::multiply, {whole(2), field("x")})},
                                                  {"a==b", field("a==b")},
                                                  {"a b=c", field("a b=c")},
                                                  {"two words", field("two words")}};
  EXPECT_EQ(columns->projections, expected);
  const auto figures = parse_query({.filter = " ", .aggregates = {"n=count", "m = count(x)", "top speed=max(v * v)"}});
  ASSERT_TRUE(figures) << figures.error().message;
  EXPECT_FALSE(figures->filter);
  using enum wire::AggregateFunction;
  const std::vector<wire::Aggregate> made = {{count, "n", {}},
                                             {count, "m", field("x")},
                                             {max, "top speed", call(Function::multiply, {field("v"), field("v")})}};
  EXPECT_EQ(figures->aggregates, made);
}

TEST(QueryText, WhatIsNotUnderstoodIsNamedWithItsPlace) {
  const std::array<std::pair<const char*, const char*>, 29> cases = {{
      {"x <", "character 4: a column or a value is expected, not the end"},
      {"x = 1", "character 3: \"=\" means nothing in an expression; write == to compare"},
      {"x && y", "character 4: a column or a value is expected, not \"&\""},
      {"größe < ?", "character 9: \"?\" means nothing in an expression"},
      {"!x", "character 1: \"!\" means nothing in an expression"},
      {"x.real", "character 2: \".\" means nothing in an expression"},
      {"x ** 2", "character 4: a column or a value is expected, not \"*\""},
      {"x y", "character 3: an operator or the end is expected, not \"y\""},
      {"x is None", "character 3: an operator or the end is expected, not \"is\""},
      {"x == not y", "character 6: a column or a value is expected, not \"not\""},
      {"(x < 1", "character 7: an operator or \")\" is expected, not the end"},
      {"x < 1)", "character 6: an operator or the end is expected, not \")\""},
      {"x in y", "character 6: a list of values, as in (1, 2), is expected, not \"y\""},
      {"x in (y)", "character 7: a value is expected, not \"y\""},
      {"x in (1 2)", "character 9: \",\" or \")\" is expected, not \"2\""},
      {"x in [-'a']", "character 8: a number is expected, not \"'a'\""},
      {"x not 1", "character 7: \"in\" is expected, not \"1\""},
      {"sin(x)",
       "character 1: there is no function sin; there are abs, sqrt, is_null, is_valid, is_nan, if_else, "
       "column"},
      {"abs(x, y)", "character 1: abs is called with 2 arguments, it takes 1"},
      {"if_else(x)", "character 1: if_else is called with 1 arguments, it takes 3"},
      {"abs(x", "character 6: an operator, \",\" or \")\" is expected, not the end"},
      {"column(x)", "character 8: a name in quotes is expected, not \"x\""},
      {"x < 1.5.2", "character 5: 1.5.2 is not a number of 64 bits"},
      {"x < 2x", "character 5: 2x is not a number of 64 bits"},
      {"x < 010", "character 5: 010 is not a number of 64 bits"},
      {"x < 18446744073709551616", "character 5: 18446744073709551616 is not a number of 64 bits"},
      {"x < -9223372036854775809", "character 5: a number below -9223372036854775808 does not fit 64 bits"},
      {"x == 'a", "character 6: a text without its closing quote"},
      {"x == 'a\\q'", "character 6: a text may have the escapes \\\\ \\' \\\" \\n \\r \\t and \\xHH"},
  }};
  for (const auto& [filter, said] : cases) {
    EXPECT_EQ(complaint(filter), std::string("filter, ") + said) << filter;
    EXPECT_EQ(filtered(filter).error().code, Error::invalid);
  }
  EXPECT_EQ(parse_query({.columns = {"id", "twice=2 *"}}).error().message,
            "column \"twice\", character 4: a column or a value is expected, not the end");
  EXPECT_EQ(parse_query({.aggregates = {"top=max()"}}).error().message,
            "aggregate \"top\", character 1: a column or a value is expected, not the end");
  for (const char* const wrong : {"n", "n=median(x)", "n=sum(x", "=sum(x)", "n=sum", "n=sum (x)"})
    EXPECT_EQ(parse_query({.aggregates = {wrong}}).error().message,
              std::string("aggregate \"") + wrong +
                  "\": write NAME=count, or NAME=FUNCTION(EXPRESSION) with sum, min, max, mean or count");
}

TEST(QueryText, EverythingIsBounded) {
  EXPECT_EQ(meaning(repeated("(", 48) + "x" + repeated(")", 48)), field("x"));
  for (const std::string& deep : {repeated("(", 100'000), repeated("not ", 100'000), repeated("-", 100'000),
                                  repeated("abs(", 100'000), repeated("x + ", 100'000) + "x"}) {
    const auto query = filtered(deep);
    ASSERT_FALSE(query);
    EXPECT_EQ(query.error().code, Error::too_large);
    EXPECT_NE(query.error().message.find("nested deeper than 48 calls"), std::string::npos) << query.error().message;
  }
  EXPECT_TRUE(filtered(repeated("x + ", 47) + "x"));
  EXPECT_FALSE(filtered(repeated("x + ", 48) + "x"));
  EXPECT_TRUE(filtered("x in (" + repeated("1,", 4095) + ")"));
  EXPECT_EQ(complaint("x in (" + repeated("1,", 4096) + ")"),
            "filter, character 8197: at most 4095 values are allowed after \"in\"");
  const std::string many = "a=x in (" + repeated("1,", 4000) + ")";
  EXPECT_EQ(parse_query({.columns = {many, many, many}}).error().message,
            "column \"a\", character 8008: the query's expressions have more than 8192 parts");
  // A part in the middle is in two comparisons: it counts twice, at every level.
  EXPECT_NE(complaint(repeated("x < (", 40) + "x" + repeated(") < x", 40)).find("more than 8192 parts"),
            std::string::npos);
  const std::string longest(10'000, 'a');
  EXPECT_NE(complaint(repeated("x < (", 10) + "'" + longest + "'" + repeated(") < x", 10))
                .find("texts and names of more than 1048576 bytes"),
            std::string::npos);
  EXPECT_EQ(complaint("x == '\xff'"), "filter is not UTF-8");
  EXPECT_EQ(parse_query({.columns = std::vector<std::string_view>(4097, "x")}).error().message,
            "a query of 4097 columns, at most 4096 are allowed");
  EXPECT_EQ(complaint(std::string((1 << 20) + 1, ' ') + "x"),
            "filter has 1048578 bytes of text, at most 1048576 are allowed");
}

// ---- the C interface

class QueryMake : public testing::Test {
 protected:
  ~QueryMake() override { ofp_query_bytes_free(query); }
  int make() { return ofp_query_make(&text, &query, &query_bytes, &error); }

  static ofp_query_text empty() {
    ofp_query_text made{};
    made.struct_bytes = sizeof made;
    return made;
  }

  ofp_query_text text = empty();
  void* query = nullptr;
  std::uint64_t query_bytes = 0;
  ofp_error error{};
};

TEST_F(QueryMake, MakesWhatAgentsRead) {
  const char* const columns[] = {"id", "twice=2 * x"};
  text.filter = "x < 0.5";
  text.columns = columns;
  text.columns_count = 2;
  text.flags = OFP_QUERY_PARTIAL | OFP_QUERY_ARROW_ONLY;
  text.member = "b";
  text.view = 7;
  ASSERT_EQ(make(), OFP_OK) << error.message;
  const auto read = wire::decode_query({static_cast<const std::byte*>(query), query_bytes});
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->filter, call(Function::less, {field("x"), literal(0.5)}));
  EXPECT_EQ(read->projections.size(), 2u);
  EXPECT_TRUE(read->without_lost && read->arrow_only && !read->partial);
  EXPECT_EQ(read->part, (wire::QueryPart{7, "b"}));
}

TEST_F(QueryMake, WithoutAnythingAsksForWholeRows) {
  ASSERT_EQ(make(), OFP_OK) << error.message;
  EXPECT_EQ(wire::decode_query({static_cast<const std::byte*>(query), query_bytes}).value(), wire::Query{});
}

TEST_F(QueryMake, AStructOfALaterVersionIsRead) {
  struct {
    ofp_query_text known;
    std::uint64_t added[4];
  } later{};
  later.known.struct_bytes = sizeof later;
  later.known.filter = "x";
  ASSERT_EQ(ofp_query_make(&later.known, &query, &query_bytes, &error), OFP_OK) << error.message;
  EXPECT_EQ(wire::decode_query({static_cast<const std::byte*>(query), query_bytes}).value().filter, field("x"));
}

TEST_F(QueryMake, WrongArgumentsAreNamed) {
  EXPECT_EQ(ofp_query_make(nullptr, &query, &query_bytes, &error), OFP_INVALID);
  EXPECT_STREQ(error.message, "text is NULL");
  EXPECT_EQ(ofp_query_make(&text, nullptr, &query_bytes, &error), OFP_INVALID);
  EXPECT_STREQ(error.message, "query is NULL");
  EXPECT_EQ(ofp_query_make(&text, &query, nullptr, &error), OFP_INVALID);
  EXPECT_STREQ(error.message, "query_bytes is NULL");
  text.struct_bytes = 0;
  EXPECT_EQ(make(), OFP_INVALID);
  EXPECT_EQ(std::string(error.message).substr(0, 34), "ofp_query_text.struct_bytes is 0; ");
  text.struct_bytes = sizeof text;
  text.flags = 12;
  EXPECT_EQ(make(), OFP_INVALID);
  EXPECT_STREQ(error.message, "ofp_query_text.flags is 0xc, of which 0x3 are known");
  text.flags = 0;
  text.columns_count = 1;
  EXPECT_EQ(make(), OFP_INVALID);
  EXPECT_STREQ(error.message, "columns is NULL, and columns_count is 1");
  const char* const columns[] = {"x", nullptr};
  text.columns = columns;
  text.columns_count = 2;
  EXPECT_EQ(make(), OFP_INVALID);
  EXPECT_STREQ(error.message, "columns[1] is NULL");
  const char* const aggregates[] = {"n=count"};
  text.columns_count = 1;
  text.aggregates = aggregates;
  text.aggregates_count = 1;
  EXPECT_EQ(make(), OFP_INVALID);
  EXPECT_STREQ(error.message, "a query has 1 columns and 1 aggregates; it may have one kind");
  const std::string long_name(1025, 'n');
  text = empty();
  text.filter = long_name.c_str();
  EXPECT_EQ(make(), OFP_TOO_LARGE);
  EXPECT_STREQ(error.message, "a column's name has 1025 bytes, at most 1024 are allowed");
  EXPECT_EQ(query, nullptr);
  EXPECT_EQ(query_bytes, 0u);
  ofp_query_bytes_free(nullptr);
}

}  // namespace
}  // namespace offpath::host
