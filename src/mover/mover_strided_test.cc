// Columns of arrays of records: read in slices, within memory that is charged.
#include "frame/template.h"
#include "testing/mover/mover_fixture.h"

namespace offpath::mover {
namespace {

// One or more columns of such records in a program's array, with bytes made by the test.
class StridedMover : public MoverTest {
 protected:
  static std::byte byte_at(std::uint64_t offset) {
    return static_cast<std::byte>((offset * 0x9E3779B97F4A7C15ull) >> 56);
  }

  void open(const std::vector<frame::Field>& fields, std::uint64_t rows_max, const MoverOptions& options = {}) {
    mover = std::make_unique<Mover>(options, cache, store);
    mover->on_channel_open(channel, {"test", 0, 1}, 4, 0);
    frame::Schema schema;
    schema.fields = fields;
    encoded = frame::encode(schema);
    request(wire::EntryKind::open_stream, wire::OpenStream{.stream = 0,
                                                           .destination = wire::Destination::ipc,
                                                           .rows_max = rows_max,
                                                           .keep = 1,
                                                           .ranks = 0,
                                                           .rank = 0,
                                                           .name = "s",
                                                           .pool = "local:/s",
                                                           .schema = encoded});
    fields_ = fields;
    jobs.clear();
  }
  static std::uint64_t width_of(const frame::Field& field) {
    return field.type == frame::Type::boolean        ? 1
           : field.type == frame::Type::fixed_binary ? static_cast<std::uint64_t>(field.width)
                                                     : 8;
  }
  // Column i begins at offsets[i].
  void send(std::uint64_t sent_rows, std::uint32_t stride, const std::vector<std::uint64_t>& offsets) {
    wire::Send send{.stream = 0,
                    .charge = 0,
                    .rows = sent_rows,
                    .row_key = "k",
                    .column_key = {},
                    .nodes = {},
                    .buffers = {},
                    .set = 0};
    for (std::size_t i = 0; i < offsets.size(); ++i)
      send.buffers.push_back({.region = 1,
                              .generation = 1,
                              .offset = offsets[i],
                              .length = (sent_rows - 1) * stride + width_of(fields_[i]),
                              .stride_bytes = stride});
    send.charge = 65536;
    for (const frame::Field& field : fields_) send.charge += align_up(sent_rows * width_of(field), page_bytes);
    request(wire::EntryKind::send, send);
  }
  // Completes all pulls, including later ones.
  void bring_all() {
    for (; !pulls.empty(); ++rounds_) {
      used_ = std::max(used_, cache->used_bytes());
      for (const link::ReadPiece& piece : pulls.front().pieces) {
        read_ += piece.length;
        for (std::uint64_t i = 0; i < piece.length; ++i) piece.to[i] = byte_at(piece.offset + i);
      }
      end_pull();
    }
    finish();
    while (!jobs.empty()) run_job();
    ASSERT_TRUE(failures.empty()) << failures[0];
  }
  void expect_values(std::uint64_t sent_rows, std::uint32_t stride, const std::vector<std::uint64_t>& offsets) {
    const Bytes bytes(store.kept->buffer.data(), store.kept->bytes);
    const auto view = frame::parse_frame(bytes);
    ASSERT_TRUE(view);
    const auto form = frame::make_template(frame::read_schema(bytes, *view).value(), frame::ipc_alignment).value();
    std::int64_t count = 0;
    std::vector<frame::NodeShape> nodes;
    std::vector<frame::BufferPlace> places;
    ASSERT_TRUE(frame::read_batch(form->layout, bytes, *view, count, nodes, places));
    ASSERT_EQ(static_cast<std::uint64_t>(count), sent_rows);
    for (std::size_t column = 0; column < offsets.size(); ++column) {
      const std::byte* const values = bytes.data() + places[2 * column + 1].offset;
      const std::uint64_t width = width_of(fields_[column]);
      for (std::uint64_t row = 0; row < sent_rows; ++row) {
        const std::uint64_t from = offsets[column] + row * stride;
        if (fields_[column].type == frame::Type::boolean) {
          const bool set = (static_cast<unsigned>(values[row / 8]) >> row % 8 & 1) != 0;
          ASSERT_EQ(set, byte_at(from) != std::byte{0}) << "row " << row;
        } else {
          for (std::uint64_t i = 0; i < width; ++i)
            ASSERT_EQ(values[row * width + i], byte_at(from + i)) << "row " << row << ", byte " << i;
        }
      }
    }
  }
  static frame::Field number(std::string name) {
    return {.name = std::move(name), .type = frame::Type::float64, .nullable = false};
  }

  std::vector<frame::Field> fields_;
  std::uint64_t used_ = 0, read_ = 0;
  int rounds_ = 0;
};

TEST_F(StridedMover, ASmallColumnOfLongRecordsTakesAboutItsOwnMemory) {
  constexpr std::uint64_t sent = 10007;  // of records of 1 KiB: 10 MB, of which 80 KB are sent
  open({number("v"), {.name = "flag", .type = frame::Type::boolean, .nullable = false}}, sent);
  send(sent, 1024, {16, 100});
  bring_all();
  EXPECT_LE(used_, 90'000 + (300 << 10));
  EXPECT_GT(rounds_, 30);
  expect_values(sent, 1024, {16, 100});
  EXPECT_EQ(stored, ticket);
  EXPECT_EQ(cache->used_bytes(), align_up(store.kept->bytes, page_bytes));
}

TEST_F(StridedMover, ScratchThatAReaderMayHaveMappedIsNotReadIntoDirectly) {
  constexpr std::uint64_t sent = 10007;
  open({number("v"), {.name = "flag", .type = frame::Type::boolean, .nullable = false}}, sent);
  const auto all_unshared = [&] {
    send(sent, 1024, {16, 100});
    const bool all = std::ranges::all_of(pulls.front().pieces, &link::ReadPiece::unshared);
    bring_all();
    return all;
  };
  EXPECT_TRUE(all_unshared());
  {
    EXPECT_GE(cache->take(256 << 10, 0).value().share(), 0);
  }  // earlier scratch, as a frame that was passed to a reader
  EXPECT_FALSE(all_unshared());
}

TEST_F(StridedMover, WhatLiesBetweenRowsFarApartIsNotRead) {
  constexpr std::uint32_t stride = 0xFFFF'FFF8;  // rows of 4 GiB
  open({number("v"), number("w"), {.name = "flag", .type = frame::Type::boolean, .nullable = false}}, 3000);
  send(2, stride, {0, 3ull << 30, 64});
  bring_all();
  EXPECT_LE(used_, 64u << 10);
  EXPECT_LE(read_, 2u * page_bytes);
  expect_values(2, stride, {0, 3ull << 30, 64});
  const std::uint64_t so_far = read_;
  send(2001, 1 << 20, {0, 8, 64});
  bring_all();
  EXPECT_EQ(read_ - so_far, 2001u * 65) << "65 bytes of each MiB";
  EXPECT_LE(used_, 512u << 10);
  expect_values(2001, 1 << 20, {0, 8, 64});
}

TEST_F(StridedMover, ScratchOfRowsApartIsAsLargeAsWhatIsReadAndNotAsWhatTheySpan) {
  open({number("v"), number("w"), {.name = "flag", .type = frame::Type::boolean, .nullable = false}}, 16);
  send(2, 200 << 10, {0, 8, 64});
  bring_all();
  EXPECT_EQ(read_, 2u * 65);
  EXPECT_LE(used_, store.kept->buffer.capacity() + page_bytes) << "the frame, and a page of scratch";
  EXPECT_EQ(rounds_, 1);
  expect_values(2, 200 << 10, {0, 8, 64});
}

TEST_F(StridedMover, ValuesOfManyPagesGoStraightToTheirPlaces) {
  constexpr std::int32_t width = 100'000;
  open({{.name = "image", .type = frame::Type::fixed_binary, .nullable = false, .width = width}}, 9);
  send(9, 120'000, {40});
  bring_all();
  EXPECT_EQ(read_, 9u * width);
  EXPECT_LE(used_, 9u * width + (64 << 10)) << "no scratch";
  expect_values(9, 120'000, {40});
}

TEST_F(StridedMover, DenseRecordsAreReadAtOnceWhereThereIsMemoryForThem) {
  constexpr std::uint64_t sent = 100'000;
  const std::vector<std::uint64_t> xyz = {8, 16, 24};
  open({number("x"), number("y"), number("z")}, sent);
  send(sent, 24, xyz);
  bring_all();
  EXPECT_EQ(rounds_, 1);
  expect_values(sent, 24, xyz);
  // The frame fits, but not together with its records.
  store.kept.reset();
  rounds_ = 0;
  used_ = 0;
  open({number("x"), number("y"), number("z")}, sent, {.memory_bytes_max = 3 << 20});
  request(wire::EntryKind::need_credit, wire::NeedCredit{.stream = 0, .total = 2'500'000});
  send(sent, 24, xyz);
  bring_all();
  EXPECT_GT(rounds_, 5);
  EXPECT_LE(used_, 3u << 20);
  expect_values(sent, 24, xyz);
}

TEST_F(StridedMover, AFailedSliceEndsItsBatchAndGivesAllMemoryBack) {
  open({number("v")}, 4096);
  send(4096, 1024, {0});
  for (int i = 0; i < 3; ++i) end_pull();
  ASSERT_EQ(pulls.size(), 1u);
  mover->on_transfer(pulls.front().token, fail(Error::stale, "gone"), 10, effects);
  pulls.clear();
  take_effects();
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(stored, ticket);
  EXPECT_EQ(cache->used_bytes(), 0u);
  EXPECT_EQ(mover->counters().operations, 0u);
}

}  // namespace
}  // namespace offpath::mover
