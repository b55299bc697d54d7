// Frames read back, exported as C structs, and fitted together into stream files.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "frame/c_arrays.h"
#include "frame/parse.h"
#include "testing/frame/random_batches.h"
#include "testing/frame/schemas.h"

namespace offpath::frame {
namespace {

struct Built {
  std::shared_ptr<const Template> form;
  Plan plan;
  std::vector<std::byte> frame;
};

Built build(Schema schema, std::uint32_t alignment, std::int64_t rows, unsigned seed) {
  Built built;
  built.form = *make_template(std::move(schema), alignment);
  std::mt19937 random(seed);
  auto pick = [&](std::uint64_t low, std::uint64_t high) { return low + random() % (high - low + 1); };
  const RandomBatch batch = BatchMaker(built.form->layout, pick).make(rows);
  EXPECT_TRUE(make_plan(*built.form, batch.view, {}, built.plan));
  built.frame.resize(built.plan.frame_bytes);
  EXPECT_TRUE(build_frame(*built.form, built.plan, built.frame));
  return built;
}

Built particles(std::uint32_t alignment, std::int64_t rows) {
  return build({.fields = {{.name = "id", .type = Type::int64, .nullable = false},
                           {.name = "kind", .type = Type::int8, .dictionary = {{.type = Type::utf8}}}}},
               alignment, rows, 1);
}

TEST(Frame, SaysWhatIsInIt) {
  const Built built = particles(page_alignment, 100);
  const auto view = parse_frame(built.frame);
  ASSERT_TRUE(view) << view.error().message;
  ASSERT_EQ(view->messages.size(), 3u);
  EXPECT_TRUE(view->marked);
  EXPECT_EQ(view->end, built.frame.size());
  EXPECT_EQ(view->rows, 100);
  EXPECT_EQ(view->messages[0].kind, MessageKind::schema);
  EXPECT_EQ(view->messages[1].kind, MessageKind::dictionary);
  EXPECT_EQ(view->messages[2].kind, MessageKind::batch);
  EXPECT_EQ(view->messages[2].body, built.plan.parts[0].body);
  EXPECT_EQ(view->messages[2].metadata_bytes, built.form->prototypes[0].metadata.size());
  EXPECT_EQ(view->messages[1].metadata_bytes, built.form->prototypes[1].metadata.size());
}

TEST(Frame, NoPrefixOfAFrameIsAFrameExceptWithoutItsEndMarker) {
  const Built built = build(every_nesting(), ipc_alignment, 7, 2);
  const auto whole = parse_frame(built.frame);
  ASSERT_TRUE(whole);
  for (std::size_t size = 0; size < built.frame.size(); ++size) {
    const auto view = parse_frame(Bytes(built.frame).first(size));
    if (!view) continue;
    // It may end after any message: a stream need not have an end marker.
    EXPECT_FALSE(view->marked);
    const auto ends_at = [&](const MessageRange& message) { return message.body + message.body_bytes == size; };
    EXPECT_TRUE(std::any_of(whole->messages.begin(), whole->messages.end(), ends_at)) << size;
  }
}

TEST(Frame, RowsAreCountedOfWhatIsAStreamAlone) {
  const Built built = particles(page_alignment, 100);
  EXPECT_EQ(count_rows(built.frame).value(), 100u);
  const std::vector<std::uint64_t> text(8, 0x6120656b696c2073);
  EXPECT_EQ(count_rows(std::as_bytes(std::span(text))).error().code, Error::protocol);
  EXPECT_EQ(count_rows(Bytes(built.frame).first(4)).value(), 0u);
}

TEST(Frame, ItsSchemaIsItsFirstMessage) {
  const auto schema_of = [](const Built& built) {
    const Bytes bytes = schema_bytes(built.frame).value();
    return std::vector(bytes.begin(), bytes.end());
  };
  const Built built = particles(page_alignment, 100);
  EXPECT_EQ(schema_of(built), schema_of(particles(page_alignment, 3))) << "rows do not matter";
  EXPECT_NE(schema_of(built), schema_of(build(every_nesting(), page_alignment, 7, 2)));
  for (const std::size_t size : {0u, 4u, 8u, 64u})
    EXPECT_EQ(schema_bytes(Bytes(built.frame).first(size)).error().code, Error::protocol) << size;
}

TEST(Frame, AnOddAddressIsRefused) {
  const Built built = particles(ipc_alignment, 1);
  std::vector<std::byte> moved(built.frame.size() + 1);
  std::copy(built.frame.begin(), built.frame.end(), moved.begin() + 1);
  EXPECT_EQ(parse_frame(Bytes(moved).subspan(1)).error().code, Error::invalid);
}

struct Damage {
  std::uint64_t at;
  std::uint64_t value;
  std::string message;
};

TEST(Frame, DamagedNumbersAreNamed) {
  const Built built = particles(ipc_alignment, 100);
  const PartPlace& place = built.plan.parts[0];
  const Prototype& prototype = built.form->prototypes[0];
  const std::uint64_t metadata = place.message + message_prefix_bytes;
  const std::string where = fmt::format("the message at byte {}", place.message);
  const std::uint64_t left = built.frame.size() - place.body;
  const std::vector<Damage> all{
      {place.message, 0x0000000800000000, fmt::format("{} begins with 0x0, expected 0xffffffff", where)},
      {place.message, 0xFFFFFFF8FFFFFFFF,
       fmt::format("{} has -8 bytes of metadata, a multiple of 8 up to {} is allowed", where,
                   built.frame.size() - metadata)},
      {metadata + prototype.body_bytes_at, 1 << 20,
       fmt::format("{} has a body of 1048576 bytes, a multiple of 8 up to {} is allowed", where, left)},
      {metadata + prototype.rows_at, ~0ULL, fmt::format("{} has -1 rows, at least 0 is allowed", where)},
      {metadata + prototype.nodes_at + 8, 101, fmt::format("{} has a node with 101 nulls in 100 values", where)},
      {metadata + prototype.buffers_at + 24, place.body_bytes + 8,
       fmt::format("{} has a buffer of {} bytes at 0 of a body of {}, where it does not fit", where,
                   place.body_bytes + 8, place.body_bytes)},
      {metadata + prototype.buffers_at + 16, ~7ULL,
       fmt::format("{} has a buffer of 800 bytes at -8 of a body of {}, where it does not fit", where,
                   place.body_bytes)},
  };
  for (const Damage& damage : all) {
    std::vector<std::byte> frame = built.frame;
    store(frame.data() + damage.at, damage.value);
    const auto view = parse_frame(frame);
    ASSERT_FALSE(view) << damage.message;
    EXPECT_EQ(view.error().message, damage.message);
  }
}

// The place of the offset by which a table's field points at `target`; both count from the metadata's begin.
std::uint64_t offset_to(Bytes metadata, std::uint64_t target) {
  std::uint64_t at = 0;
  while (at < target && at + load<std::uint32_t>(metadata.data() + at) != target) at += 4;
  return at;
}

TEST(Frame, NodesAtAnAddressTheyCannotHaveAreRefused) {
  const Built built = particles(ipc_alignment, 1);
  const PartPlace& place = built.plan.parts[0];
  const std::uint64_t metadata = place.message + message_prefix_bytes;
  const std::uint64_t vector = built.form->prototypes[0].nodes_at - sizeof(std::uint32_t);
  const std::uint64_t field = offset_to(Bytes(built.frame).subspan(metadata), vector);
  ASSERT_LT(field, vector);
  // Four bytes on, the low half of the first node's length reads as the vector's: 1.
  std::vector<std::byte> frame = built.frame;
  store(frame.data() + metadata + field, static_cast<std::uint32_t>(vector + 4 - field));
  const auto view = parse_frame(frame);
  ASSERT_FALSE(view);
  EXPECT_EQ(view.error().message,
            fmt::format("the message at byte {} has nodes or buffers at no multiple of 8 bytes", place.message));
}

TEST(Frame, ABatchOfAnotherSchemaIsNamed) {
  const Built built = particles(ipc_alignment, 10);
  const auto view = parse_frame(built.frame);
  const auto read = [&](std::vector<Field> fields) -> std::string {
    const auto layout = make_layout({.fields = std::move(fields)});
    std::int64_t rows = 0;
    std::vector<NodeShape> nodes;
    std::vector<BufferPlace> buffers;
    const Status status = read_batch(*layout, built.frame, *view, rows, nodes, buffers);
    return status ? "" : status.error().message;
  };
  const Field kind{.name = "kind", .type = Type::int8, .dictionary = {{.type = Type::utf8}}};
  EXPECT_EQ(read({{.name = "id", .type = Type::int64}, kind}), "");
  EXPECT_EQ(read({{.name = "id", .type = Type::int64}}), "the frame has 3 messages, its schema needs 2");
  EXPECT_EQ(read({kind}), fmt::format("the message at byte {} has 2 nodes and 4 buffers, its schema 1 and 2",
                                      view->messages[2].begin));
  EXPECT_EQ(read({{.name = "id", .type = Type::decimal128, .precision = 3}, kind}),
            "a buffer of 'id' has 80 bytes, its 10 values need 160");
}

TEST(Frame, MessagesFitAtAnyPositionOfAFile) {
  for (const std::uint32_t alignment : {8U, 64U, 4096U}) {
    const Built built = build(every_nesting(), alignment, 33, 4);
    const auto view = parse_frame(built.frame);
    ASSERT_TRUE(view);
    std::vector<std::byte> file;
    const auto append = [&](Bytes bytes) { file.insert(file.end(), bytes.begin(), bytes.end()); };
    const int times = 3;
    for (int i = 0; i < times; ++i) {
      for (std::size_t k = i == 0 ? 0 : 1; k < view->messages.size(); ++k) {
        const MessagePiece piece = fit_message(built.frame, view->messages[k], file.size(), alignment);
        const std::size_t before = file.size();
        append(piece.prefix);
        append(piece.metadata);
        file.resize(file.size() + piece.padding_bytes);
        EXPECT_TRUE(piece.body.empty() || file.size() % alignment == 0);
        append(piece.body);
        EXPECT_EQ(file.size() - before, piece.bytes());
      }
    }
    append(end_marker);
    const auto joined = parse_frame(file);
    ASSERT_TRUE(joined) << joined.error().message;
    EXPECT_EQ(joined->rows, 33 * times);
    EXPECT_EQ(joined->messages.size(), 1 + times * (view->messages.size() - 1));
    EXPECT_TRUE(joined->marked);
    EXPECT_EQ(joined->end, file.size());
    for (std::size_t k = 1; k < joined->messages.size(); ++k) {
      const MessageRange& from = view->messages[(k - 1) % (view->messages.size() - 1) + 1];
      const Bytes body = Bytes(file).subspan(joined->messages[k].body, joined->messages[k].body_bytes);
      EXPECT_TRUE(std::ranges::equal(body, Bytes(built.frame).subspan(from.body, from.body_bytes)));
    }
  }
}

// Exported structs over a buffer that says when it is gone.
struct Exported {
  explicit Exported(const Built& built) {
    export_array(built.form->layout, built.plan.rows, built.plan.nodes, built.plan.buffers, built.frame.data(), owner,
                 &array);
    watch = owner;
    owner.reset();
  }
  std::shared_ptr<int> owner = std::make_shared<int>(0);
  std::weak_ptr<int> watch;
  ArrowArray array{};
};

TEST(CArrays, PointIntoTheFrame) {
  const Built built = build(every_nesting(), ipc_alignment, 20, 5);
  Exported exported(built);
  EXPECT_EQ(exported.array.length, 20);
  ASSERT_EQ(exported.array.n_children, static_cast<std::int64_t>(built.form->layout.columns.size()));
  const ArrowArray& list = *exported.array.children[0];
  ASSERT_EQ(list.n_buffers, 2);
  EXPECT_EQ(list.buffers[1], built.frame.data() + built.plan.buffers[1].offset);
  ASSERT_EQ(list.n_children, 1);
  const ArrowArray& pair = *list.children[0];
  ASSERT_EQ(pair.n_children, 3);
  ASSERT_NE(pair.children[2]->dictionary, nullptr);
  EXPECT_EQ(pair.children[2]->dictionary->n_buffers, 3);
  EXPECT_EQ(pair.length, built.plan.nodes[1].length);
  exported.array.release(&exported.array);
  EXPECT_EQ(exported.array.release, nullptr);
  EXPECT_TRUE(exported.watch.expired());
}

TEST(CArrays, FlattenWhatTheyExport) {
  const Built built = build(every_nesting(), ipc_alignment, 20, 6);
  Exported exported(built);
  BatchView view;
  const Status status = flatten(built.form->layout, exported.array, view);
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(view.nodes, built.plan.nodes);
  exported.array.release(&exported.array);
}

TEST(CArrays, AChildMovedOutOutlivesItsParent) {
  const Built built = build(every_nesting(), ipc_alignment, 20, 7);
  Exported exported(built);
  ArrowArray moved = *exported.array.children[0];
  exported.array.children[0]->release = nullptr;
  exported.array.release(&exported.array);
  EXPECT_FALSE(exported.watch.expired());
  EXPECT_EQ(moved.children[0]->n_children, 3);
  moved.release(&moved);
  EXPECT_TRUE(exported.watch.expired());
}

TEST(CArrays, MayBeReleasedOnOtherThreads) {
  const Built built = build(every_nesting(), ipc_alignment, 20, 8);
  for (int round = 0; round < 50; ++round) {
    Exported exported(built);
    std::vector<ArrowArray> moved;
    for (std::int64_t i = 0; i < exported.array.n_children; ++i) {
      moved.push_back(*exported.array.children[i]);
      exported.array.children[i]->release = nullptr;
    }
    std::vector<std::thread> threads;
    for (ArrowArray& array : moved) threads.emplace_back([&array] { array.release(&array); });
    exported.array.release(&exported.array);
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(exported.watch.expired());
  }
}

TEST(CArrays, ASchemaMovedOutOutlivesItsParent) {
  ArrowSchema schema{};
  export_schema(every_nesting(), &schema);
  ArrowSchema moved = *schema.children[3];
  schema.children[3]->release = nullptr;
  schema.release(&schema);
  EXPECT_EQ(schema.release, nullptr);
  EXPECT_STREQ(moved.format, "+s");
  EXPECT_STREQ(moved.name, "pair");
  EXPECT_STREQ(moved.children[2]->dictionary->format, "u");
  moved.release(&moved);
}

}  // namespace
}  // namespace offpath::frame
