#include <gtest/gtest.h>

#include <arrow/io/memory.h>
#include <arrow/ipc/reader.h>

#include <cmath>
#include <numeric>
#include <random>

#include "pool/query/query_loops.h"
#include "pool/query/query_run.h"
#include "testing/pool/frames.h"

namespace offpath::pool {
namespace {

Expression below(const char* name, double limit) { return call(Function::less, {field(name), literal(limit)}); }
Expression both(Expression a, Expression b) { return call(Function::logical_and, {std::move(a), std::move(b)}); }
Expression box() { return both(both(below("x", 0.5), below("y", 0.5)), below("z", 0.5)); }
Expression squared(const char* name) { return call(Function::multiply, {field(name), field(name)}); }
Expression squared_velocity() {
  return call(Function::add, {call(Function::add, {squared("vx"), squared("vy")}), squared("vz")});
}

class QueryTest : public ::testing::Test {
 protected:
  struct Answer {
    std::shared_ptr<arrow::Table> table;
    std::vector<FramePtr> frames;
    std::size_t steps = 0;
    bool loops = false;
  };

  Result<Answer> ask(const Query& query, const std::vector<std::shared_ptr<arrow::RecordBatch>>& batches) {
    std::vector<QuerySource> sources;
    for (const auto& batch : batches)
      sources.push_back({frame_of(*batch, *cache_), fmt::format("row{}", sources.size()), "c"});
    OFP_ASSIGN(auto run, QueryRun::make(query, std::move(sources), limits_, threads_, cache_, 0));
    Answer answer;
    for (bool finished = false; !finished; ++answer.steps) {
      OFP_ASSIGN(QueryStep step, run->step(stop_.get_token()));
      finished = step.finished;
      for (FramePtr& frame : step.frames) answer.frames.push_back(std::move(frame));
    }
    answer.loops = run->counters().loops;
    arrow::RecordBatchVector read;
    std::shared_ptr<arrow::Schema> schema;
    for (const FramePtr& frame : answer.frames) {
      const auto batch = batch_of(*frame);
      schema = batch.front()->schema();
      read.insert(read.end(), batch.begin(), batch.end());
      EXPECT_EQ(frame->rows, static_cast<std::uint64_t>(batch.front()->num_rows()));
    }
    answer.table = arrow::Table::FromRecordBatches(schema, read).ValueOrDie();
    EXPECT_TRUE(answer.table->ValidateFull().ok());
    return answer;
  }

  static arrow::RecordBatchVector batch_of(const service::Frame& frame) {
    const auto bytes = std::make_shared<arrow::Buffer>(reinterpret_cast<const std::uint8_t*>(frame.buffer.data()),
                                                       static_cast<std::int64_t>(frame.bytes));
    return arrow::ipc::RecordBatchStreamReader::Open(std::make_shared<arrow::io::BufferReader>(bytes))
        .ValueOrDie()
        ->ToRecordBatches()
        .ValueOrDie();
  }

  // The same by loops and by plans; the loops have to support it.
  Answer both_ways(const Query& query, const std::vector<std::shared_ptr<arrow::RecordBatch>>& batches) {
    auto by_loops = ask(query, batches);
    EXPECT_TRUE(by_loops) << by_loops.error().message;
    EXPECT_TRUE(by_loops->loops);
    limits_.loops = false;
    auto by_plans = ask(query, batches);
    limits_.loops = true;
    EXPECT_TRUE(by_plans) << by_plans.error().message;
    EXPECT_FALSE(by_plans->loops);
    EXPECT_TRUE(by_loops->table->schema()->Equals(by_plans->table->schema()));
    const auto one = by_loops->table->CombineChunksToBatch().ValueOrDie(),
               other = by_plans->table->CombineChunksToBatch().ValueOrDie();
    EXPECT_TRUE(one->ApproxEquals(*other, arrow::EqualOptions::Defaults().atol(1e-6).nans_equal(true)))
        << one->ToString() << other->ToString();
    return std::move(*by_loops);
  }

  std::shared_ptr<service::BufferCache> cache_ = service::BufferCache::make({});
  std::shared_ptr<QueryThreads> threads_ = QueryThreads::make(3);
  QueryLimits limits_{.threads = 3};
  std::stop_source stop_;
};

TEST_F(QueryTest, ABoxOfParticlesInOrder) {
  Query query;
  query.filter = box();
  const auto answer = both_ways(query, {particles(200'000, 1), particles(1, 2), particles(70'001, 3)});
  EXPECT_NEAR(static_cast<double>(answer.table->num_rows()), 270'002.0 / 8, 1000);
  EXPECT_EQ(answer.table->num_columns(), 9);
}

// Columns of the filter are kept if few rows are chosen, and read again if many are, or without free memory.
TEST_F(QueryTest, FewOrManyRowsOfWhatTheFilterReads) {
  for (const double limit : {0.0, 0.01, 0.2, 0.24, 0.25, 0.26, 0.5, 0.99, 2.0}) {
    Query query;
    query.filter = both(below("x", limit), below("type", 3));
    both_ways(query, {particles(200'000, 1), particles(31, 2), particles(70'001, 3)});
  }
  limits_.memory_bytes_max = 1 << 20;
  limits_.step_bytes = limits_.frame_bytes_max = 64 << 10;
  Query query;
  query.filter = box();
  const auto answer = ask(query, {particles(200'000, 1)});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_GT(answer->table->num_rows(), 20'000);
}

TEST_F(QueryTest, ComputedColumns) {
  Query query;
  query.filter = below("x", 0.25);
  query.projections = {{"v2", squared_velocity()}, {"id", field("id")}, {"type", field("type")}};
  const auto answer = both_ways(query, {particles(100'000, 1)});
  EXPECT_EQ(answer.table->schema()->field(0)->type()->id(), arrow::Type::FLOAT);
  query.filter.reset();
  EXPECT_EQ(both_ways(query, {particles(100'000, 1)}).table->num_rows(), 100'000);
}

TEST_F(QueryTest, Aggregates) {
  Query query;
  query.aggregates = {{AggregateFunction::min, "least", squared_velocity()},
                      {AggregateFunction::max, "most", squared_velocity()},
                      {AggregateFunction::mean, "mean", field("q")},
                      {AggregateFunction::sum, "types", field("type")},
                      {AggregateFunction::count, "n", {}},
                      {AggregateFunction::max, "id", field("id")}};
  const auto all = both_ways(query, {particles(300'000, 1), particles(5000, 2)});
  EXPECT_EQ(all.table->num_rows(), 1);
  EXPECT_EQ(all.table->GetColumnByName("n")->GetScalar(0).ValueOrDie()->ToString(), "305000");
  query.filter = call(Function::equal, {field("type"), literal(std::int64_t{3})});
  both_ways(query, {particles(300'000, 1)});
  query.filter = below("x", -1);  // no rows: counts are 0, others null
  const auto none = both_ways(query, {particles(3000, 1)});
  EXPECT_EQ(none.table->GetColumnByName("n")->GetScalar(0).ValueOrDie()->ToString(), "0");
  EXPECT_FALSE(none.table->GetColumnByName("least")->GetScalar(0).ValueOrDie()->is_valid);
  EXPECT_FALSE(none.table->GetColumnByName("mean")->GetScalar(0).ValueOrDie()->is_valid);
}

Aggregate histogram(const char* name, std::vector<HistogramAxis> axes) {
  return {AggregateFunction::histogram, name, {}, std::move(axes)};
}

std::vector<std::int64_t> counts_of(const arrow::RecordBatch& batch, int column = 0) {
  const auto& lists = static_cast<const arrow::FixedSizeListArray&>(*batch.column(column));
  const auto& values = static_cast<const arrow::Int64Array&>(*lists.values());
  return {values.raw_values() + lists.value_offset(0), values.raw_values() + lists.value_offset(1)};
}

TEST_F(QueryTest, HistogramsCountEveryRowOfTheRangeOnce) {
  Query query;
  query.filter = below("x", 0.5);
  query.aggregates = {histogram("both", {{0, 0.5, 10, field("x")}, {0, 1, 7, field("y")}}),
                      histogram("type", {{-1, 4, 5, field("type")}})};
  const auto batch = particles(200'001, 1);
  const auto answer = ask(query, {batch});
  ASSERT_TRUE(answer) << answer.error().message;
  const auto whole = batch_of(*answer->frames.at(0)).front();
  const auto both = counts_of(*whole), type = counts_of(*whole, 1);
  std::vector<std::int64_t> expected_both(70), expected_type(5);
  const auto* const x = batch->GetColumnByName("x")->data()->GetValues<float>(1);
  const auto* const y = batch->GetColumnByName("y")->data()->GetValues<float>(1);
  const auto* const kind = batch->GetColumnByName("type")->data()->GetValues<std::uint8_t>(1);
  for (std::int64_t i = 0; i < batch->num_rows(); ++i) {
    if (x[i] >= 0.5F) continue;
    std::size_t at_x = 0, at_y = 0;
    while (at_x < 9 && static_cast<double>(x[i]) >= static_cast<double>(at_x + 1) * (0.5 / 10)) ++at_x;
    while (at_y < 6 && static_cast<double>(y[i]) >= static_cast<double>(at_y + 1) * (1.0 / 7)) ++at_y;
    ++expected_both[at_x * 7 + at_y];
    ++expected_type[kind[i] + 1u];
  }
  EXPECT_EQ(both, expected_both);
  EXPECT_EQ(type, expected_type);
}

TEST_F(QueryTest, AHistogramsEdgesAreInTheUpperBinAndTheLastOneInTheLast) {
  Query query;
  query.aggregates = {histogram("h", {{0, 0.9, 3, field("v")}})};
  const double nan = std::nan(""), width = 0.9 / 3;
  const auto values = array_of<double>({0, -0.0, width, 2 * width, std::nextafter(2 * width, 0), 0.9, nan, -1e-300,
                                        std::nextafter(0.9, 1), INFINITY, -INFINITY});
  const auto answer =
      ask(query, {arrow::RecordBatch::Make(arrow::schema({arrow::field("v", arrow::float64())}), 11, {values})});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(counts_of(*batch_of(*answer->frames.at(0)).front()), (std::vector<std::int64_t>{2, 2, 2}));
  query.aggregates = {histogram("h", {{0, 1e6, 4, field("real")}, {-100, 100, 2, field("number")}})};
  const auto mixed = ask(query, {mixed_batch(100)});  // with nulls
  ASSERT_TRUE(mixed) << mixed.error().message;
  std::int64_t sum = 0;
  for (const std::int64_t count : counts_of(*batch_of(*mixed->frames.at(0)).front())) sum += count;
  EXPECT_EQ(sum, 100 - 20 - 15 + 3);  // every fifth is null in one, every seventh in the other
}

TEST_F(QueryTest, HistogramsOfMembersCombineAndForgedOnesAreRefused) {
  Query query;
  query.aggregates = {histogram("h", {{0, 1, 16, field("x")}})};
  const auto whole = ask(query, {particles(5000, 1), particles(100, 2)}).value();
  Query partial = query;
  partial.partial = true;
  std::vector<FramePtr> partials;
  for (const auto& batch : {particles(5000, 1), particles(100, 2), particles(0, 3)})
    partials.push_back(ask(partial, {batch}).value().frames.at(0));
  const auto combined = combine(query, partials, *cache_, 0);
  ASSERT_TRUE(combined) << combined.error().message;
  const auto batch = batch_of(**combined).front();
  EXPECT_EQ(batch->schema()->field(0)->name(), "h");
  EXPECT_EQ(counts_of(*batch), counts_of(*batch_of(*whole.frames.at(0)).front()));
  Query fewer = query;
  fewer.aggregates = {histogram("h", {{0, 1, 15, field("x")}})};
  EXPECT_EQ(combine(fewer, partials, *cache_, 0).error().code, Error::protocol);
  const auto numbers = arrow::RecordBatch::Make(arrow::schema({arrow::field("0.histogram", arrow::int64())}), 1,
                                                {array_of<std::int64_t>({7})});
  EXPECT_EQ(combine(query, {frame_of(*numbers, *cache_)}, *cache_, 0).error().code, Error::protocol);
}

TEST_F(QueryTest, HistogramsThatMeanNothingAreRefused) {
  const auto refused = [](Aggregate aggregate) -> std::optional<Error> {
    Query query;
    query.aggregates = {std::move(aggregate)};
    const auto decoded = decode_query(encode(query));
    return decoded ? std::nullopt : std::optional(decoded.error().code);
  };
  const HistogramAxis axis{0, 1, 4, field("x")};
  EXPECT_EQ(refused(histogram("h", {axis})), std::nullopt);
  EXPECT_EQ(refused(histogram("h", {axis, axis, axis})), Error::protocol);
  EXPECT_EQ(refused(histogram("h", {{0, 1, 0, field("x")}})), Error::invalid);
  EXPECT_EQ(refused(histogram("h", {{1, 1, 4, field("x")}})), Error::invalid);
  EXPECT_EQ(refused(histogram("h", {{0, INFINITY, 4, field("x")}})), Error::invalid);
  EXPECT_EQ(refused(histogram("h", {{std::nan(""), 1, 4, field("x")}})), Error::invalid);
  EXPECT_EQ(refused(histogram("h", {{1, 1 + 1e-15, 1000, field("x")}})), Error::invalid) << "bins narrower than a ulp";
  EXPECT_EQ(refused(histogram("h", {{0, 1, 1025, field("x")}, {0, 1, 1024, field("y")}})), Error::too_large);
  EXPECT_EQ(refused(histogram("h", {{0, 1, ~0u, field("x")}, {0, 1, ~0u, field("y")}})), Error::too_large);
  Query mixed;
  mixed.aggregates = {histogram("h", {axis}), {AggregateFunction::count, "n", {}}};
  EXPECT_EQ(decode_query(encode(mixed)).error().code, Error::invalid);
  Query text;
  text.aggregates = {histogram("h", {{0, 1, 4, field("text")}})};
  EXPECT_EQ(ask(text, {mixed_batch(10)}).error().code, Error::schema);
}

TEST_F(QueryTest, NothingChosenAnswersTheColumns) {
  Query query;
  query.filter = below("x", -1);
  const auto answer = both_ways(query, {particles(100, 1)});
  EXPECT_EQ(answer.table->num_rows(), 0);
  EXPECT_EQ(answer.table->num_columns(), 9);
}

TEST_F(QueryTest, NothingIsInNoValuesAndNullsAreInNull) {
  Expression null = literal(0.0);
  null.literal = {};
  for (const std::string column : {"text", "number", "flag"}) {
    Query query;
    query.filter = call(Function::is_in, {field(column)});
    const auto none = ask(query, {mixed_batch(300)});
    ASSERT_TRUE(none) << none.error().message;
    EXPECT_EQ(none->table->num_rows(), 0) << column;
    Query nulls, found;
    nulls.filter = call(Function::is_null, {field(column)});
    found.filter = call(Function::is_in, {field(column), null});
    const auto expected = ask(nulls, {mixed_batch(300)}), given = ask(found, {mixed_batch(300)});
    ASSERT_TRUE(expected && given);
    EXPECT_EQ(given->table->num_rows(), expected->table->num_rows()) << column;
  }
}

TEST_F(QueryTest, NullsTextAndFlagsGoToPlans) {
  Query query;
  query.filter =
      both(call(Function::is_in, {field("text"), literal(std::string("name1")), literal(std::string("name2"))}),
           field("flag"));
  query.projections = {{"text", field("text")},
                       {"more", call(Function::add, {field("number"), literal(std::int64_t{1})})},
                       {"kind", field("kind")}};
  const auto answer = ask(query, {mixed_batch(300), mixed_batch(50)});
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_FALSE(answer->loops);
  EXPECT_EQ(answer->table->num_rows(), 100 + 16);
  Query counts;
  counts.aggregates = {{AggregateFunction::count, "rows", {}},
                       {AggregateFunction::count, "numbers", field("number")},
                       {AggregateFunction::mean, "mean", field("real")}};
  const auto counted = ask(counts, {mixed_batch(70)});
  ASSERT_TRUE(counted) << counted.error().message;
  EXPECT_EQ(counted->table->GetColumnByName("rows")->GetScalar(0).ValueOrDie()->ToString(), "70");
  EXPECT_EQ(counted->table->GetColumnByName("numbers")->GetScalar(0).ValueOrDie()->ToString(), "56");
}

TEST_F(QueryTest, PartialAnswersOfMembersCombine) {
  Query query;
  query.aggregates = {{AggregateFunction::mean, "mean", field("q")},
                      {AggregateFunction::min, "least", field("x")},
                      {AggregateFunction::sum, "sum", field("type")},
                      {AggregateFunction::count, "n", {}}};
  const auto whole = ask(query, {particles(5000, 1), particles(100, 2), particles(3, 3)});
  ASSERT_TRUE(whole);
  Query partial = query;
  partial.partial = true;
  std::vector<FramePtr> partials;
  for (const auto& batch : {particles(5000, 1), particles(100, 2), particles(3, 3)}) {
    const auto answer = ask(partial, {batch});
    ASSERT_TRUE(answer);
    partials.push_back(answer->frames.at(0));
  }
  // A member without chosen rows has nulls and a count of 0.
  Query nothing = partial;
  nothing.filter = below("x", -1);
  partials.push_back(ask(nothing, {particles(10, 4)}).value().frames.at(0));
  const auto combined = combine(query, partials, *cache_, 0);
  ASSERT_TRUE(combined) << combined.error().message;
  const auto batch = batch_of(**combined).front();
  EXPECT_TRUE(batch->schema()->Equals(*whole->table->schema()));
  for (int i = 0; i < batch->num_columns(); ++i)
    EXPECT_TRUE(
        batch->column(i)->ApproxEquals(whole->table->column(i)->chunk(0), arrow::EqualOptions::Defaults().atol(1e-9)))
        << batch->schema()->field(i)->name();
  EXPECT_FALSE(combine(query, {whole->frames.at(0)}, *cache_, 0));
}

TEST_F(QueryTest, WhatIsNotThereIsNamed) {
  Query query;
  query.filter = below("speed", 1);
  EXPECT_EQ(ask(query, {particles(10, 1)}).error().message,
            "there is no column \"speed\"; there are id, x, y, z, vx, vy, vz, q, type");
  query.filter = field("x");
  EXPECT_EQ(ask(query, {particles(10, 1)}).error().message, "the filter is of type float, not bool");
  query.filter = call(Function::less, {field("text"), field("number")});
  EXPECT_EQ(ask(query, {mixed_batch(10)}).error().code, Error::unsupported);
  query.filter.reset();
  query.aggregates = {{AggregateFunction::sum, "s", field("text")}};
  EXPECT_EQ(ask(query, {mixed_batch(10)}).error().message, "sum \"s\" is of type string, which does not support it");
}

TEST_F(QueryTest, FramesOfAnotherSchemaAndPlainBytesAreNamed) {
  EXPECT_EQ(ask({}, {particles(10, 1), mixed_batch(10)}).error().code, Error::schema);
  auto bytes = std::make_shared<service::Frame>();
  bytes->buffer = cache_->take(100, 0).value();
  bytes->bytes = 100;
  auto run = QueryRun::make({}, {{bytes, "r", "c"}}, limits_, threads_, cache_, 0).value();
  EXPECT_EQ(run->step({}).error().message,
            "object (r, c) is plain bytes, not Arrow; a query with arrow_only leaves it out");
  bytes->arrow = true;
  std::memset(bytes->buffer.data(), 0x5A, 100);
  run = QueryRun::make({}, {{bytes, "r", "c"}}, limits_, threads_, cache_, 0).value();
  EXPECT_FALSE(run->step({}));
  EXPECT_EQ(QueryRun::make({}, {}, limits_, threads_, cache_, 0).error().code, Error::not_found);
}

TEST_F(QueryTest, AnAnswerComesInStepsAndFramesOfBoundedSize) {
  limits_.frame_bytes_max = 1 << 20;
  limits_.step_bytes = 2 << 20;
  for (const bool loops : {true, false}) {
    limits_.loops = loops;
    const auto batch = particles(2'000'000, 1);
    Query query;
    query.filter = below("x", 0.9);
    const auto answer = ask(query, {batch, batch, batch});
    ASSERT_TRUE(answer);
    EXPECT_GT(answer->steps, 1u);
    for (const FramePtr& frame : answer->frames) EXPECT_LT(frame->bytes, 4u << 20);
  }
}

TEST_F(QueryTest, AnswersWithDenseUnionsHaveTheirValuesOnce) {
  constexpr std::int64_t rows = 1 << 18;
  std::vector<std::int32_t> places(rows);
  std::iota(places.begin(), places.end(), 0);
  const auto codes = array_of(std::vector<std::int8_t>(rows)), x = array_of(std::vector<double>(rows, 0.25));
  const auto values = array_of(std::vector<std::int64_t>(rows, 7));
  const auto dense = arrow::DenseUnionArray::Make(*codes, *array_of(places), {values}, {"n"}).ValueOrDie();
  const auto nested = arrow::StructArray::Make({dense}, {"u"}).ValueOrDie();
  const auto schema = arrow::schema(
      {arrow::field("u", dense->type()), arrow::field("s", nested->type()), arrow::field("x", arrow::float64())});
  const auto batch = arrow::RecordBatch::Make(schema, rows, {dense, nested, x});
  const auto plain = static_cast<std::uint64_t>(rows) * (2 * (1 + 4 + 8) + 8);
  Query columns, filtered;
  columns.projections = {{"u", field("u")}, {"s", field("s")}, {"x", field("x")}};
  filtered.filter = below("x", 0.5);
  for (const std::uint64_t frame_bytes_max : {64u << 20, 1u << 20}) {
    limits_.frame_bytes_max = frame_bytes_max;
    for (const Query& query : {Query{}, columns, filtered}) {
      const auto answer = ask(query, {batch});
      ASSERT_TRUE(answer) << answer.error().message;
      const auto whole = answer->table->CombineChunksToBatch().ValueOrDie();
      ASSERT_EQ(whole->num_rows(), rows);
      std::uint64_t bytes = 0;
      for (const FramePtr& frame : answer->frames) {
        bytes += frame->bytes;
        EXPECT_LT(frame->bytes, 2 * frame_bytes_max);
      }
      EXPECT_LT(bytes, plain + plain / 8);
      for (const std::int64_t row : {std::int64_t{0}, rows / 3, rows - 1})
        EXPECT_TRUE(whole->column(0)->GetScalar(row).ValueOrDie()->Equals(*dense->GetScalar(row).ValueOrDie()));
    }
  }
}

TEST_F(QueryTest, MoreMemoryThanItsLimitIsRefused) {
  limits_.memory_bytes_max = 1 << 20;
  for (const bool loops : {true, false}) {
    limits_.loops = loops;
    const auto answer = ask({}, {particles(2'000'000, 1)});
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, Error::no_memory);
    EXPECT_NE(answer.error().message.find("1048576"), std::string::npos) << answer.error().message;
  }
}

// A serialised object declares the size of its expanded bodies.
TEST_F(QueryTest, CompressedBodiesExpandWithinTheUsersBound) {
  const auto numbers = [](std::size_t rows) {
    return arrow::RecordBatch::Make(arrow::schema({arrow::field("n", arrow::int64())}), static_cast<std::int64_t>(rows),
                                    {array_of(std::vector<std::int64_t>(rows, 7))});
  };
  const auto begin = [&](const FramePtr& frame, uid_t user) {
    return QueryRun::make({}, {{frame, "row", "column"}}, limits_, threads_, cache_, user).value();
  };
  limits_.step_bytes = limits_.frame_bytes_max = 64 << 10;  // most of the answer is left after a step
  for (const auto codec : {arrow::Compression::ZSTD, arrow::Compression::LZ4_FRAME}) {
    const FramePtr large = frame_of(*numbers(8 << 20), *cache_, 0, codec),
                   small = frame_of(*numbers(1'500'000), *cache_, 0, codec);
    ASSERT_LT(large->bytes, 4u << 20) << "of 64 MiB";
    limits_.memory_bytes_max = 16 << 20;
    const auto refused = begin(large, 0)->step({});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Error::no_memory);
    EXPECT_NE(refused.error().message.find("at most 16777216 are allowed (queries.memory_max)"), std::string::npos)
        << refused.error().message;
    EXPECT_EQ(cache_->held_bytes_of(0), 0u);
    // A slowly read answer holds expanded bodies. All answers of a user are within one bound; another user has a bound
    // of its own.
    auto first = begin(small, 0);
    ASSERT_TRUE(first->step({}));
    EXPECT_GE(cache_->held_bytes_of(0), 12'000'000u);
    EXPECT_EQ(begin(small, 0)->step({}).error().code, Error::no_memory);
    EXPECT_TRUE(begin(small, 1)->step({}));
    first.reset();
    EXPECT_EQ(cache_->held_bytes_of(0), 0u);
    EXPECT_TRUE(begin(small, 0)->step({}));
    limits_.memory_bytes_max = 512 << 20;
    EXPECT_TRUE(begin(large, 0)->step({}));
    EXPECT_EQ(cache_->held_bytes_of(0), 0u);
  }
}

TEST_F(QueryTest, RowsWithoutBytesAreBounded) {
  constexpr std::int64_t rows = 1ll << 50;
  const auto nothing = arrow::RecordBatch::Make(arrow::schema({arrow::field("n", arrow::null())}), rows,
                                                {std::make_shared<arrow::NullArray>(rows)});
  const auto answer = ask({}, {nothing});
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Error::too_large);
}

TEST_F(QueryTest, AStopEndsIt) {
  stop_.request_stop();
  for (const bool loops : {true, false}) {
    limits_.loops = loops;
    EXPECT_EQ(ask({}, {particles(100'000, 1)}).error().code, Error::cancelled);
  }
}

// Compares a float with a double that no float represents, a small integer with a number beyond its range, and so on.
TEST_F(QueryTest, ComparisonsOfMixedTypesAreExact) {
  for (const auto& limit :
       {literal(0.1), literal(0.5), literal(std::int64_t{0}), literal(1e300), literal(std::nan(""))}) {
    for (const auto function : {Function::less, Function::greater_equal, Function::equal, Function::not_equal}) {
      Query query;
      query.filter = call(function, {field("x"), limit});
      query.projections = {{"x", field("x")}};
      both_ways(query, {particles(5000, 1)});
      query.filter = call(function, {limit, field("x")});
      both_ways(query, {particles(5000, 1)});
    }
  }
  for (const std::int64_t limit : {std::int64_t{-1}, std::int64_t{2}, std::int64_t{300}}) {
    Query query;
    query.filter = call(Function::less, {field("type"), literal(limit)});
    query.projections = {{"type", field("type")}};
    const auto answer = ask(query, {particles(5000, 1)});
    ASSERT_TRUE(answer) << answer.error().message;
    const std::int64_t rows = answer->table->num_rows();
    EXPECT_TRUE(limit < 0     ? rows == 0
                : limit > 255 ? rows == 5000
                              : rows > 2000 && rows < 3000)
        << limit << " " << rows;
  }
}

// Gives batches one by one, as they are asked for.
class Feed final : public QueryFeed {
 public:
  Feed(std::vector<std::shared_ptr<arrow::RecordBatch>> batches, std::shared_ptr<service::BufferCache> cache)
      : batches_(std::move(batches)), cache_(std::move(cache)) {}
  Result<FramePtr> next(const Query&) override {
    return given_ < batches_.size() ? frame_of(*batches_[given_++], *cache_) : FramePtr();
  }
  std::size_t members() const noexcept override { return 1; }

 private:
  std::vector<std::shared_ptr<arrow::RecordBatch>> batches_;
  std::shared_ptr<service::BufferCache> cache_;
  std::size_t given_ = 0;
};

TEST_F(QueryTest, WhatAFeedGivesIsAnsweredAsFramesAre) {
  std::vector<std::shared_ptr<arrow::RecordBatch>> batches;
  for (unsigned i = 0; i < 150; ++i) batches.push_back(particles(i % 7 == 0 ? 0 : 900, i));
  Query rows, none, figures;
  rows.filter = box();
  none.filter = below("x", -1);
  figures.filter = box();
  figures.aggregates = {{AggregateFunction::count, "n", std::nullopt},
                        {AggregateFunction::mean, "vx", field("vx")},
                        {AggregateFunction::max, "id", field("id")}};
  limits_.frame_bytes_max = 64 << 10;
  limits_.step_bytes = 128 << 10;
  for (const Query& query : {rows, none, figures}) {
    const auto expected = ask(query, batches);
    ASSERT_TRUE(expected) << expected.error().message;
    auto run = QueryRun::make(query, {{nullptr, "feed", "", std::make_shared<Feed>(batches, cache_)}}, limits_,
                              threads_, cache_, 0);
    ASSERT_TRUE(run);
    arrow::RecordBatchVector found;
    std::vector<FramePtr> frames;
    for (bool finished = false; !finished;) {
      auto step = (*run)->step({});
      ASSERT_TRUE(step) << step.error().message;
      finished = step->finished;
      for (const FramePtr& frame : step->frames) frames.push_back(frame);
    }
    for (const FramePtr& frame : frames)
      for (const auto& batch : batch_of(*frame)) found.push_back(batch);
    ASSERT_FALSE(found.empty());
    const auto one = arrow::Table::FromRecordBatches(found).ValueOrDie()->CombineChunksToBatch().ValueOrDie();
    const auto other = expected->table->CombineChunksToBatch().ValueOrDie();
    EXPECT_TRUE(one->ApproxEquals(*other, arrow::EqualOptions::Defaults().atol(1e-6)))
        << one->ToString() << other->ToString();
    EXPECT_EQ((*run)->counters().rows_read, 128u * 900u);
    EXPECT_LT(frames.size(), 60u);  // the rests of several frames go into one
  }
  // A missing column is reported as for frames, and a stop ends the run.
  Query missing;
  missing.filter = below("speed", 1);
  auto run = QueryRun::make(missing, {{nullptr, "feed", "", std::make_shared<Feed>(batches, cache_)}}, limits_,
                            threads_, cache_, 0);
  ASSERT_TRUE(run);
  EXPECT_EQ((*run)->step({}).error().code, Error::not_found);
  run = QueryRun::make(rows, {{nullptr, "feed", "", std::make_shared<Feed>(batches, cache_)}}, limits_, threads_,
                       cache_, 0);
  stop_.request_stop();
  EXPECT_EQ((*run)->step(stop_.get_token()).error().code, Error::cancelled);
}

TEST_F(QueryTest, AllSetsOfInstructionsComputeTheSame) {
  const auto batch = particles(2048, 7);
  const auto values = [&](int column) { return batch->column_data(column)->GetValues<float>(1); };
  for (std::size_t operation = 0; operation < 4; ++operation) {
    std::vector<float> one(2048), other(2048);
    loops().arithmetic[operation][0][0](values(1), values(2), one.data(), 2048);
    baseline_loops().arithmetic[operation][0][0](values(1), values(2), other.data(), 2048);
    EXPECT_EQ(one, other);
  }
  for (const std::size_t rows : {0u, 1u, 15u, 16u, 17u, 2048u}) {
    const auto lane = static_cast<std::size_t>(Lane::f32);
    double a = 0, b = 0;
    loops().sum[lane](values(1), rows, &a);
    baseline_loops().sum[lane](values(1), rows, &b);
    EXPECT_EQ(a, b);
  }
}

TEST_F(QueryTest, RowsOfAMaskAreNumberedAtEveryDensity) {
  std::mt19937_64 random(1);
  for (const double density : {0.0, 0.001, 0.125, 0.5, 0.9, 1.0}) {
    for (const std::size_t rows : {0u, 1u, 63u, 64u, 65u, 127u, 2048u}) {
      std::vector<std::uint8_t> mask(rows);
      std::vector<std::uint16_t> expected;
      for (std::size_t row = 0; row < rows; ++row) {
        mask[row] = std::bernoulli_distribution(density)(random) ? 1 : 0;
        if (mask[row] != 0) expected.push_back(static_cast<std::uint16_t>(row + 5));
      }
      for (const LoopTable* const table : {&loops(), &baseline_loops()}) {
        std::vector<std::uint16_t> numbers(rows);
        numbers.resize(table->chosen(mask.data(), rows, 5, numbers.data()));
        EXPECT_EQ(numbers, expected) << density << " of " << rows;
      }
    }
  }
}

}  // namespace
}  // namespace offpath::pool
