// Views and runs through the C interface: laid out in staging memory by the call, beside columns that stay where they
// are.
#include <cstring>

#include "frame/c_data.h"
#include "testing/host/fake_agent.h"
#include "wire/region.h"

namespace offpath::host {
namespace {

constexpr std::uint32_t usual_flags = OFP_SEND_WAIT | OFP_SEND_ANNOUNCE;

// A batch of a text, given by views of one buffer, and of a number.
struct Batch {
  explicit Batch(std::size_t count, std::int32_t text_bytes = 20) : views(count * 16), numbers(count, 7) {
    data.assign(static_cast<std::size_t>(text_bytes), 'x');
    data_bytes = text_bytes;
    for (std::size_t i = 0; i < count; ++i) store(views.data() + i * 16, text_bytes);
    array.length = text.length = number.length = static_cast<std::int64_t>(count);
  }
  Batch(const Batch&) = delete;

  static void keep_schema(ArrowSchema*) {}
  static void keep_array(ArrowArray*) {}
  std::vector<std::byte> views;
  std::vector<std::int32_t> numbers;
  std::string data;
  std::int64_t data_bytes = 0;
  const void* none[1] = {nullptr};
  const void* text_buffers[4] = {nullptr, views.data(), nullptr, &data_bytes};
  const void* number_buffers[2] = {nullptr, numbers.data()};
  ArrowArray text{0, 0, 0, 4, 0, text_buffers, nullptr, nullptr, keep_array, nullptr};
  ArrowArray number{0, 0, 0, 2, 0, number_buffers, nullptr, nullptr, keep_array, nullptr};
  ArrowArray* columns[2] = {&text, &number};
  ArrowArray array{0, 0, 0, 1, 2, none, columns, nullptr, keep_array, nullptr};
};

class ViewCalls : public HostCalls {
 protected:
  using HostCalls::HostCalls;
  ~ViewCalls() override { (void)ofp_stream_close(stream, 0, nullptr); }

  // Of `columns` columns: the text alone, or with the number.
  void open(std::int64_t columns, std::uint64_t rows_max = 100'000) {
    ArrowSchema text{"vu", "text", nullptr, ARROW_FLAG_NULLABLE, 0, nullptr, nullptr, Batch::keep_schema, nullptr};
    ArrowSchema number{"i", "number", nullptr, 0, 0, nullptr, nullptr, Batch::keep_schema, nullptr};
    ArrowSchema* fields[] = {&text, &number};
    const ArrowSchema schema{"+s", "", nullptr, 0, columns, fields, nullptr, Batch::keep_schema, nullptr};
    ofp_stream_options options{};
    options.struct_bytes = sizeof options;
    options.rows_max = rows_max;
    ASSERT_EQ(ofp_stream_open(channel, "views", &schema, &options, &stream, &error), OFP_OK) << said();
  }
  int send(Batch& batch, std::int64_t columns, std::uint32_t flags = usual_flags) {
    batch.text_buffers[2] = batch.data.data();
    batch.array.n_children = columns;
    return ofp_send(stream, &batch.array, "a", "", flags, &ticket, &error);
  }
  [[nodiscard]] bool is_staged(std::size_t buffer) const {
    return wire::is_segment(agent->batches.back().buffers[buffer].region);
  }

  ofp_stream* stream = nullptr;
  std::uint64_t ticket = 0;
};

TEST_F(ViewCalls, OnlyWhatIsLaidOutAnewIsCopied) {
  open(2);
  Batch batch(3);
  agent->pulls = false;
  ASSERT_EQ(send(batch, 2), OFP_OK) << said();
  EXPECT_LT(ofp_pulled(stream), ticket) << "the numbers are leased";
  agent->pulls = true;
  ASSERT_EQ(send(batch, 2), OFP_OK) << said();
  const FakeAgent::Batch& got = stored(stream, ticket);
  ASSERT_EQ(got.buffers.size(), 5u);
  EXPECT_EQ(values_of<std::int64_t>(got.bytes[1]), (std::vector<std::int64_t>{0, 20, 40, 60}));
  EXPECT_EQ(values_of<char>(got.bytes[2]), std::vector<char>(60, 'x'));
  EXPECT_EQ(values_of<std::int32_t>(got.bytes[4]), std::vector<std::int32_t>(3, 7));
  EXPECT_TRUE(is_staged(1) && is_staged(2));
  EXPECT_FALSE(is_staged(4));
  EXPECT_EQ(got.charge, FakeAgent::charge_base + 3 * 4096);
}

TEST_F(ViewCalls, ABatchOfViewsAloneIsPulledAtOnce) {
  open(1);
  Batch batch(3);
  agent->pulls = false;
  ASSERT_EQ(send(batch, 1), OFP_OK) << said();
  EXPECT_EQ(ofp_pulled(stream), ticket);
}

TEST_F(ViewCalls, StagingMemoryIsUsedAgainOncePulled) {
  open(1);
  Batch batch(1000, 400);  // 408,000 bytes of 1 MiB
  std::uint64_t held = 0;
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(send(batch, 1), OFP_OK) << said();
    stored(stream, ticket);
    if (i == 0) held = channel->connection->staging.bytes_held();
    EXPECT_EQ(channel->connection->staging.bytes_held(), held);
  }
  agent->pulls = false;
  int code = OFP_OK;
  for (int i = 0; i < 3 && code == OFP_OK; ++i) code = send(batch, 1, OFP_SEND_ANNOUNCE);
  EXPECT_EQ(code, OFP_WOULD_BLOCK);
  EXPECT_NE(said().find("staging memory is full"), std::string::npos) << said();
}

TEST_F(ViewCalls, AViewOutOfBoundsFailsAndKeepsNothing) {
  open(2);
  Batch batch(1000, 400);
  store(batch.views.data() + 999 * 16 + 12, std::int32_t{1});
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(send(batch, 2), OFP_SCHEMA);
    EXPECT_EQ(said(), "'text', row 999: a view of 400 bytes at 1 of buffer 0, which has 400");
  }
  EXPECT_EQ(channel->connection->staging.bytes_held(), 0u);
  store(batch.views.data() + 999 * 16 + 12, std::int32_t{0});
  ASSERT_EQ(send(batch, 2), OFP_OK) << said();
  stored(stream, ticket);  // until then the numbers are leased
}

TEST_F(ViewCalls, SnapshotsReserveStagingMemoryOnce) {
  open(2);
  agent->pulls = false;
  Batch small(1000, 100);
  ASSERT_EQ(send(small, 2, usual_flags | OFP_SEND_SNAPSHOT), OFP_OK) << said();
  EXPECT_EQ(ofp_pulled(stream), ticket);
  std::fill(small.numbers.begin(), small.numbers.end(), 0);
  agent->pulls = true;
  Batch both(30'000, 20);  // 840,000 and 120,000 bytes
  ASSERT_EQ(send(both, 2, usual_flags | OFP_SEND_SNAPSHOT), OFP_OK) << said();
  EXPECT_EQ(values_of<std::int32_t>(stored(stream, ticket).bytes[4]), std::vector<std::int32_t>(30'000, 7));
  EXPECT_TRUE(is_staged(2) && is_staged(4));
  // The gathered values fit, and so do the numbers, but not both: this must not wait forever.
  Batch too_large(34'000, 20);
  EXPECT_EQ(send(too_large, 2, usual_flags | OFP_SEND_SNAPSHOT), OFP_TOO_LARGE);
  EXPECT_NE(said().find("staging_bytes_max"), std::string::npos) << said();
}

TEST_F(ViewCalls, BatchesBeyondTheStagingMemoryAreTooLarge) {
  open(1);
  Batch batch(10'000, 1000);  // all show the same thousand bytes
  EXPECT_EQ(send(batch, 1), OFP_TOO_LARGE);
  EXPECT_EQ(said(),
            "'text': with views and runs expanded, the batch takes more than 1048576 bytes (staging_bytes_max)");
  Batch rows(100'001);
  EXPECT_EQ(send(rows, 1), OFP_TOO_LARGE);
  EXPECT_NE(said().find("rows_max 100000"), std::string::npos) << said();
}

TEST_F(ViewCalls, BatchesWithoutRowsAreSent) {
  open(2);
  Batch batch(0);
  ASSERT_EQ(send(batch, 2), OFP_OK) << said();
  EXPECT_EQ(stored(stream, ticket).rows, 0u);
  ASSERT_EQ(send(batch, 2, usual_flags | OFP_SEND_SNAPSHOT), OFP_OK) << said();
  EXPECT_EQ(stored(stream, ticket).rows, 0u);
}

TEST_F(ViewCalls, PlainArraysAreNoRuns) {
  ArrowSchema ends{"i", "run_ends", nullptr, 0, 0, nullptr, nullptr, Batch::keep_schema, nullptr};
  ArrowSchema values{"i", "values", nullptr, 0, 0, nullptr, nullptr, Batch::keep_schema, nullptr};
  ArrowSchema* parts[] = {&ends, &values};
  ArrowSchema runs{"+r", "runs", nullptr, 0, 2, parts, nullptr, Batch::keep_schema, nullptr};
  ArrowSchema list{"+w:2", "list", nullptr, 0, 1, nullptr, nullptr, Batch::keep_schema, nullptr};
  ArrowSchema* inner[] = {&runs};
  list.children = inner;
  for (ArrowSchema* column : {&runs, &list}) {
    const ArrowSchema schema{"+s", "", nullptr, 0, 1, &column, nullptr, Batch::keep_schema, nullptr};
    ofp_stream_options options{};
    options.struct_bytes = sizeof options;
    options.rows_max = 10;
    ASSERT_EQ(ofp_stream_open(channel, "runs", &schema, &options, &stream, &error), OFP_OK) << said();
    const std::int32_t numbers[4] = {};
    const void* data[] = {numbers};
    EXPECT_NE(ofp_send_columns(stream, data, 2, "a", "", usual_flags, &ticket, &error), OFP_OK);
    EXPECT_NE(said().find("is runs of "), std::string::npos) << said();
    EXPECT_EQ(ofp_stream_close(stream, 0, nullptr), OFP_OK);
    stream = nullptr;
  }
}

class StagedViewCalls : public ViewCalls {
 protected:
  static link::LoopbackOptions staged() {
    link::LoopbackOptions options;
    options.staged = true;
    return options;
  }
  StagedViewCalls() : ViewCalls(staged()) {}
};

TEST_F(StagedViewCalls, OtherColumnsAreCopiedBesideThem) {
  open(2);
  Batch batch(3);
  ASSERT_EQ(send(batch, 2), OFP_OK) << said();
  EXPECT_EQ(ofp_pulled(stream), ticket);
  const FakeAgent::Batch& got = stored(stream, ticket);
  EXPECT_EQ(values_of<char>(got.bytes[2]), std::vector<char>(60, 'x'));
  EXPECT_EQ(values_of<std::int32_t>(got.bytes[4]), std::vector<std::int32_t>(3, 7));
  EXPECT_EQ(got.buffers[2].region, got.buffers[4].region);
}

}  // namespace
}  // namespace offpath::host
