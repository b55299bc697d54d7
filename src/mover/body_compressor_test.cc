// Compressed frames contain the same as plain ones: every buffer is decompressed and compared byte by byte.
#include "mover/body_compressor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "frame/parse.h"
#include "testing/frame/random_batches.h"
#include "testing/frame/schemas.h"
#include "testing/mover/decompressed.h"

namespace offpath::mover {
namespace {

using frame::BufferPlace;
using wire::Compression;

struct Built {
  std::shared_ptr<const frame::Template> form, packed_form;
  frame::Plan plan;
  std::vector<std::byte> plain, packed;
};

// `change` may overwrite bytes of the finished frame.
template <class Change>
Built build(frame::Schema schema, std::int64_t rows, unsigned seed, Compression compression, Change change) {
  const auto compressor = make_body_compressor(compression);
  Built built;
  built.form = frame::make_template(schema, frame::page_alignment).value();
  built.packed_form = frame::make_template(std::move(schema), frame::ipc_alignment, compression).value();
  std::mt19937 random(seed);
  auto pick = [&](std::uint64_t low, std::uint64_t high) { return low + random() % (high - low + 1); };
  const frame::RandomBatch batch = frame::BatchMaker(built.form->layout, pick).make(rows);
  EXPECT_TRUE(make_plan(*built.form, batch.view, {}, built.plan));
  built.plain.resize(built.plan.frame_bytes);
  EXPECT_TRUE(build_frame(*built.form, built.plan, built.plain));
  change(built);

  std::vector<std::byte> scratch(frame::packing_bytes(*compressor, built.plan));
  frame::PackedFrame packed;
  const Status status = frame::pack(*built.packed_form, *compressor, built.plan, built.plain, scratch, packed);
  EXPECT_TRUE(status) << status.error().message;
  // Over two kinds of garbage: a byte that was not written shows.
  std::vector<std::byte> other(packed.plan.frame_bytes, std::byte{0x5A});
  built.packed.assign(packed.plan.frame_bytes, std::byte{0xA5});
  frame::write_packed(*built.packed_form, packed, built.packed);
  frame::write_packed(*built.packed_form, packed, other);
  EXPECT_EQ(built.packed, other);
  return built;
}

Built build(frame::Schema schema, std::int64_t rows, unsigned seed, Compression compression) {
  return build(std::move(schema), rows, seed, compression, [](Built&) {});
}

struct Counted {
  std::size_t compressed = 0, as_they_are = 0;
};

// Compares every number of the packed frame's messages with the plain one's.
Counted expect_same(const Built& built) {
  Counted counted;
  const auto plain = frame::parse_frame(built.plain), packed = frame::parse_frame(built.packed);
  EXPECT_TRUE(packed) << packed.error().message;
  if (!packed) return counted;
  EXPECT_TRUE(packed->marked);
  EXPECT_EQ(packed->end, built.packed.size());
  EXPECT_EQ(packed->rows, plain->rows);
  EXPECT_EQ(packed->messages.size(), plain->messages.size());
  EXPECT_EQ(frame::read_schema(built.packed, *packed).value(), built.form->schema);
  const std::vector<FoundBuffer> buffers = found_buffers(*built.packed_form, built.packed, *packed);
  for (std::uint32_t part = 0; part < built.plan.parts.size(); ++part) {
    const std::size_t index = part == 0 ? packed->messages.size() - 1 : part;
    const frame::MessageRange& message = packed->messages[index];
    EXPECT_EQ(message.kind, plain->messages[index].kind);
    EXPECT_EQ(message.rows, plain->messages[index].rows);
    EXPECT_TRUE(message.compressed);
    EXPECT_EQ(message.metadata_bytes, built.packed_form->prototypes[part].metadata.size());
    const auto numbers_of = [&](const std::vector<std::byte>& frame, const frame::MessageRange& of, std::uint32_t at) {
      return frame.data() + of.begin + frame::message_prefix_bytes + at;
    };
    const frame::PartLayout& range = built.form->layout.parts[part];
    const frame::Prototype& before = built.form->prototypes[part];
    const frame::Prototype& after = built.packed_form->prototypes[part];
    EXPECT_EQ(0, std::memcmp(numbers_of(built.plain, plain->messages[index], before.nodes_at),
                             numbers_of(built.packed, message, after.nodes_at),
                             (range.node_end - range.node_begin) * sizeof(frame::NodeShape)));
    std::uint64_t at = 0;
    for (std::uint32_t index_of = range.buffer_begin; index_of < range.buffer_end; ++index_of) {
      const BufferPlace& given = built.plan.buffers[index_of];
      const FoundBuffer& found = buffers[index_of];
      EXPECT_EQ(found.offset, at);
      const std::uint64_t end = found.offset + found.bytes;
      at = align_up(end, 8);
      for (std::uint64_t i = end; i < at; ++i) EXPECT_EQ(built.packed[message.body + i], std::byte{0});
      EXPECT_TRUE(std::ranges::equal(found.plain, Bytes(built.plain).subspan(given.offset, given.bytes)));
      if (given.bytes == 0) {
        EXPECT_EQ(found.bytes, 0u);
      } else if (found.as_it_is) {
        ++counted.as_they_are;
      } else {
        ++counted.compressed;
        EXPECT_LT(found.bytes - 8, given.bytes);
      }
    }
    EXPECT_EQ(message.body_bytes, at);
  }
  return counted;
}

class BodyCompressor : public testing::TestWithParam<Compression> {};

TEST_P(BodyCompressor, EveryTypeAndNestingComesBack) {
  for (const std::int64_t rows : {0, 1, 7, 1000}) {
    expect_same(build(frame::every_type(), rows, 1, GetParam()));
    expect_same(build(frame::every_nesting(), rows, 2, GetParam()));
  }
}

TEST_P(BodyCompressor, RandomFramesComeBack) {
  Counted all;
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    auto pick = [&](std::uint64_t low, std::uint64_t high) { return low + random() % (high - low + 1); };
    const Counted one =
        expect_same(build(frame::random_schema(pick), static_cast<std::int64_t>(pick(0, 200)), seed, GetParam()));
    all.compressed += one.compressed;
    all.as_they_are += one.as_they_are;
    if (HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(all.compressed, 50u);
  EXPECT_GT(all.as_they_are, 50u);
}

TEST_P(BodyCompressor, WhatDoesNotBecomeSmallerIsStoredAsItIs) {
  const frame::Schema schema{.fields = {{.name = "noise", .type = frame::Type::uint64, .nullable = false},
                                        {.name = "zeros", .type = frame::Type::float64, .nullable = false}}};
  constexpr std::int64_t rows = 100'000;
  const Built built = build(schema, rows, 1, GetParam(), [](Built& made) {
    std::mt19937_64 random(5);
    for (std::int64_t row = 0; row < rows; ++row) {
      store(made.plain.data() + made.plan.buffers[1].offset + row * 8, random());
      store(made.plain.data() + made.plan.buffers[3].offset + row * 8, 0.0);
    }
  });
  const Counted counted = expect_same(built);
  EXPECT_EQ(counted.as_they_are, 1u);
  EXPECT_EQ(counted.compressed, 1u);
  EXPECT_GT(built.packed.size(), 8u * rows);
  EXPECT_LT(built.packed.size(), 9u * rows);
}

TEST_P(BodyCompressor, AFrameOfNoBuffersIsItsMessages) {
  const Built built = build({.fields = {}}, 5, 1, GetParam());
  EXPECT_EQ(expect_same(built).compressed, 0u);
  EXPECT_EQ(frame::parse_frame(built.packed)->rows, 5);
}

TEST_P(BodyCompressor, OurOwnReaderSaysThatItReadsNone) {
  const Built built = build(frame::every_type(), 10, 1, GetParam());
  const auto view = frame::parse_frame(built.packed);
  ASSERT_TRUE(view);
  std::int64_t rows = 0;
  std::vector<frame::NodeShape> nodes;
  std::vector<BufferPlace> buffers;
  const Status status = frame::read_batch(built.form->layout, built.packed, *view, rows, nodes, buffers);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Error::unsupported);
  EXPECT_NE(status.error().message.find("compressed body"), std::string::npos) << status.error().message;
}

TEST_P(BodyCompressor, MessagesOfBothKindsFitIntoOneFile) {
  const Built built = build(frame::every_nesting(), 33, 4, GetParam());
  std::vector<std::byte> file;
  const auto append = [&](Bytes bytes) { file.insert(file.end(), bytes.begin(), bytes.end()); };
  for (const auto* part : {&built.plain, &built.packed, &built.plain}) {
    const auto view = frame::parse_frame(*part);
    ASSERT_TRUE(view);
    for (const frame::MessageRange& message : view->messages) {
      if (message.kind == frame::MessageKind::schema && !file.empty()) continue;
      const frame::MessagePiece piece = frame::fit_message(*part, message, file.size(), frame::page_alignment);
      append(piece.prefix);
      append(piece.metadata);
      file.resize(file.size() + piece.padding_bytes);
      EXPECT_TRUE(!message.compressed || piece.padding_bytes == 0);
      append(piece.body);
    }
  }
  append(frame::end_marker);
  const auto joined = frame::parse_frame(file);
  ASSERT_TRUE(joined) << joined.error().message;
  EXPECT_EQ(joined->rows, 3 * 33);
  EXPECT_EQ(joined->end, file.size());
}

INSTANTIATE_TEST_SUITE_P(Codec, BodyCompressor, testing::Values(Compression::lz4, Compression::zstd),
                         [](const auto& instance) { return std::string(wire::compression_name(instance.param)); });

}  // namespace
}  // namespace offpath::mover
