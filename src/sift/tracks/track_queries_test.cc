#include "sift/tracks/track_queries.h"

#include <gtest/gtest.h>

#include "sift/split/particles.h"

namespace offpath::sift {
namespace {

using frame::Type;
using pool::call;
using pool::Expression;
using pool::field;
using pool::Function;
using pool::literal;

Expression whole(std::uint64_t value) {
  Expression made;
  made.literal = {pool::ValueType::uint64, value};
  return made;
}
Expression whole(std::int64_t value) { return literal(value); }
Expression both(Expression a, Expression b) { return call(Function::logical_and, {std::move(a), std::move(b)}); }

std::shared_ptr<const TrackForm> form_of(Type type) {
  frame::Schema schema = particle_schema();
  schema.fields[0].type = type;
  if (type == Type::fixed_binary) schema.fields[0].width = 16;
  if (type == Type::decimal128) schema.fields[0].precision = 38;
  return TrackForm::make(schema, {std::string("id"), is_integer(type) ? KeyBy::bits : KeyBy::hash}).value();
}

TrackQuery bounds(Expression filter, Type type = Type::uint64) {
  pool::Query query;
  query.filter = std::move(filter);
  return bounds_of(query, *form_of(type)->rows);
}

TEST(TrackBounds, StepsAreThoseThatAllPartsAllow) {
  const auto steps = [](Expression filter) {
    const TrackQuery found = bounds(std::move(filter));
    return std::pair(found.first_step, found.last_step);
  };
  const auto step = [](Function function, std::int64_t value) { return call(function, {field("step"), whole(value)}); };
  EXPECT_EQ(steps(both(step(Function::greater_equal, 3), step(Function::less_equal, 9))),
            std::pair(INT64_C(3), INT64_C(9)));
  EXPECT_EQ(steps(both(both(step(Function::greater, 3), call(Function::less, {field("x"), literal(0.5)})),
                       step(Function::equal, 7))),
            std::pair(INT64_C(7), INT64_C(7)));
  EXPECT_EQ(steps(call(Function::less, {whole(INT64_C(5)), field("step")})),
            std::pair(INT64_C(5), INT64_MAX));  // 5 < step
  EXPECT_EQ(steps(call(Function::less, {field("step"), whole(UINT64_MAX)})), std::pair(INT64_MIN, INT64_MAX));
  // Terms that are not joined by "and", or are not whole numbers, give no bounds.
  EXPECT_EQ(steps(call(Function::logical_or, {step(Function::equal, 3), step(Function::equal, 4)})),
            std::pair(INT64_MIN, INT64_MAX));
  EXPECT_EQ(steps(call(Function::logical_not, {step(Function::equal, 3)})), std::pair(INT64_MIN, INT64_MAX));
  EXPECT_EQ(steps(call(Function::less, {field("step"), literal(5.5)})), std::pair(INT64_MIN, INT64_MAX));
  EXPECT_EQ(steps(step(Function::not_equal, 3)), std::pair(INT64_MIN, INT64_MAX));
  EXPECT_EQ(steps(call(Function::less, {field("id"), whole(INT64_C(5))})), std::pair(INT64_MIN, INT64_MAX));
}

TEST(TrackBounds, IdentifiersAreThoseOfOnePartThatTheColumnCanHold) {
  using Ids = std::vector<std::uint64_t>;
  const auto is = [](Expression value) { return call(Function::equal, {field("id"), std::move(value)}); };
  EXPECT_EQ(bounds(is(whole(INT64_C(5)))).identifiers, (Ids{5}));
  EXPECT_EQ(bounds(call(Function::is_in, {field("id"), whole(INT64_C(5)), whole(INT64_C(9))})).identifiers,
            (Ids{5, 9}));
  EXPECT_EQ(bounds(both(is(whole(INT64_C(5))), is(whole(INT64_C(6))))).identifiers,
            (Ids{5}));  // the filter itself matches none
  EXPECT_EQ(bounds(is(whole(INT64_C(-5))), Type::int32).identifiers, (Ids{static_cast<std::uint64_t>(-5)}));
  EXPECT_EQ(bounds(is(whole(UINT64_MAX))).identifiers, (Ids{UINT64_MAX}));
  EXPECT_EQ(bounds(is(whole(INT64_C(-5)))).identifiers, std::nullopt);
  EXPECT_EQ(bounds(is(whole(UINT64_MAX)), Type::int64).identifiers, std::nullopt);
  EXPECT_EQ(bounds(is(whole(INT64_C(1) << 32)), Type::uint32).identifiers, std::nullopt);
  EXPECT_EQ(bounds(is(whole(-(INT64_C(1) << 32))), Type::int32).identifiers, std::nullopt);
  EXPECT_EQ(bounds(call(Function::is_in, {field("id"), whole(INT64_C(5)), literal(9.5)})).identifiers, std::nullopt);
  EXPECT_EQ(bounds(call(Function::is_in, {field("x"), whole(INT64_C(5))})).identifiers, std::nullopt);
}

TEST(TrackBounds, LongIdentifiersAreBytesOfTheColumnsWidthOrOfAny) {
  const auto bytes = [](std::string value) {
    Expression made;
    made.literal = {pool::ValueType::binary, std::move(value)};
    return made;
  };
  const auto text = [](std::string value) {
    Expression made;
    made.literal = {pool::ValueType::text, std::move(value)};
    return made;
  };
  const auto is = [](Expression value) { return call(Function::equal, {field("id"), std::move(value)}); };
  const auto any = [](Expression one, Expression other) {
    return call(Function::is_in, {field("id"), std::move(one), std::move(other)});
  };
  using Ids = std::vector<std::string>;
  const std::string uuid(16, 'u');
  EXPECT_EQ(bounds(is(bytes(uuid)), Type::fixed_binary).long_identifiers, Ids{uuid});
  EXPECT_EQ(bounds(is(bytes(uuid + "u")), Type::fixed_binary).long_identifiers, std::nullopt);
  EXPECT_EQ(bounds(is(text("")), Type::utf8).long_identifiers, Ids{""});
  EXPECT_EQ(bounds(any(text("b"), text("a")), Type::utf8).long_identifiers, (Ids{"b", "a"}));
  EXPECT_EQ(bounds(any(text("b"), whole(INT64_C(5))), Type::utf8).long_identifiers, std::nullopt);
  EXPECT_EQ(bounds(is(whole(INT64_C(5))), Type::decimal128).long_identifiers, std::nullopt);
  const TrackQuery found = bounds(is(whole(INT64_C(5))), Type::utf8);
  EXPECT_EQ(found.identifiers, std::nullopt) << "numbers are none of them";
}

TEST(TrackBounds, OnlyColumnsThatAreNamedAreRead) {
  using Columns = std::vector<std::uint32_t>;
  const auto form = form_of(Type::int64);
  pool::Query query;
  query.filter = call(Function::less, {field("y"), field("step")});
  EXPECT_EQ(bounds_of(query, *form->rows).columns, std::nullopt);  // whole rows
  query.projections = {{"q", field("q")}};
  EXPECT_EQ(bounds_of(query, *form->rows).columns, (Columns{0, 2, 7}));
  query.projections.push_back({"speed", field("speed")});
  EXPECT_EQ(bounds_of(query, *form->rows).columns, std::nullopt);  // binding reports the unknown column
  query.projections.clear();
  query.aggregates = {{pool::AggregateFunction::count, "n", std::nullopt}};
  EXPECT_EQ(bounds_of(query, *form->rows).columns, (Columns{0, 2}));

  const FrameMemory memory{BufferCache::make({}), 7};
  const std::vector<std::uint64_t> ids = {7, 3, 5};
  FramePtr frame = particle_frame(*form->rows, ids, 4, memory);
  auto view = form->rows->view({frame->buffer.data(), frame->bytes}).value();
  TrackSnapshot snapshot(form, 1);
  snapshot.add(0, {TrackRun::sort(form->rows, {{std::move(frame), std::move(view), {{4, 3}}}}, memory).value()});
  TrackReader reader(snapshot, bounds_of(query, *form->rows), 10);
  const FramePtr some = reader.next(memory).value();
  const auto some_form = form->answers_of({0, 2}).value();
  const auto found = some_form->view({some->buffer.data(), some->bytes}).value();
  ASSERT_EQ(found.columns.size(), 3u);
  EXPECT_EQ(found.rows, 3u);
  for (std::uint64_t row = 0; row < 3; ++row) {
    const std::uint64_t id = 3 + 2 * row;
    EXPECT_EQ(load<std::uint64_t>(found.columns[1].values + row * 8), id);
    for (std::size_t at = 0; at < 4; ++at) EXPECT_EQ(found.columns[2].values[row * 4 + at], byte_of(id, 4, 2, at));
  }
  EXPECT_EQ(reader.empty(memory).value()->rows, 0u);
}

}  // namespace
}  // namespace offpath::sift
