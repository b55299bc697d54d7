// Serialised streams are read back by libarrow's own reader and by frame::parse_frame, and equal the sent data.
#include "mover/agent_serialise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include <arrow/api.h>
#include <arrow/c/bridge.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/reader.h>
#include <arrow/json/from_string.h>

#include "frame/flatten.h"
#include "frame/parse.h"

namespace offpath::mover {
namespace {

using wire::Destination;

constexpr std::uint64_t memory_max = 1ull << 30;

std::shared_ptr<arrow::Array> from_json(const std::shared_ptr<arrow::DataType>& type, const std::string& json) {
  return arrow::json::ArrayFromJSONString(type, json).ValueOrDie();
}

struct Sent {
  std::shared_ptr<const frame::Template> form;
  frame::Plan plan;
  std::shared_ptr<const Buffer> placed;
};

// The mover's earlier steps, with memcpy instead of the link.
Sent place(const arrow::RecordBatch& batch, BufferCache& cache) {
  ArrowSchema c_schema{};
  ArrowArray c_batch{};
  EXPECT_TRUE(arrow::ExportRecordBatch(batch, &c_batch, &c_schema).ok());
  Sent sent;
  auto schema = frame::import_schema(c_schema);
  EXPECT_TRUE(schema.has_value());
  sent.form = frame::make_template(*schema, frame::page_alignment).value();
  frame::BatchView view;
  Status flattened = frame::flatten(sent.form->layout, c_batch, view);
  EXPECT_TRUE(flattened.has_value()) << flattened.error().message;
  EXPECT_TRUE(frame::make_plan(*sent.form, view, {}, sent.plan));
  auto buffer = std::make_shared<Buffer>(cache.take(sent.plan.frame_bytes, 0).value());
  for (const frame::Pull& pull : sent.plan.pulls) {
    std::memcpy(buffer->data() + pull.target, reinterpret_cast<const void*>(pull.address), pull.bytes);
  }
  frame::write_head(*sent.form, sent.plan, buffer->bytes());
  EXPECT_TRUE(frame::finish(*sent.form, sent.plan, buffer->bytes()));
  sent.placed = buffer;
  c_schema.release(&c_schema);
  c_batch.release(&c_batch);
  return sent;
}

std::shared_ptr<arrow::RecordBatch> read_back(const Frame& made) {
  auto parsed = frame::parse_frame({made.buffer.data(), made.bytes});
  EXPECT_TRUE(parsed.has_value()) << parsed.error().message;
  if (parsed) {
    EXPECT_TRUE(parsed->marked);
    EXPECT_EQ(parsed->end, made.bytes);
    EXPECT_EQ(static_cast<std::uint64_t>(parsed->rows), made.rows);
  }
  auto bytes = std::make_shared<arrow::Buffer>(reinterpret_cast<const std::uint8_t*>(made.buffer.data()),
                                               static_cast<std::int64_t>(made.bytes));
  auto reader =
      arrow::ipc::RecordBatchStreamReader::Open(std::make_shared<arrow::io::BufferReader>(bytes)).ValueOrDie();
  std::shared_ptr<arrow::RecordBatch> batch, none;
  EXPECT_TRUE(reader->ReadNext(&batch).ok());
  EXPECT_TRUE(reader->ReadNext(&none).ok());
  EXPECT_EQ(none, nullptr);
  EXPECT_TRUE(batch->ValidateFull().ok());
  return batch;
}

std::shared_ptr<arrow::RecordBatch> batch_of(const arrow::ArrayVector& columns, bool nullable = true) {
  arrow::FieldVector fields;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    fields.push_back(arrow::field(fmt::format("c{}", i), columns[i]->type(), nullable));
  }
  auto metadata = arrow::key_value_metadata({"unit"}, {"lj"});
  return arrow::RecordBatch::Make(arrow::schema(fields, metadata), columns.at(0)->length(), columns);
}

class AgentSerialiseTest : public ::testing::TestWithParam<Destination> {
 protected:
  std::shared_ptr<BufferCache> cache = BufferCache::make({.cached_bytes_max = 1 << 20, .huge_pages = false});

  void expect_round_trip(const arrow::RecordBatch& batch) {
    Sent sent = place(batch, *cache);
    auto serialiser = make_agent_serialiser(GetParam(), sent.form, memory_max);
    ASSERT_TRUE(serialiser.has_value()) << serialiser.error().message;
    auto made = (*serialiser)->serialise(sent.plan, sent.placed, *cache, 0);
    ASSERT_TRUE(made.has_value()) << made.error().message;
    EXPECT_TRUE((*made)->arrow);
    sent.placed.reset();
    auto back = read_back(**made);
    EXPECT_TRUE(back->Equals(batch, true)) << back->ToString() << "\nexpected\n" << batch.ToString();
  }
};

TEST_P(AgentSerialiseTest, FixedWidthWithoutNulls) {
  std::vector<std::int64_t> ids(10'000);
  std::iota(ids.begin(), ids.end(), 1);
  arrow::Int64Builder id;
  ASSERT_TRUE(id.AppendValues(ids).ok());
  arrow::DoubleBuilder x;
  for (std::int64_t each : ids) ASSERT_TRUE(x.Append(0.5 * static_cast<double>(each)).ok());
  auto kind = arrow::MakeArrayFromScalar(arrow::Int8Scalar(7), 10'000).ValueOrDie();
  expect_round_trip(*batch_of({id.Finish().ValueOrDie(), x.Finish().ValueOrDie(), kind}, false));
}

TEST_P(AgentSerialiseTest, EveryFixedWidthTypeWithNulls) {
  const char* numbers = "[1, null, 3, 4, null]";
  arrow::ArrayVector columns;
  for (const auto& type :
       {arrow::int8(), arrow::int16(), arrow::int32(), arrow::int64(), arrow::uint8(), arrow::uint16(), arrow::uint32(),
        arrow::uint64(), arrow::float16(), arrow::float32(), arrow::float64(), arrow::date32(), arrow::date64(),
        arrow::time32(arrow::TimeUnit::MILLI), arrow::time64(arrow::TimeUnit::NANO),
        arrow::timestamp(arrow::TimeUnit::MICRO, "Europe/Berlin"), arrow::duration(arrow::TimeUnit::SECOND),
        arrow::month_interval()}) {
    columns.push_back(
        from_json(type, type->id() == arrow::Type::DATE64 ? "[86400000, null, 0, 172800000, null]" : numbers));
  }
  columns.push_back(from_json(arrow::boolean(), "[true, null, false, true, null]"));
  columns.push_back(from_json(arrow::decimal32(5, 2), R"(["1.25", null, "3.00", "-4.50", null])"));
  columns.push_back(from_json(arrow::decimal64(12, 2), R"(["1.25", null, "3.00", "-4.50", null])"));
  columns.push_back(from_json(arrow::decimal128(20, 2), R"(["1.25", null, "3.00", "-4.50", null])"));
  columns.push_back(from_json(arrow::decimal256(50, 2), R"(["1.25", null, "3.00", "-4.50", null])"));
  columns.push_back(from_json(arrow::fixed_size_binary(3), R"(["abc", null, "ghi", "jkl", null])"));
  columns.push_back(from_json(arrow::day_time_interval(), "[[1, 2], null, [3, 4], [5, 6], null]"));
  columns.push_back(from_json(arrow::month_day_nano_interval(), "[[1, 2, 3], null, [4, 5, 6], [7, 8, 9], null]"));
  columns.push_back(from_json(arrow::null(), "[null, null, null, null, null]"));
  expect_round_trip(*batch_of(columns));
}

TEST_P(AgentSerialiseTest, NestedAndVariableSize) {
  auto point = arrow::struct_({arrow::field("x", arrow::float64()), arrow::field("name", arrow::utf8())});
  expect_round_trip(*batch_of({
      from_json(arrow::utf8(), R"(["a", null, "", "four"])"),
      from_json(arrow::large_utf8(), R"(["a", null, "", "four"])"),
      from_json(arrow::binary(), R"(["a", "bc", "", "four"])"),
      from_json(arrow::large_binary(), R"(["a", null, "", "four"])"),
      from_json(arrow::list(arrow::int32()), "[[1, 2], null, [], [3, null]]"),
      from_json(arrow::large_list(arrow::utf8()), R"([["x"], null, [], ["yy", null]])"),
      from_json(arrow::fixed_size_list(arrow::float64(), 3), "[[1, 2, 3], [4, 5, 6], null, [7, 8, 9]]"),
      from_json(point, R"([{"x": 1, "name": "p"}, null, {"x": null, "name": "q"}, {"x": 4, "name": null}])"),
      from_json(arrow::map(arrow::utf8(), arrow::int64()), R"([[["k", 1]], null, [], [["l", 2], ["m", null]]])"),
      from_json(arrow::list(arrow::list(point)), R"([[[{"x": 1, "name": "a"}], []], [], null, [null]])"),
  }));
}

TEST_P(AgentSerialiseTest, Dictionaries) {
  auto words = arrow::dictionary(arrow::int8(), arrow::utf8());
  auto column =
      arrow::json::DictArrayFromJSONString(words, "[1, 0, null, 1]", R"(["solid", "liquid", "unused"])").ValueOrDie();
  auto ordered = arrow::json::DictArrayFromJSONString(arrow::dictionary(arrow::int32(), arrow::float64(), true),
                                                      "[0, 1, 2, 0]", "[0.5, 1.5, 2.5]")
                     .ValueOrDie();
  auto inner = arrow::json::DictArrayFromJSONString(words, "[0, 1, 1, 0, null]", R"(["a", "b"])").ValueOrDie();
  auto in_list = arrow::ListArray::FromArrays(*from_json(arrow::int32(), "[0, 2, 2, 5, 5]"), *inner).ValueOrDie();
  expect_round_trip(*batch_of({column, ordered, in_list}));
}

TEST_P(AgentSerialiseTest, SlicedAndEmpty) {
  auto whole = batch_of({from_json(arrow::utf8(), R"(["a", null, "", "four", "five5", "six"])"),
                         from_json(arrow::boolean(), "[true, null, false, true, true, null]"),
                         from_json(arrow::list(arrow::int16()), "[[1], [2, 3], null, [4], [], [5, 6]]"),
                         from_json(arrow::float32(), "[1, 2, null, 4, 5, 6]")});
  for (int begin = 0; begin <= 6; ++begin) {
    for (int length = 0; begin + length <= 6; ++length) expect_round_trip(*whole->Slice(begin, length));
  }
}

TEST_P(AgentSerialiseTest, MetadataAndExtensionNamesSurvive) {
  auto metadata = arrow::key_value_metadata({"ARROW:extension:name", "ARROW:extension:metadata"}, {"my.type", "v1"});
  auto field = arrow::field("c", arrow::fixed_size_binary(2), false, metadata);
  auto batch = arrow::RecordBatch::Make(arrow::schema({field}), 2,
                                        arrow::ArrayVector{from_json(field->type(), R"(["ab", "cd"])")});
  expect_round_trip(*batch);
}

TEST_P(AgentSerialiseTest, ReusesTheMemoryOfEarlierFrames) {
  auto batch = batch_of({from_json(arrow::int64(), "[1, 2, 3]")});
  for (int i = 0; i < 5; ++i) expect_round_trip(*batch);
  EXPECT_GT(cache->counters().hits, 0u);
  EXPECT_EQ(cache->used_bytes(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Destinations, AgentSerialiseTest,
                         ::testing::Values(Destination::agent_serialise, Destination::arrays, Destination::record_batch,
                                           Destination::c_abi),
                         [](const auto& instance) {
                           std::string name(wire::destination_name(instance.param));
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// Builders follow every offset and index: contradictory ones are refused before.
TEST(AgentSerialiseSafetyTest, OffsetsThatLeadOutsideAreRefused) {
  auto cache = BufferCache::make({});
  Sent sent = place(*batch_of({from_json(arrow::utf8(), R"(["a", "bc", "def"])")}), *cache);
  const std::uint32_t offsets = sent.form->layout.nodes[0].buffer + 1;
  store<std::int32_t>(sent.placed->data() + sent.plan.buffers[offsets].offset + 4, 1 << 30);
  auto serialiser = make_agent_serialiser(Destination::agent_serialise, sent.form, memory_max);
  auto made = (*serialiser)->serialise(sent.plan, sent.placed, *cache, 0);
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code, Error::schema);
}

TEST(AgentSerialiseSafetyTest, LibarrowsMemoryIsItsUsersAndBounded) {
  auto cache = BufferCache::make({.cached_bytes_max = 0});
  arrow::Int64Builder builder;
  ASSERT_TRUE(builder.AppendValues(std::vector<std::int64_t>(100'000, 7)).ok());
  Sent sent = place(*batch_of({builder.Finish().ValueOrDie()}, false), *cache);
  const auto serialiser = make_agent_serialiser(Destination::agent_serialise, sent.form, 4 << 20).value();
  const std::uint64_t others = 7 * (4 << 20) / 8;  // memory of the user's other batches
  ASSERT_TRUE(cache->hold(others, 5, 4 << 20));
  EXPECT_EQ(cache->used_bytes_of(5), others) << "it is within the agent's memory";
  const auto refused = serialiser->serialise(sent.plan, sent.placed, *cache, 5);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Error::no_memory);
  EXPECT_NE(refused.error().message.find("4194304 are allowed (memory.bytes_max"), std::string::npos)
      << refused.error().message;
  EXPECT_EQ(cache->held_bytes_of(5), others);
  EXPECT_TRUE(serialiser->serialise(sent.plan, sent.placed, *cache, 6)) << "another user has his own";
  cache->let_go(others, 5);
  EXPECT_TRUE(serialiser->serialise(sent.plan, sent.placed, *cache, 5));
  EXPECT_EQ(cache->held_bytes_of(5), 0u);
  cache->drop_leaving();
  EXPECT_EQ(cache->used_bytes_of(5), 0u);
}

TEST(AgentSerialiseSafetyTest, ADestinationWithoutArrowIsNotMadeHere) {
  auto cache = BufferCache::make({});
  Sent sent = place(*batch_of({from_json(arrow::int8(), "[1]")}), *cache);
  auto made = make_agent_serialiser(Destination::ipc_page, sent.form, memory_max);
  ASSERT_FALSE(made.has_value());
  EXPECT_NE(made.error().message.find("ipc-page"), std::string::npos);
}

}  // namespace
}  // namespace offpath::mover
