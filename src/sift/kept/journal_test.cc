#include "sift/kept/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "sift/split/particles.h"
#include "sift/tracks/track_run.h"
#include "testing/pool/memory_unread.h"

namespace offpath::sift {
namespace {

using ::testing::HasSubstr;

TakenSequences sequences(std::initializer_list<std::pair<std::uint64_t, std::uint64_t>> ranges) {
  TakenSequences made;
  for (const auto& [first, last] : ranges) made.take(first, last);
  return made;
}

ElementRecord some_record() {
  ElementRecord record;
  record.number = 77;
  record.sources.push_back({3, {{0xABCDEF0123456789, sequences({{1, 4}, {9, 9}, {12, 20}})}, {7, {}}}, {5, 6}});
  record.sources.push_back({0, {{1, sequences({{5, 5}})}}, {}});
  record.next_sequences = {1, 9, 4};
  record.open.push_back({76, {{3, 7, 2}, {0, 1, 5}}, {{0, 8}, {2, 3}}});
  record.open.push_back({77, {{3, 7, 4}}, {}});
  record.covers = sequences({{70, 72}, {77, 77}});
  return record;
}

TEST(Journal, NamesAreReadAsTheyWereWritten) {
  const KeptName names[] = {{KeptName::Kind::piece, {1, 0}, {0, UINT64_MAX, 1}, 0},
                            {KeptName::Kind::piece, {17, 65535}, {4000, 0, UINT64_MAX}, 0},
                            {KeptName::Kind::split, {2, 15}, {}, 300},
                            {KeptName::Kind::run, {3, 255}, {}, 1}};
  for (const KeptName& name : names) {
    EXPECT_LE(name.text().size(), 255u);
    EXPECT_EQ(KeptName::parse(name.text()), name) << name.text();
  }
  for (const std::string_view other :
       {"", "pool", "piece", "piece.1.0.0.1", "piece.1.0.0.1.0", "piece.1.0.0.1.1.1", "split.0.0.1", "run.1.10000.1",
        "run.12.0.", "run.1.0.x", "track.1.0.1", "split.1.0.11111111111111111"})
    EXPECT_FALSE(KeptName::parse(other)) << other;
}

TEST(Journal, RecordsAreReadAsTheyWereWritten) {
  const ElementRecord record = some_record();
  const auto read = decode_record(encode(record));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, record);
  EXPECT_EQ(decode_record(encode(ElementRecord{})).value(), ElementRecord{});
}

TEST(Journal, EveryCutOfARecordIsRefused) {
  const std::vector<std::byte> bytes = encode(some_record());
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(decode_record(Bytes(bytes).first(length))) << length;
  std::vector<std::byte> longer = bytes;
  longer.push_back({});
  EXPECT_FALSE(decode_record(longer));
}

TEST(Journal, ChangedRecordsAreRefusedOrOthers) {
  const std::vector<std::byte> bytes = encode(some_record());
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::vector<std::byte> changed = bytes;
    changed[at] ^= std::byte{0xFF};
    if (const auto read = decode_record(changed)) {
      EXPECT_FALSE(*read == some_record()) << at;
    }
  }
}

TEST(Journal, APieceIsKeptWithItsHeader) {
  const FrameMemory memory{BufferCache::make({.huge_pages = false}), 7};
  const auto form = RowForm::make(particle_schema(), "id").value();
  const std::uint64_t ids[] = {5, 9, 2};
  const FramePtr frame = particle_frame(*form, ids, 4, memory);
  PieceHeader header;
  header.pool = "/t";
  header.source = {"a", 3};
  header.sequence = 12;
  header.runs = {{4, 3}};
  const FramePtr object = keep_piece(frame, header, memory).value();
  EXPECT_EQ(object->rows, 3u);
  const KeptParts parts = open_kept({object->buffer.data(), object->bytes}).value();
  EXPECT_TRUE(std::ranges::equal(parts.body, Bytes(frame->buffer.data(), frame->bytes)));
  EXPECT_EQ(decode_piece_header(parts.notes).value(), header);
  for (const std::uint64_t length : {std::uint64_t{0}, std::uint64_t{15}, object->bytes - 1})
    EXPECT_THAT(open_kept({object->buffer.data(), length}).error().message, HasSubstr("kept object of a sift pool"));
}

TEST(Journal, ARunIsOpenedAsItWasAndNotAsAnotherShape) {
  const FrameMemory memory{BufferCache::make({.huge_pages = false}), 7};
  const auto form = RowForm::make(particle_schema(), "id").value();
  const std::uint64_t ids[] = {5, 9, 5, 2};
  const FramePtr frame = particle_frame(*form, ids, 4, memory);
  const std::vector<Piece> pieces{{frame, form->view({frame->buffer.data(), frame->bytes}).value(), {{4, 4}}}};
  const RunNotes notes{.record = encode(some_record()), .schema = {std::byte{1}}};
  const auto made = TrackRun::sort(form, pieces, memory, &notes).value();
  const KeptParts parts = open_kept({made->object()->buffer.data(), made->object()->bytes}).value();
  RunNotes found = decode_run_notes(parts.notes).value();
  EXPECT_EQ(found.record, notes.record);
  EXPECT_EQ(found.schema, notes.schema);
  EXPECT_EQ(found.rows, 4u);
  EXPECT_EQ(found.keys, 3u);
  const auto opened = TrackRun::open(form, made->object(), found);
  ASSERT_TRUE(opened) << opened.error().message;
  const BlockPtr block = (*opened)->block(0, memory).value(), as_made = made->block(0, memory).value();
  EXPECT_TRUE(std::ranges::equal(block->keys(), as_made->keys()));
  EXPECT_EQ(block->find(key_of(*form, 5)).end - block->find(key_of(*form, 5)).first, 2u);
  found.rows = 5;
  EXPECT_FALSE(TrackRun::open(form, made->object(), found));
  found.rows = UINT64_MAX / 2;
  EXPECT_FALSE(TrackRun::open(form, made->object(), found));
  found.rows = 4;
  found.keys = 4;
  EXPECT_FALSE(TrackRun::open(form, made->object(), found));
  found.keys = 3;
  const_cast<std::uint64_t&>(as_made->keys()[1]) = as_made->keys()[0];
  EXPECT_THAT(TrackRun::open(form, made->object(), found).error().message, HasSubstr("identifier 1 of a run"));
}

TEST(Journal, ARunOfBlocksIsOpenedFromDiskByItsNotesAlone) {
  const FrameMemory memory{BufferCache::make({.huge_pages = false}), 7};
  const auto form = RowForm::make(particle_schema(), "id").value();
  std::vector<std::uint64_t> ids(500);
  std::iota(ids.begin(), ids.end(), 0);
  const FramePtr frame = particle_frame(*form, ids, 4, memory);
  const std::vector<Piece> pieces{{frame, form->view({frame->buffer.data(), frame->bytes}).value(), {{4, 500}}}};
  const RunNotes notes{.record = encode(some_record()), .schema = {std::byte{1}}};
  const auto made = TrackRun::sort(form, pieces, memory, &notes, 4000).value();
  std::vector<std::byte> bytes(made->object()->buffer.data(), made->object()->buffer.data() + made->object()->bytes);
  const FramePtr unread =
      pool::MemoryUnread::frame(bytes.size(), 500, memory.cache, [&bytes]() -> Result<Bytes> { return Bytes(bytes); });
  const RunNotes found = decode_run_notes(read_kept_notes(*unread).value()).value();
  EXPECT_EQ(found.record, notes.record);
  EXPECT_GT(found.blocks.size(), 4u);
  const auto opened = TrackRun::open(form, unread, found).value();
  EXPECT_FALSE(opened->is_in_memory());
  EXPECT_EQ(opened->blocks().size(), made->blocks().size());
  for (std::size_t i = 0; i < found.blocks.size(); ++i)
    EXPECT_TRUE(std::ranges::equal(opened->block(i, memory).value()->keys(), made->block(i, memory).value()->keys()));
  RunNotes other = found;
  std::swap(other.blocks[0], other.blocks[1]);
  EXPECT_THAT(TrackRun::open(form, unread, other).error().message, HasSubstr("a block of a run of 500 rows"));
  other = found;
  other.blocks.pop_back();
  EXPECT_FALSE(TrackRun::open(form, unread, other));
  bytes[bytes.size() - 40] ^= std::byte{1};
  EXPECT_THAT(decode_run_notes(read_kept_notes(*unread).value()).error().message, HasSubstr("checksum"));
}

// Of one block, read whole; and of several, from disk by its notes.
TEST(Journal, RunsOfLongIdentifiersAreOpenedAsTheyWere) {
  const FrameMemory memory{BufferCache::make({.huge_pages = false}), 7};
  for (const frame::Type type : {frame::Type::fixed_binary, frame::Type::decimal128, frame::Type::utf8}) {
    frame::Schema schema = particle_schema();
    schema.fields[0].type = type;
    schema.fields[0].width = type == frame::Type::fixed_binary ? 20 : 0;
    schema.fields[0].precision = type == frame::Type::decimal128 ? 38 : 0;
    const auto form = RowForm::make(schema, {std::string("id"), KeyBy::hash}).value();
    std::vector<std::uint64_t> ids(500);
    std::iota(ids.begin(), ids.end(), 0);
    const FramePtr frame = particle_frame(*form, ids, 4, memory);
    const std::vector<Piece> pieces{{frame, form->view({frame->buffer.data(), frame->bytes}).value(), {{4, 500}}}};
    const RunNotes notes{.record = encode(some_record()), .schema = {std::byte{1}}};
    const auto is_same = [&](const TrackBlock& one, const TrackBlock& other) {
      bool same = one.keys().size() == other.keys().size();
      for (std::size_t i = 0; same && i < one.keys().size(); ++i) same = one.long_key(i) == other.long_key(i);
      return same;
    };
    const auto whole = TrackRun::sort(form, pieces, memory, &notes).value();
    const KeptParts parts = open_kept({whole->object()->buffer.data(), whole->object()->bytes}).value();
    RunNotes found = decode_run_notes(parts.notes).value();
    const auto again = TrackRun::open(form, whole->object(), found);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_TRUE(is_same(**(*again)->block(0, memory), **whole->block(0, memory)));
    found.keys = 501;
    EXPECT_FALSE(TrackRun::open(form, whole->object(), found));
    found.keys = 499;
    EXPECT_FALSE(TrackRun::open(form, whole->object(), found));

    const auto made = TrackRun::sort(form, pieces, memory, &notes, 4000).value();
    std::vector<std::byte> bytes(made->object()->buffer.data(), made->object()->buffer.data() + made->object()->bytes);
    const FramePtr unread = pool::MemoryUnread::frame(bytes.size(), 500, memory.cache,
                                                      [&bytes]() -> Result<Bytes> { return Bytes(bytes); });
    found = decode_run_notes(read_kept_notes(*unread).value()).value();
    ASSERT_GT(found.blocks.size(), 4u);
    EXPECT_EQ(found.firsts.size(), found.blocks.size());
    const auto opened = TrackRun::open(form, unread, found).value();
    EXPECT_EQ(opened->list_bytes(), made->list_bytes());
    EXPECT_LE(opened->list_bytes(), found.blocks.size() * TrackRun::list_bytes_max(form->key()));
    for (std::size_t i = 0; i < found.blocks.size(); ++i)
      EXPECT_TRUE(is_same(**opened->block(i, memory), **made->block(i, memory)));
    for (const std::uint64_t id : {std::uint64_t{0}, std::uint64_t{77}, std::uint64_t{499}}) {
      const std::string key = ordered_id(*form, id);
      const auto number = opened->find_block(LongKey::of(bytes_of(key)));
      ASSERT_TRUE(number);
      EXPECT_EQ((*opened->block(*number, memory))->find(LongKey::of(bytes_of(key))).end -
                    (*opened->block(*number, memory))->find(LongKey::of(bytes_of(key))).first,
                1u);
    }
    RunNotes other = found;
    std::swap(other.firsts[1], other.firsts[2]);
    EXPECT_FALSE(TrackRun::open(form, unread, other));
    other = found;
    other.firsts.clear();
    EXPECT_FALSE(TrackRun::open(form, unread, other));
    other = found;
    other.blocks[1].bytes = UINT64_MAX - 63;
    EXPECT_FALSE(TrackRun::open(form, unread, other));
    other = found;
    other.blocks[1].bytes += 64;
    EXPECT_FALSE(TrackRun::open(form, made->object(), other));
    EXPECT_FALSE(TrackRun::open(RowForm::make(particle_schema(), "id").value(), unread, found)) << "another column";
  }
}

}  // namespace
}  // namespace offpath::sift
