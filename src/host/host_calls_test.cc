// The C interface against an agent that records its requests.
#include <numeric>

#include "frame/c_data.h"
#include "testing/host/fake_agent.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/stream_messages.h"
#include "wire/region.h"

namespace offpath::host {
namespace {

constexpr std::uint32_t usual = OFP_SEND_WAIT | OFP_SEND_ANNOUNCE;

TEST_F(HostCalls, ColumnsAreNamedWhereTheyLie) {
  std::vector<std::int32_t> id(100);
  std::vector<double> x(300);
  std::iota(id.begin(), id.end(), 0);
  std::iota(x.begin(), x.end(), 0.5);
  ofp_stream* stream = open({{"id", "i", 0}, {"x", "+w:3g", 0}});
  const void* data[] = {id.data(), x.data()};
  std::uint64_t ticket = 0;
  ASSERT_EQ(ofp_send_columns(stream, data, 100, "step0", "rank0", usual, &ticket, &error), OFP_OK) << said();
  const FakeAgent::Batch& batch = stored(stream, ticket);
  EXPECT_EQ(batch.row_key, "step0");
  EXPECT_EQ(batch.column_key, "rank0");
  EXPECT_EQ(batch.rows, 100u);
  EXPECT_TRUE(batch.nodes.empty());
  EXPECT_EQ(values_of<std::int32_t>(batch.bytes[0]), id);
  EXPECT_EQ(values_of<double>(batch.bytes[1]), x);
  EXPECT_EQ(batch.charge, FakeAgent::charge_base + 4096 + 4096);
  EXPECT_EQ(ofp_pulled(stream), ticket);
  EXPECT_EQ(ofp_stored(stream), ticket);
  EXPECT_EQ(agent->pools.back(), "local:/stream");
  EXPECT_EQ(ofp_stream_close(stream, second_ns, &error), OFP_OK) << said();
}

TEST_F(HostCalls, InterleavedColumnsAreOneRange) {
  std::vector<double> x(300);
  std::iota(x.begin(), x.end(), 0);
  ofp_stream* stream = open({{"x", "g", 24}, {"y", "g", 24}, {"z", "g", 24}});
  const void* data[] = {&x[0], &x[1], &x[2]};
  std::uint64_t ticket = 0;
  ASSERT_EQ(ofp_send_columns(stream, data, 100, "a", "", usual, &ticket, &error), OFP_OK) << said();
  const FakeAgent::Batch& batch = stored(stream, ticket);
  EXPECT_EQ(batch.buffers[0].region, batch.buffers[2].region);
  EXPECT_EQ(batch.buffers[1].offset, 8u);
  EXPECT_EQ(batch.buffers[2].stride_bytes, 24u);
  EXPECT_EQ(batch.buffers[2].length, 99u * 24 + 8);
  EXPECT_EQ(values_of<double>(batch.bytes[1]).front(), 1);
  EXPECT_EQ(values_of<double>(batch.bytes[2]).back(), 299);
  EXPECT_EQ(batch.charge, FakeAgent::charge_base + 3 * 4096);  // of the column as it will be, side by side
  (void)ofp_stream_close(stream, 0, nullptr);
}

TEST_F(HostCalls, StridesMayChangeFromSendToSend) {
  std::vector<float> values(64, 1.5f);
  bool flags[32] = {true};
  ofp_stream* stream = open({{"v", "f", 0}, {"flag", "b", 1}});
  const void* data[] = {values.data(), flags};
  const std::uint32_t strides[] = {8, 1}, dense[] = {4, 1}, small[] = {3, 1};
  std::uint64_t ticket = 0;
  ASSERT_EQ(ofp_send_strided(stream, data, strides, 32, "a", "", usual, &ticket, &error), OFP_OK) << said();
  EXPECT_EQ(stored(stream, ticket).buffers[0].stride_bytes, 8u);
  EXPECT_EQ(agent->batches.back().buffers[1].length, 32u);  // a byte each
  ASSERT_EQ(ofp_send_strided(stream, data, dense, 32, "b", "", usual, &ticket, &error), OFP_OK) << said();
  EXPECT_EQ(stored(stream, ticket).buffers[0].stride_bytes, 0u);
  EXPECT_EQ(ofp_send_strided(stream, data, small, 32, "c", "", usual, &ticket, &error), OFP_INVALID);
  EXPECT_NE(said().find("\"v\""), std::string::npos) << said();
  (void)ofp_stream_close(stream, 0, nullptr);
}

TEST_F(HostCalls, ColumnsSentAgainAreNamedByNumber) {
  std::vector<double> x(100, 1), y(100, 2);
  ofp_stream* stream = open({{"a", "g", 0}, {"b", "g", 0}});
  std::uint64_t ticket = 0;
  const auto send = [&](const void* a, const void* b, std::uint64_t rows) -> const FakeAgent::Batch& {
    const void* data[] = {a, b};
    EXPECT_EQ(ofp_send_columns(stream, data, rows, "step", "", usual, &ticket, &error), OFP_OK) << said();
    return stored(stream, ticket);
  };
  EXPECT_EQ(send(x.data(), y.data(), 100).set, 0u);  // seen for the first time
  const FakeAgent::Batch second = send(x.data(), y.data(), 100);
  EXPECT_NE(second.set, 0u);
  EXPECT_TRUE(second.named);
  x.assign(100, 3);
  const FakeAgent::Batch third = send(x.data(), y.data(), 100);
  EXPECT_EQ(third.set, second.set);
  EXPECT_FALSE(third.named);
  EXPECT_EQ(third.charge, second.charge);
  EXPECT_EQ(values_of<double>(third.bytes[0]), x);  // the same place, with its present content
  EXPECT_EQ(values_of<double>(third.bytes[1]), y);
  // Other rows, and the same columns in another order, are something else.
  EXPECT_TRUE(send(x.data(), y.data(), 99).named);
  const FakeAgent::Batch turned = send(y.data(), x.data(), 100);
  EXPECT_TRUE(turned.named);
  EXPECT_EQ(values_of<double>(turned.bytes[0]), y);
  EXPECT_FALSE(send(x.data(), y.data(), 100).named);
  (void)ofp_stream_close(stream, 0, nullptr);
}

TEST_F(HostCalls, WithdrawnMemoryIsForgottenByNumberToo) {
  std::vector<double> first(10, 1), second(10, 2);
  ofp_range* range = nullptr;
  ASSERT_EQ(ofp_range_announce(channel, first.data(), 80, &range, &error), OFP_OK) << said();
  ofp_stream* stream = open({{"v", "g", 0}});
  const void* data[] = {first.data()};
  std::uint64_t ticket = 0;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(ofp_send_columns(stream, data, 10, "a", "", 0, &ticket, &error), OFP_OK) << said();
    stored(stream, ticket);
  }
  EXPECT_FALSE(agent->batches.back().named);
  ASSERT_EQ(ofp_range_reannounce(range, second.data(), 80, &error), OFP_OK) << said();
  EXPECT_EQ(ofp_send_columns(stream, data, 10, "b", "", 0, &ticket, &error), OFP_UNANNOUNCED);
  data[0] = second.data();
  ASSERT_EQ(ofp_send_columns(stream, data, 10, "c", "", 0, &ticket, &error), OFP_OK) << said();
  const FakeAgent::Batch& anew = stored(stream, ticket);
  EXPECT_TRUE(anew.named);
  EXPECT_EQ(values_of<double>(anew.bytes[0]), second);
  EXPECT_EQ(ofp_range_retire(range, second_ns, &error), OFP_OK) << said();
  (void)ofp_stream_close(stream, 0, nullptr);
}

TEST_F(HostCalls, ARangeIsRetiredWhenNoTaskPullsFromIt) {
  std::vector<double> x(10, 1);
  ofp_tasks* tasks = nullptr;
  ASSERT_EQ(ofp_tasks_open(channel, nullptr, &tasks, &error), OFP_OK) << said();
  const auto retire = [&](TimeNs wait_ns) {
    ofp_range* range = nullptr;
    EXPECT_EQ(ofp_range_announce(channel, x.data(), 80, &range, &error), OFP_OK) << said();
    const ofp_task_input input{"x", x.data(), 80, 0, 0, 0, 0};
    ofp_task_request request{};
    request.struct_bytes = sizeof request;
    request.function = "p/f";
    request.inputs = &input;
    request.inputs_count = 1;
    ofp_task* task = nullptr;
    EXPECT_EQ(ofp_task_submit(tasks, &request, &task, &error), OFP_OK) << said();
    const int code = ofp_range_retire(range, wait_ns, &error);
    EXPECT_EQ(ofp_task_wait(task, 0, nullptr), OFP_WOULD_BLOCK) << "it is pulled, and not over";
    ofp_task_free(task);
    return code;
  };
  agent->holds_tasks = true;
  agent->tells_pulled_at = fabric->now() + 10 * millisecond_ns;
  EXPECT_EQ(retire(millisecond_ns), OFP_TIMEOUT);
  EXPECT_NE(said().find("still pulls"), std::string::npos) << said();
  EXPECT_EQ(retire(second_ns), OFP_OK) << said();
  EXPECT_GE(fabric->now(), agent->tells_pulled_at) << "not before it was pulled";
  ofp_tasks_close(tasks);
}

TEST_F(HostCalls, TasksMayAnnounceMoreRangesThanAreKept) {
  std::vector<double> x(4 * own_ranges_max);
  ofp_tasks* tasks = nullptr;
  ASSERT_EQ(ofp_tasks_open(channel, nullptr, &tasks, &error), OFP_OK) << said();
  for (std::size_t i = 0; i < x.size(); i += 2) {
    const ofp_task_input input{"x", &x[i], 8, 0, 0, 0, 0};
    ofp_task_request request{};
    request.struct_bytes = sizeof request;
    request.function = "p/f";
    request.inputs = &input;
    request.inputs_count = 1;
    ASSERT_EQ(ofp_task_run(tasks, &request, nullptr, &error), OFP_OK) << said() << " (" << i << ")";
  }
  ofp_tasks_close(tasks);
}

TEST_F(HostCalls, AsManySetsAsThereAreNumbersAreAllRemembered) {
  std::vector<double> array(wire::sets_max, 1);
  ofp_range* range = nullptr;
  ASSERT_EQ(ofp_range_announce(channel, array.data(), array.size() * 8, &range, &error), OFP_OK) << said();
  ofp_stream* stream = open({{"v", "g", 0}});
  const void* data[] = {array.data()};
  for (int round = 0; round < 4; ++round) {
    for (std::uint64_t rows = 1; rows <= wire::sets_max; ++rows) {
      // One of them between any two others, as in a benchmark of all sizes.
      for (const std::uint64_t each : {std::uint64_t{1}, rows}) {
        std::uint64_t ticket = 0;
        ASSERT_EQ(ofp_send_columns(stream, data, each, "a", "", OFP_SEND_WAIT, &ticket, &error), OFP_OK) << said();
        EXPECT_TRUE(!stored(stream, ticket).named || round < 2) << round << ": " << each << " of " << rows;
      }
    }
  }
  (void)ofp_stream_close(stream, 0, nullptr);
  (void)ofp_range_retire(range, second_ns, nullptr);
}

TEST_F(HostCalls, ManySetsOfColumnsTakeTurns) {
  constexpr std::size_t count = 3 * wire::sets_max;
  std::vector<std::vector<double>> arrays;
  for (std::size_t i = 0; i < count; ++i) arrays.emplace_back(16, double(i));
  ofp_stream* stream = open({{"v", "g", 0}});
  for (std::size_t turn = 0; turn < 200; ++turn) {
    std::vector<double>& array = arrays[turn * turn % count];
    array[0] = double(turn);
    const void* data[] = {array.data()};
    std::uint64_t ticket = 0;
    ASSERT_EQ(ofp_send_columns(stream, data, 16, "a", "", usual, &ticket, &error), OFP_OK) << said();
    ASSERT_EQ(values_of<double>(stored(stream, ticket).bytes[0]), array) << turn;
  }
  (void)ofp_stream_close(stream, 0, nullptr);
}

TEST_F(HostCalls, AnEmptyBatchNamesNothing) {
  ofp_stream* stream = open({{"v", "g", 0}});
  const void* data[] = {nullptr};
  std::uint64_t ticket = 0;
  ASSERT_EQ(ofp_send_columns(stream, data, 0, "a", nullptr, 0, &ticket, &error), OFP_OK) << said();
  EXPECT_EQ(stored(stream, ticket).buffers[0].length, 0u);
  EXPECT_EQ(agent->batches.back().charge, FakeAgent::charge_base);
  (void)ofp_stream_close(stream, 0, nullptr);
}

TEST_F(HostCalls, WrongArgumentsAreNamed) {
  std::vector<double> v(10);
  ofp_stream* stream = open({{"v", "g", 0}}, 10);
  const void* data[] = {v.data()};
  const void* nothing[] = {nullptr};
  const std::string long_key(65537, 'k');
  EXPECT_EQ(ofp_send_columns(stream, data, 11, "a", "", usual, nullptr, &error), OFP_TOO_LARGE);
  EXPECT_NE(said().find("11 rows"), std::string::npos) << said();
  EXPECT_NE(said().find("rows_max 10"), std::string::npos) << said();
  EXPECT_EQ(ofp_send_columns(stream, nothing, 10, "a", "", usual, nullptr, &error), OFP_INVALID);
  EXPECT_NE(said().find("\"v\" is NULL"), std::string::npos) << said();
  EXPECT_EQ(ofp_send_columns(stream, data, 10, long_key.c_str(), "", usual, nullptr, &error), OFP_TOO_LARGE);
  EXPECT_NE(said().find("the row key has more than 65536 bytes"), std::string::npos) << said();
  EXPECT_EQ(ofp_send_columns(stream, data, 10, "a", long_key.c_str(), usual, nullptr, &error), OFP_TOO_LARGE);
  EXPECT_NE(said().find("the column key has more than 65536 bytes"), std::string::npos) << said();
  EXPECT_EQ(ofp_send_columns(stream, data, 10, "a", "", 64, nullptr, &error), OFP_INVALID);
  EXPECT_EQ(ofp_send_columns(nullptr, data, 10, "a", "", usual, nullptr, &error), OFP_INVALID);
  EXPECT_EQ(said(), "stream is NULL");
  EXPECT_EQ(ofp_send_columns(stream, nullptr, 10, "a", "", usual, nullptr, nullptr), OFP_INVALID);
  EXPECT_EQ(ofp_send_columns(stream, data, 10, "a", "", 0, nullptr, &error), OFP_UNANNOUNCED);
  EXPECT_NE(said().find("column \"v\""), std::string::npos) << said();
  EXPECT_TRUE(agent->batches.empty());
  (void)ofp_stream_close(stream, 0, nullptr);
}

TEST_F(HostCalls, AStreamGrowsWhenTheAgentAgrees) {
  std::vector<double> values(20, 1.5);
  ofp_stream* stream = open({{"v", "g", 0}}, 10);
  const void* data[] = {values.data()};
  const auto send = [&](std::uint64_t rows) {
    return ofp_send_columns(stream, data, rows, "a", "", usual, nullptr, &error);
  };
  EXPECT_EQ(send(11), OFP_TOO_LARGE);
  agent->pulls = false;
  ASSERT_EQ(send(10), OFP_OK) << said();  // and stays under way
  agent->refusal = fail(Error::too_large, "no room for more");
  EXPECT_EQ(ofp_stream_grow(stream, 20, second_ns, &error), OFP_TOO_LARGE);
  EXPECT_EQ(said(), "no room for more");
  EXPECT_EQ(send(11), OFP_TOO_LARGE) << "the limit is as it was";
  agent->refusal = {};
  ASSERT_EQ(ofp_stream_grow(stream, 20, second_ns, &error), OFP_OK) << said();
  ASSERT_EQ(ofp_stream_grow(stream, 20, second_ns, &error), OFP_OK) << said();
  ASSERT_EQ(ofp_stream_grow(stream, 5, second_ns, &error), OFP_OK) << said();
  ASSERT_EQ(agent->grown.size(), 1u) << "there is nothing to ask for";
  EXPECT_EQ(agent->grown[0].second, 20u);
  ASSERT_EQ(send(20), OFP_OK) << said();
  EXPECT_EQ(send(21), OFP_TOO_LARGE);
  EXPECT_NE(said().find("rows_max 20"), std::string::npos) << said();
  EXPECT_EQ(ofp_stream_grow(stream, 1ull << 41, second_ns, &error), OFP_TOO_LARGE);
  EXPECT_NE(said().find("column \"v\": 2199023255552 rows of 8 bytes"), std::string::npos) << said();
  EXPECT_EQ(ofp_stream_grow(nullptr, 20, second_ns, &error), OFP_INVALID);
  (void)ofp_stream_close(stream, 0, nullptr);
  ofp_stream* bytes = open({}, 0, "native");
  EXPECT_EQ(ofp_stream_grow(bytes, 20, second_ns, &error), OFP_OK) << said();
  EXPECT_EQ(agent->grown.size(), 1u) << "it has no limit";
  (void)ofp_stream_close(bytes, 0, nullptr);
}

TEST_F(HostCalls, WrongStreamsAreNamed) {
  ofp_stream* stream = nullptr;
  ofp_stream_options options{};
  const ofp_column column{"v", "g", 0};
  const auto open_with = [&](const ofp_column& with) {
    return ofp_stream_open_columns(channel, "s", &with, 1, &options, &stream, &error);
  };
  EXPECT_EQ(open_with(column), OFP_INVALID);
  EXPECT_NE(said().find("struct_bytes"), std::string::npos) << said();
  options.struct_bytes = sizeof options;
  EXPECT_EQ(open_with(column), OFP_INVALID);
  EXPECT_NE(said().find("rows_max is 0"), std::string::npos) << said();
  options.rows_max = 10;
  options.destination = "somewhere";
  EXPECT_EQ(open_with(column), OFP_INVALID);
  EXPECT_NE(said().find("somewhere"), std::string::npos) << said();
  options.destination = nullptr;
  options.compression = "snappy";
  EXPECT_EQ(open_with(column), OFP_INVALID);
  EXPECT_NE(said().find("\"snappy\" is unknown; known are none, lz4, zstd"), std::string::npos) << said();
  options.struct_bytes = offsetof(ofp_stream_options, compression);  // a program built before there was one
  options.rows_max = 0;
  EXPECT_EQ(open_with(column), OFP_INVALID);
  EXPECT_NE(said().find("rows_max is 0"), std::string::npos) << said();
  options.struct_bytes = sizeof options;
  options.rows_max = 10;
  options.compression = nullptr;
  options.ranks = 2;
  options.rank = 2;
  EXPECT_EQ(open_with(column), OFP_INVALID);
  EXPECT_NE(said().find("rank 2 of 2"), std::string::npos) << said();
  options.ranks = options.rank = 0;
  EXPECT_EQ(open_with({"v", "what", 0}), OFP_UNSUPPORTED) << said();
  EXPECT_EQ(open_with({"v", "+w:3", 0}), OFP_SCHEMA) << said();
  EXPECT_EQ(open_with({"v", "+w:3g", 48}), OFP_UNSUPPORTED) << said();
  EXPECT_EQ(open_with({"v", "g", 4}), OFP_INVALID) << said();
  EXPECT_EQ(open_with({nullptr, "g", 0}), OFP_INVALID) << said();
  agent->refusal = fail(Error::exists, "taken");
  EXPECT_EQ(open_with(column), OFP_EXISTS);
  EXPECT_EQ(said(), "taken");
  EXPECT_EQ(stream, nullptr);
}

TEST_F(HostCalls, ASmallerStructIsAnOlderProgram) {
  ofp_channel_info info;
  std::memset(&info, 0xAB, sizeof info);
  info.struct_bytes = 16;
  ASSERT_EQ(ofp_channel_info_get(channel, &info, &error), OFP_OK) << said();
  EXPECT_EQ(info.staged, 0u);
  EXPECT_EQ(static_cast<unsigned char>(info.link[0]), 0xAB);
  info.struct_bytes = 15;
  EXPECT_EQ(ofp_channel_info_get(channel, &info, &error), OFP_INVALID);
}

TEST_F(HostCalls, WithoutCreditItWouldBlock) {
  agent->credit_bytes = FakeAgent::charge_base + 4096;
  std::vector<double> v(10);
  ofp_stream* stream = open({{"v", "g", 0}});
  const void* data[] = {v.data()};
  std::uint64_t ticket = 0;
  EXPECT_EQ(ofp_credit_bytes(stream), agent->credit_bytes);
  ASSERT_EQ(ofp_send_columns(stream, data, 10, "a", "", OFP_SEND_ANNOUNCE, &ticket, &error), OFP_OK) << said();
  EXPECT_EQ(ofp_credit_bytes(stream), 0u);
  EXPECT_EQ(ofp_send_columns(stream, data, 10, "b", "", OFP_SEND_ANNOUNCE, &ticket, &error), OFP_WOULD_BLOCK);
  EXPECT_NE(said().find("credit"), std::string::npos) << said();
  (void)ofp_stream_close(stream, 0, nullptr);
}

TEST_F(HostCalls, SnapshotsArePulledAtOnce) {
  agent->pulls = false;
  std::vector<double> v(100, 3);
  ofp_stream* stream = open({{"v", "g", 0}});
  const void* data[] = {v.data()};
  std::uint64_t copied = 0, leased = 0;
  ASSERT_EQ(ofp_send_columns(stream, data, 100, "a", "", OFP_SEND_SNAPSHOT, &copied, &error), OFP_OK) << said();
  EXPECT_EQ(ofp_pulled(stream), copied);
  EXPECT_EQ(ofp_wait_pulled(stream, copied, 0, &error), OFP_OK) << said();
  EXPECT_EQ(ofp_wait_stored(stream, copied, 0, &error), OFP_TIMEOUT);
  ASSERT_EQ(ofp_send_columns(stream, data, 100, "b", "", usual, &leased, &error), OFP_OK) << said();
  EXPECT_LT(ofp_pulled(stream), leased);
  EXPECT_EQ(ofp_wait_pulled(stream, leased, 0, &error), OFP_TIMEOUT);
  EXPECT_EQ(ofp_wait_pulled(stream, copied, 0, &error), OFP_OK) << said();
  (void)ofp_stream_close(stream, 0, nullptr);
}

TEST_F(HostCalls, SnapshotsOfSparseColumnsAreGathered) {
  std::vector<double> wide(4000);
  std::iota(wide.begin(), wide.end(), 0);
  ofp_stream* stream = open({{"first", "g", 320}, {"last", "g", 320}});
  const void* data[] = {&wide[0], &wide[39]};
  std::uint64_t ticket = 0;
  ASSERT_EQ(ofp_send_columns(stream, data, 100, "a", "", OFP_SEND_SNAPSHOT, &ticket, &error), OFP_OK) << said();
  std::fill(wide.begin(), wide.end(), -1);
  const FakeAgent::Batch& batch = stored(stream, ticket);
  ASSERT_EQ(batch.buffers[1].length, 800u);
  EXPECT_EQ(batch.buffers[1].stride_bytes, 0u);
  EXPECT_EQ(values_of<double>(batch.bytes[0])[99], 99 * 40);
  EXPECT_EQ(values_of<double>(batch.bytes[1])[99], 99 * 40 + 39);
  (void)ofp_stream_close(stream, 0, nullptr);
}

TEST_F(HostCalls, BatchesOfAnySchemaCarryNodesAndBuffers) {
  const auto keep_schema = [](ArrowSchema*) {};
  const auto keep_array = [](ArrowArray*) {};
  ArrowSchema text{"u", "text", nullptr, ARROW_FLAG_NULLABLE, 0, nullptr, nullptr, keep_schema, nullptr};
  ArrowSchema* fields[] = {&text};
  const ArrowSchema schema{"+s", "", nullptr, 0, 1, fields, nullptr, keep_schema, nullptr};
  const ofp_stream_options options{.struct_bytes = sizeof options,
                                   .pool = "local:/texts",
                                   .destination = nullptr,
                                   .rows_max = 10,
                                   .keep = 0,
                                   .ranks = 0,
                                   .rank = 0,
                                   .compression = "zstd"};
  ofp_stream* stream = nullptr;
  ASSERT_EQ(ofp_stream_open(channel, "texts", &schema, &options, &stream, &error), OFP_OK) << said();

  const std::int32_t offsets[] = {0, 1, 1, 4};
  const std::uint8_t validity = 0b101;
  const void* text_buffers[] = {&validity, offsets, "abcd"};
  const void* no_buffers[] = {nullptr};
  ArrowArray column{3, 1, 0, 3, 0, text_buffers, nullptr, nullptr, keep_array, nullptr};
  ArrowArray* columns[] = {&column};
  const ArrowArray batch{3, 0, 0, 1, 1, no_buffers, columns, nullptr, keep_array, nullptr};
  std::uint64_t ticket = 0;
  ASSERT_EQ(ofp_send(stream, &batch, "a", "b", usual, &ticket, &error), OFP_OK) << said();
  EXPECT_EQ(agent->opened.back().compression, wire::Compression::zstd);
  const FakeAgent::Batch& got = stored(stream, ticket);
  ASSERT_EQ(got.nodes.size(), 1u);
  EXPECT_EQ(got.nodes[0].length, 3);
  EXPECT_EQ(got.nodes[0].null_count, 1);
  ASSERT_EQ(got.buffers.size(), 3u);
  EXPECT_EQ(values_of<std::int32_t>(got.bytes[1]), std::vector<std::int32_t>({0, 1, 1, 4}));
  EXPECT_EQ(values_of<char>(got.bytes[2]), std::vector<char>({'a', 'b', 'c', 'd'}));
  const void* data[] = {nullptr};
  EXPECT_EQ(ofp_send_columns(stream, data, 1, "a", "", usual, &ticket, &error), OFP_SCHEMA);
  EXPECT_NE(said().find("string"), std::string::npos) << said();
  (void)ofp_stream_close(stream, 0, nullptr);
}

TEST_F(HostCalls, MovesAndStepsAreAsked) {
  std::vector<std::byte> a(100, std::byte{1}), b(50, std::byte{2});
  ofp_stream* stream = open({}, 1000, "native");
  const ofp_piece pieces[] = {{a.data(), 100, 0}, {b.data(), 50, 150}};
  std::uint64_t ticket = 0;
  ASSERT_EQ(ofp_move(stream, pieces, 2, 200, "a", "", OFP_MOVE_CREATE, usual, &ticket, &error), OFP_OK) << said();
  const FakeAgent::Batch& batch = stored(stream, ticket);
  EXPECT_EQ(batch.kind, wire::EntryKind::move);
  EXPECT_EQ(batch.bytes[1], b);
  EXPECT_EQ(batch.charge, FakeAgent::charge_base + 4096);
  EXPECT_EQ(ofp_move(stream, pieces, 2, 199, "a", "", OFP_MOVE_CREATE, usual, &ticket, &error), OFP_TOO_LARGE);
  EXPECT_NE(said().find("200"), std::string::npos) << said();
  EXPECT_NE(said().find("199"), std::string::npos) << said();
  EXPECT_EQ(ofp_move(stream, pieces, 2, 200, "a", "", 9, usual, &ticket, &error), OFP_INVALID);
  ASSERT_EQ(ofp_step_end(stream, "step7", &ticket, &error), OFP_OK) << said();
  EXPECT_EQ(ofp_wait_stored(stream, ticket, second_ns, &error), OFP_OK) << said();
  EXPECT_EQ(agent->steps, std::vector<std::string>{"step7"});
  (void)ofp_stream_close(stream, 0, nullptr);
}

TEST_F(HostCalls, RangesAreRetiredAndStaleOnesRefused) {
  std::vector<double> first(10, 1), second(20, 2);
  ofp_range* range = nullptr;
  ASSERT_EQ(ofp_range_announce(channel, first.data(), 80, &range, &error), OFP_OK) << said();
  ofp_stream* stream = open({{"v", "g", 0}});
  const void* data[] = {first.data()};
  std::uint64_t ticket = 0;
  ASSERT_EQ(ofp_send_columns(stream, data, 10, "a", "", 0, &ticket, &error), OFP_OK) << said();
  stored(stream, ticket);
  ASSERT_EQ(ofp_range_reannounce(range, second.data(), 160, &error), OFP_OK) << said();
  EXPECT_EQ(ofp_send_columns(stream, data, 10, "b", "", 0, &ticket, &error), OFP_UNANNOUNCED);
  data[0] = second.data();
  ASSERT_EQ(ofp_send_columns(stream, data, 20, "b", "", 0, &ticket, &error), OFP_OK) << said();
  EXPECT_EQ(values_of<double>(stored(stream, ticket).bytes[0]), second);
  EXPECT_EQ(ofp_range_retire(range, second_ns, &error), OFP_OK) << said();
  EXPECT_EQ(ofp_send_columns(stream, data, 20, "c", "", 0, &ticket, &error), OFP_UNANNOUNCED);
  (void)ofp_stream_close(stream, 0, nullptr);
}

TEST_F(HostCalls, FramesAreMappedAndLeased) {
  agent->objects["a"] = {std::vector<std::byte>(5000, std::byte{9})};
  ofp_frame* frame = nullptr;
  ASSERT_EQ(ofp_pool_get(channel, "local:/p", "a", "", second_ns, &frame, &error), OFP_OK) << said();
  ASSERT_EQ(ofp_frame_bytes(frame), 5000u);
  EXPECT_EQ(std::memcmp(ofp_frame_data(frame), agent->objects["a"].bytes.data(), 5000), 0);
  EXPECT_EQ(ofp_frame_rows(frame), 7u);
  EXPECT_EQ(ofp_frame_mapped(frame), 1);
  EXPECT_EQ(ofp_frame_is_arrow(frame), 1);
  ofp_frame_release(frame);
  EXPECT_EQ(ofp_probe(channel, second_ns, nullptr, nullptr, &error), OFP_OK) << said();
  EXPECT_EQ(agent->released, std::vector<std::uint64_t>{1});
  EXPECT_EQ(ofp_pool_get(channel, "local:/p", "b", "", 0, &frame, &error), OFP_NOT_FOUND);
  EXPECT_EQ(frame, nullptr);
}

TEST_F(HostCalls, MemoryThatCouldVanishIsNotMapped) {
  ofp_frame* frame = nullptr;
  agent->objects["unsealed"] = {std::vector<std::byte>(5000), 0};
  EXPECT_EQ(ofp_pool_get(channel, "local:/p", "unsealed", "", second_ns, &frame, &error), OFP_PROTOCOL);
  EXPECT_NE(said().find("seal"), std::string::npos) << said();
  agent->objects["short"] = {std::vector<std::byte>(5000), F_SEAL_SHRINK | F_SEAL_GROW, 9000};
  EXPECT_EQ(ofp_pool_get(channel, "local:/p", "short", "", second_ns, &frame, &error), OFP_PROTOCOL);
  EXPECT_NE(said().find("5000"), std::string::npos) << said();
  EXPECT_NE(said().find("9000"), std::string::npos) << said();
  EXPECT_EQ(ofp_probe(channel, second_ns, nullptr, nullptr, &error), OFP_OK) << said();
  EXPECT_EQ(agent->released.size(), 2u);  // the leases are still returned
}

TEST_F(HostCalls, ListingsComeInPieces) {
  for (char row = 'a'; row < 'i'; ++row) agent->objects[std::string(1, row)] = {};
  ofp_listing* listing = nullptr;
  ASSERT_EQ(ofp_pool_list(channel, "local:/p", nullptr, nullptr, second_ns, &listing, &error), OFP_OK) << said();
  ASSERT_EQ(ofp_listing_count(listing), 8u);
  ofp_entry entry{};
  ASSERT_EQ(ofp_listing_entry(listing, 7, &entry), OFP_OK);
  EXPECT_STREQ(entry.row_key, "h");
  EXPECT_EQ(entry.sequence, 8u);
  EXPECT_EQ(ofp_listing_entry(listing, 8, &entry), OFP_INVALID);
  ofp_listing_free(listing);
}

TEST_F(HostCalls, HandlesOutliveTheirChannel) {
  auto* other = new ofp_channel{channel->connection};
  ofp_segment* segment = nullptr;
  ASSERT_EQ(ofp_alloc(other, 100, &segment, &error), OFP_OK) << said();
  EXPECT_EQ(ofp_segment_bytes(segment), 100u);
  ofp_stream* stream = open({{"v", "g", 0}});
  ofp_close(other);
  static_cast<char*>(ofp_segment_data(segment))[99] = 1;
  double v = 0;
  const void* data[] = {&v};
  EXPECT_EQ(ofp_send_columns(stream, data, 1, "a", "", usual, nullptr, &error), OFP_CLOSED);
  EXPECT_EQ(ofp_probe(channel, second_ns, nullptr, nullptr, &error), OFP_CLOSED);
  ofp_free(segment);
  EXPECT_EQ(ofp_stream_close(stream, 0, &error), OFP_CLOSED);
}

class StagedCalls : public HostCalls {
 protected:
  static link::LoopbackOptions staged() {
    link::LoopbackOptions options;
    options.staged = true;
    return options;
  }
  StagedCalls() : HostCalls(staged()) {}
};

TEST_F(StagedCalls, BatchesAreCopiedButSegmentsAreNot) {
  std::vector<double> v(100, 4);
  ofp_segment* segment = nullptr;
  ASSERT_EQ(ofp_alloc(channel, 800, &segment, &error), OFP_OK) << said();
  ofp_stream* stream = open({{"v", "g", 0}});
  const void* data[] = {v.data()};
  std::uint64_t ticket = 0;
  EXPECT_EQ(ofp_send_columns(stream, data, 100, "a", "", 0, &ticket, &error), OFP_UNANNOUNCED);
  ASSERT_EQ(ofp_send_columns(stream, data, 100, "a", "", usual, &ticket, &error), OFP_OK) << said();
  EXPECT_EQ(ofp_pulled(stream), ticket);
  std::fill(v.begin(), v.end(), 0);
  EXPECT_EQ(values_of<double>(stored(stream, ticket).bytes[0]), std::vector<double>(100, 4));
  EXPECT_TRUE(wire::is_segment(agent->batches.back().buffers[0].region));

  data[0] = ofp_segment_data(segment);
  const std::uint64_t held = channel->connection->staging.bytes_held();
  ASSERT_EQ(ofp_send_columns(stream, data, 100, "b", "", usual, &ticket, &error), OFP_OK) << said();
  stored(stream, ticket);
  EXPECT_EQ(channel->connection->staging.bytes_held(), held);
  EXPECT_EQ(agent->batches.back().buffers[0].offset, 0u);
  (void)ofp_stream_close(stream, 0, nullptr);
  ofp_free(segment);
}

TEST_F(StagedCalls, ABatchBeyondTheStagingMemoryIsTooLarge) {
  std::vector<double> v(1 << 18);
  ofp_stream* stream = open({{"v", "g", 0}}, 1 << 18);
  const void* data[] = {v.data()};
  EXPECT_EQ(ofp_send_columns(stream, data, v.size(), "a", "", usual, nullptr, &error), OFP_TOO_LARGE);
  EXPECT_NE(said().find(std::to_string(v.size() * 8)), std::string::npos) << said();
  EXPECT_NE(said().find(std::to_string(1 << 20)), std::string::npos) << said();
  (void)ofp_stream_close(stream, 0, nullptr);
}

class RemoteCalls : public HostCalls {
 protected:
  static link::LoopbackOptions remote() {
    link::LoopbackOptions options;
    options.mapped = false;
    return options;
  }
  RemoteCalls() : HostCalls(remote()) {}
};

TEST_F(RemoteCalls, FramesArePushedWherePagesCannotBeShared) {
  agent->objects["a"] = {std::vector<std::byte>(5000, std::byte{9})};
  ofp_frame* frame = nullptr;
  ASSERT_EQ(ofp_pool_get(channel, "local:/p", "a", "", second_ns, &frame, &error), OFP_OK) << said();
  EXPECT_EQ(ofp_frame_mapped(frame), 0);
  ASSERT_EQ(ofp_frame_bytes(frame), 5000u);
  EXPECT_EQ(std::memcmp(ofp_frame_data(frame), agent->objects["a"].bytes.data(), 5000), 0);
  ofp_frame_release(frame);
  agent->objects["long"] = {std::vector<std::byte>(100), 0, 9000};  // declared longer than the arriving bytes
  EXPECT_EQ(ofp_pool_get(channel, "local:/p", "long", "", second_ns, &frame, &error), OFP_PROTOCOL) << said();
  EXPECT_EQ(ofp_probe(channel, second_ns, nullptr, nullptr, &error), OFP_OK) << said();
  EXPECT_TRUE(agent->released.empty());  // pushed objects have no lease
}

TEST(Report, LongMessagesAreCutBetweenCharacters) {
  ofp_error error{};
  std::string text(506, 'a');
  text += "é and more";
  EXPECT_EQ(report({Error::schema, text}, &error), OFP_SCHEMA);
  EXPECT_EQ(std::string(error.message), std::string(506, 'a'));
  EXPECT_EQ(report({Error::no_memory, ""}, &error), OFP_NO_MEMORY);
  EXPECT_NE(error.message[0], '\0');
  EXPECT_EQ(report({Error::timeout, "late"}, nullptr), OFP_TIMEOUT);
}

}  // namespace
}  // namespace offpath::host
