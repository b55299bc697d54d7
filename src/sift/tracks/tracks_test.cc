#include "sift/tracks/tracks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "sift/split/particles.h"
#include "sift/tracks/track_reader.h"
#include "testing/pool/memory_unread.h"
#include "testing/sanitized.h"

namespace offpath::sift {
namespace {

using frame::Type;
using Row = std::pair<std::string, std::int64_t>;  // identifier as it is ordered, step

class Tracks : public ::testing::TestWithParam<Type> {
 protected:
  Tracks() {
    frame::Schema schema = particle_schema();
    schema.fields[0].type = GetParam();
    if (GetParam() == Type::fixed_binary) schema.fields[0].width = 16;
    if (GetParam() == Type::decimal128) schema.fields[0].precision = 38;
    const bool by_bits = is_integer(GetParam());
    form_ = TrackForm::make(schema, {std::string("id"), by_bits ? KeyBy::bits : KeyBy::hash}).value();
  }

  std::uint64_t draw_id(std::uint64_t ids) {
    std::uint64_t id = random_() % ids - (random_() % 4 == 0 ? 3 : 0);
    if (!is_long() && form_->rows->key_bytes() == 4) id &= 0xFFFF'FFFF;
    return id;
  }

  [[nodiscard]] bool is_long() const { return form_->rows->key().is_long(); }
  // As the query of a program names them.
  void want(TrackQuery& query, std::uint64_t id) const {
    if (is_long())
      query.long_identifiers->push_back(ordered_id(*form_->rows, id));
    else
      query.identifiers->push_back(id);
  }
  void want_some(TrackQuery& query) const {
    if (is_long())
      query.long_identifiers.emplace();
    else
      query.identifiers.emplace();
  }
  [[nodiscard]] bool is_wanted(const TrackQuery& query, const std::string& ordered) const {
    if (query.long_identifiers)
      return std::ranges::find(*query.long_identifiers, ordered) != query.long_identifiers->end();
    return !query.identifiers || std::ranges::any_of(*query.identifiers, [&](std::uint64_t id) {
      return ordered_id(*form_->rows, id) == ordered;
    });
  }

  std::shared_ptr<const TrackRun> make_run(std::uint64_t rows, std::uint64_t ids,
                                           std::initializer_list<std::int64_t> steps) {
    std::vector<Piece> pieces;
    for (const std::int64_t step : steps) {
      std::vector<std::uint64_t> numbers(rows);
      for (std::uint64_t& id : numbers) {
        id = draw_id(ids);
        all_.push_back({ordered_id(*form_->rows, id), step});
      }
      FramePtr frame = particle_frame(*form_->rows, numbers, step, memory_);
      auto view = form_->rows->view({frame->buffer.data(), frame->bytes}).value();
      pieces.push_back({std::move(frame), std::move(view), {{step, rows}}});
    }
    return TrackRun::sort(form_->rows, pieces, memory_, nullptr, block_bytes_).value();
  }

  // The run is on disk from now on.
  void leave(const TrackRun& run) {
    if (!run.is_in_memory()) return;
    const FramePtr object = run.object();
    const auto bytes =
        std::make_shared<const std::vector<std::byte>>(object->buffer.data(), object->buffer.data() + object->bytes);
    run.leave_memory(
        pool::MemoryUnread::frame(bytes->size(), run.rows(), memory_.cache, [this, bytes]() -> Result<Bytes> {
          ++reads_;
          if (fails_reading_) return fail(failure_, "the disk fails");
          return Bytes(*bytes);
        }));
    EXPECT_FALSE(run.is_in_memory());
  }

  // Reads all frames, and checks that each but the last is full; of text they have fewer rows.
  std::vector<Row> read(TrackReader reader, std::uint64_t rows_max) {
    std::vector<Row> found;
    bool over = false;
    for (;;) {
      const FramePtr frame = reader.next(memory_).value();
      if (frame == nullptr) return found;
      EXPECT_FALSE(over);
      const auto view = form_->answers->view({frame->buffer.data(), frame->bytes}).value();
      EXPECT_LE(view.rows, rows_max);
      over = view.rows < rows_max && !form_->rows->key().is_text();
      for (std::uint64_t row = 0; row < view.rows; ++row) {
        const auto step = load<std::int64_t>(view.columns[0].values + row * 8);
        found.emplace_back(ordered_id(*form_->rows, id_of_value(*form_->rows, view.value_of_id(row))), step);
        EXPECT_EQ(wrong_row(*form_->rows, view, row, step, 1), "");
      }
    }
  }

  std::mt19937_64 random_{5};
  FrameMemory memory_{BufferCache::make({}), 7};
  std::shared_ptr<const TrackForm> form_;
  std::vector<Row> all_;
  std::uint64_t block_bytes_ = TrackRun::one_block, reads_ = 0;
  bool fails_reading_ = false;
  Error failure_ = Error::io;
};

TEST_P(Tracks, ARunIsSorted) {
  for (const std::uint64_t rows : {1u, 40u, 3000u}) {
    all_.clear();
    const auto run = make_run(rows, 500, {4, 2, 9});
    std::ranges::sort(all_);
    TrackSnapshot snapshot(form_, 1);
    snapshot.add(0, {run});
    EXPECT_EQ(read(TrackReader(snapshot, {}, 1u << 20), 1u << 20), all_);
    const BlockPtr block = run->block(0, memory_).value();
    const std::string absent = ordered_id(*form_->rows, UINT64_MAX - 100);
    EXPECT_EQ(is_long() ? block->find(LongKey::of(bytes_of(absent))).end : block->find(UINT64_MAX - 100).end, 0u);
  }
}

TEST_P(Tracks, MergedRunsReadAsBefore) {
  TrackRuns runs;
  TrackSnapshot before(form_, 1);
  for (std::int64_t step = 0; step < 23; ++step) {
    runs.add(make_run(1 + random_() % 300, 50, {step, step / 2}));  // steps overlap those of other runs
    const auto merged = runs.begin_merge(1ull << 40, 0);
    if (merged.empty()) continue;
    EXPECT_TRUE(runs.begin_merge(1ull << 40, 0).empty()) << "one at a time";
    if (step % 3 == 0)
      runs.end_merge(merged, nullptr);
    else
      runs.end_merge(merged, TrackRun::merge(merged, memory_).value());
  }
  EXPECT_LE(runs.runs().size(), 12u);
  std::ranges::sort(all_);
  TrackSnapshot snapshot(form_, 1);
  snapshot.add(0, runs.runs());
  EXPECT_EQ(snapshot.rows(), all_.size());
  for (const std::uint64_t rows_max : {1u, 7u, 100'000u})
    EXPECT_EQ(read(TrackReader(snapshot, {}, rows_max), rows_max), all_);
}

TEST_P(Tracks, QueriesSeeWhatAFilterWould) {
  TrackRuns runs;
  for (std::int64_t step = 0; step < 10; ++step) runs.add(make_run(200, 60, {step * 2, step}));
  std::ranges::sort(all_);
  TrackSnapshot snapshot(form_, 1);
  snapshot.add(0, runs.runs());
  for (int turn = 0; turn < 100; ++turn) {
    TrackQuery query;
    if (turn % 3 != 0) want_some(query);
    for (int i = 0; i < turn % 3 * 4; ++i) want(query, draw_id(70));
    if (turn % 2 == 0) {
      query.first_step = static_cast<std::int64_t>(random_() % 20);
      query.last_step = query.first_step + static_cast<std::int64_t>(random_() % 10) - 2;
    }
    std::vector<Row> expected;
    for (const Row& row : all_) {
      if (is_wanted(query, row.first) && row.second >= query.first_step && row.second <= query.last_step)
        expected.push_back(row);
    }
    EXPECT_EQ(read(TrackReader(snapshot, query, 64), 64), expected);
    const std::uint64_t one = draw_id(70);
    const auto of_one = is_long() ? 0 : std::ranges::count(all_, ordered_id(*form_->rows, one), &Row::first);
    EXPECT_EQ(snapshot.rows_of({&one, 1}), static_cast<std::uint64_t>(of_one));
  }
}

TEST_P(Tracks, RunsOnDiskReadAsInMemoryBlockByBlock) {
  block_bytes_ = 2000;
  TrackRuns runs;
  for (std::int64_t step = 0; step < 30; ++step) {
    runs.add(make_run(1 + random_() % 400, 300, {step, step / 2}));
    if (step % 2 == 0) leave(*runs.runs().back());
    const auto merged = runs.begin_merge(1ull << 40, 0);
    if (merged.empty()) continue;
    runs.end_merge(merged, TrackRun::merge(merged, memory_, nullptr, block_bytes_).value());
    EXPECT_GT(runs.runs().front()->blocks().size(), 1u);
    if (step % 3 == 0) leave(*runs.runs().front());
  }
  std::ranges::sort(all_);
  TrackSnapshot snapshot(form_, 1);
  snapshot.add(0, runs.runs());
  for (const std::uint64_t rows_max : {1u, 7u, 300u, 100'000u})
    EXPECT_EQ(read(TrackReader(snapshot, {}, rows_max), rows_max), all_);
  for (int turn = 0; turn < 100; ++turn) {
    TrackQuery query;
    want_some(query);
    for (int i = 0; i < turn % 5; ++i) want(query, draw_id(310));
    query.last_step = turn % 2 == 0 ? INT64_MAX : 12;
    std::vector<Row> expected;
    for (const Row& row : all_)
      if (row.second <= query.last_step && is_wanted(query, row.first)) expected.push_back(row);
    reads_ = 0;
    EXPECT_EQ(read(TrackReader(snapshot, query, 64), 64), expected);
    EXPECT_LE(reads_, static_cast<std::uint64_t>(turn % 5) * runs.runs().size())
        << "one block of each run for an identifier";
  }
  // Runs leave memory between two frames of a reader: a disk fault gives an error, not wrong rows.
  TrackReader reader(snapshot, {}, 100);
  const FramePtr first = reader.next(memory_).value();
  ASSERT_NE(first, nullptr);
  std::uint64_t rows = first->rows;
  for (const auto& run : runs.runs())
    if (run->is_in_memory()) leave(*run);
  while (const FramePtr frame = reader.next(memory_).value()) rows += frame->rows;
  EXPECT_EQ(rows, all_.size());
  fails_reading_ = true;
  for (const Error lost : {Error::io, Error::protocol}) {
    failure_ = lost;
    EXPECT_EQ(TrackReader(snapshot, {}, 100).next(memory_).error().code, Error::io) << "its file is gone";
  }
}

TEST_P(Tracks, WhatIsNoIdentifierIsNotFound) {
  const auto run = make_run(200, 60, {1});
  TrackSnapshot snapshot(form_, 1);
  snapshot.add(0, {run});
  const auto rows = [&](std::uint64_t id) {
    TrackQuery query;
    want_some(query);
    want(query, id);
    return read(TrackReader(snapshot, query, 1000), 1000).size();
  };
  EXPECT_GT(rows(5), 0u);
  EXPECT_EQ(rows(5 | 1ull << 32), 0u);
}

// While its frame is on its way to a slow reader.
TEST_P(Tracks, AReaderOfManyRunsOnDiskHasFewBlocksBetweenFrames) {
  block_bytes_ = 1 << 20;
  TrackRuns runs;
  const std::uint64_t count = fewer_if_sanitized(20);
  for (std::int64_t step = 0; step < static_cast<std::int64_t>(count); ++step) {
    runs.add(make_run(50'000, 1'000'000, {step}));
    leave(*runs.runs().back());
  }
  std::ranges::sort(all_);
  TrackSnapshot snapshot(form_, 1);
  snapshot.add(0, runs.runs());
  TrackQuery some;
  want_some(some);
  for (std::uint64_t i = 1000; i < 4000; ++i) want(some, i);  // each run has about 150 of them
  const std::uint64_t rows_max = 50 * count;
  // Blocks of few runs together are kept, and so are those of text, which are smaller here.
  const bool few = form_->rows->key().is_text() || count * block_bytes_ < TrackReader::found_bytes_max;
  const std::uint64_t kept = few ? TrackReader::found_bytes_max : 0;
  for (const TrackQuery& query : {TrackQuery{}, some}) {
    TrackReader reader(snapshot, query, rows_max);
    std::size_t row = 0;
    for (int frames = 0; frames < 3; ++frames) {
      const FramePtr frame = reader.next(memory_).value();
      ASSERT_NE(frame, nullptr);
      const auto view = form_->answers->view({frame->buffer.data(), frame->bytes}).value();
      const std::string id = ordered_id(*form_->rows, id_of_value(*form_->rows, view.value_of_id(0)));
      EXPECT_TRUE(query.identifiers || query.long_identifiers || id == all_[row].first);
      row += view.rows;
      EXPECT_LT(memory_.cache->used_bytes(), kept + (1u << 20));
    }
  }
}

TEST_P(Tracks, ABlockThatChangedOnDiskIsAnError) {
  block_bytes_ = 2000;
  const auto run = make_run(500, 400, {1});
  const FramePtr object = run->object();
  auto bytes = std::make_shared<std::vector<std::byte>>(object->buffer.data(), object->buffer.data() + object->bytes);
  run->leave_memory(pool::MemoryUnread::frame(bytes->size(), run->rows(), memory_.cache,
                                              [bytes]() -> Result<Bytes> { return Bytes(*bytes); }));
  ASSERT_TRUE(run->block(1, memory_));
  (*bytes)[run->blocks()[1].at + 900] ^= std::byte{4};
  const auto changed = run->block(1, memory_);
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().code, Error::io);
  EXPECT_NE(changed.error().message.find(
                fmt::format("block 1 of {} of a run of tracks, in a file in memory, is corrupt", run->blocks().size())),
            std::string::npos)
      << changed.error().message;
  EXPECT_TRUE(run->is_damaged());
  EXPECT_TRUE(run->block(2, memory_));
}

// Kept runs come from disk or another member: with a wrong length a value would be read beyond its block.
TEST_P(Tracks, ALongIdentifierOfAnotherLengthThanItsColumnsIsRefused) {
  if (!is_long()) GTEST_SKIP() << "identifiers of at most eight bytes are numbers";
  const bool any_length = form_->rows->key().is_text();
  const BlockPtr block = make_run(1, 1000, {1})->block(0, memory_).value();
  ASSERT_TRUE(block->check());
  // The offsets of the one identifier's bytes are in the 64 bytes before these.
  auto* const offsets = reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(block->long_bytes(0).data())) - 8;
  ASSERT_GT(offsets[1], 8u);
  --offsets[1];
  EXPECT_EQ(block->check().has_value(), any_length);
  // The list of blocks is checked before any block is read.
  block_bytes_ = 2000;
  const auto run = make_run(400, 1000, {1});
  RunNotes notes;
  notes.rows = run->rows();
  notes.blocks.assign(run->blocks().begin(), run->blocks().end());
  for (std::size_t i = 0; i < notes.blocks.size(); ++i) {
    notes.keys += notes.blocks[i].keys;
    const LongKey first = run->block(i, memory_).value()->long_key(0);
    notes.firsts.emplace_back(text_of(first.bytes));
  }
  leave(*run);
  ASSERT_TRUE(TrackRun::open(form_->rows, run->object(), notes));
  std::string& last = notes.firsts.back();
  const std::size_t length = last.size();
  last.resize(long_key_bytes_max + 1);
  EXPECT_FALSE(TrackRun::open(form_->rows, run->object(), notes));
  last.resize(length + 1);
  EXPECT_EQ(TrackRun::open(form_->rows, run->object(), notes).has_value(), any_length);
}

TEST_P(Tracks, WhatWasReadWrongOnceIsReadAgain) {
  block_bytes_ = 2000;
  const auto run = make_run(500, 400, {1});
  const FramePtr object = run->object();
  std::vector<std::byte> bytes(object->buffer.data(), object->buffer.data() + object->bytes), wrong = bytes;
  wrong[run->blocks()[1].at + 900] ^= std::byte{4};
  bool once = true;
  run->leave_memory(pool::MemoryUnread::frame(bytes.size(), run->rows(), memory_.cache, [&]() -> Result<Bytes> {
    return Bytes(std::exchange(once, false) ? wrong : bytes);
  }));
  EXPECT_TRUE(run->block(1, memory_));
  EXPECT_FALSE(once);
  EXPECT_FALSE(run->is_damaged());
}

// A caller that asks again gets no answer without the rows that could not be read.
TEST_P(Tracks, AReaderThatFailedGoesOnFailing) {
  block_bytes_ = 2000;
  TrackSnapshot snapshot(form_, 1);
  std::vector<std::shared_ptr<const TrackRun>> runs;
  for (std::int64_t step = 0; step < 3; ++step) runs.push_back(make_run(300, 1000, {step}));
  for (const auto& run : runs) leave(*run);
  snapshot.add(0, runs);
  TrackReader reader(snapshot, {}, 100);
  ASSERT_NE(reader.next(memory_).value(), nullptr);
  fails_reading_ = true;
  Result<FramePtr> frame = nullptr;
  while ((frame = reader.next(memory_)) && *frame != nullptr) {
  }
  ASSERT_FALSE(frame);
  fails_reading_ = false;
  const auto again = reader.next(memory_);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().message, frame.error().message);
}

// An unreadable run prevents only its own merges, for a while or for good.
TEST_P(Tracks, RunsThatCannotBeReadAreLeftOutOfMerges) {
  block_bytes_ = 2000;
  TrackRuns runs;
  for (std::int64_t step = 0; step < 6; ++step) runs.add(make_run(300, 400, {step}));
  const auto first = runs.runs()[0], second = runs.runs()[1];
  leave(*first);
  fails_reading_ = true;
  std::optional<std::size_t> unread;
  auto merged = runs.begin_merge(1ull << 40, 0);
  ASSERT_EQ(merged.size(), 6u);
  ASSERT_FALSE(TrackRun::merge(merged, memory_, nullptr, block_bytes_, &unread));
  EXPECT_EQ(unread, 0u);
  EXPECT_FALSE(first->is_damaged());
  runs.end_merge(merged, nullptr);
  runs.rest(*first, 100);
  EXPECT_EQ(runs.failures_of(*first), 1u);
  merged = runs.begin_merge(1ull << 40, 99);
  EXPECT_EQ(merged.size(), 5u) << "the others";
  runs.end_merge(merged, nullptr);
  failure_ = Error::protocol;
  leave(*second);
  EXPECT_FALSE(second->block(0, memory_));
  EXPECT_TRUE(second->is_damaged()) << "its file is gone";
  merged = runs.begin_merge(1ull << 40, 100);
  EXPECT_EQ(merged.size(), 5u) << "the first one has rested";
  EXPECT_EQ(std::ranges::find(merged, second), merged.end());
  runs.end_merge(merged, nullptr);
}

// Sorts of small runs come faster than merges of large ones.
TEST_P(Tracks, TheTierWithMostRunsIsMergedFirst) {
  TrackRuns runs;
  for (std::int64_t step = 0; step < 6; ++step) runs.add(make_run(4000, 9000, {step}));
  for (std::int64_t step = 0; step < 5; ++step) runs.add(make_run(100, 9000, {step}));
  const auto merged = runs.begin_merge(1ull << 40, 0);
  ASSERT_EQ(merged.size(), 6u);
  EXPECT_GT(merged[0]->rows(), 1000u);
  EXPECT_FALSE(runs.are_many(1ull << 40));
  for (std::size_t i = runs.runs().size(); i < TrackRuns::waiting_runs_max; ++i) runs.add(make_run(100, 9000, {1}));
  EXPECT_TRUE(runs.are_many(1ull << 40));
  EXPECT_FALSE(runs.are_many(1)) << "those that no merge could take do not count";
}

INSTANTIATE_TEST_SUITE_P(ByIdentifier, Tracks,
                         ::testing::Values(Type::uint64, Type::int64, Type::uint32, Type::int32, Type::fixed_binary,
                                           Type::decimal128, Type::utf8, Type::large_binary),
                         [](const auto& each) { return std::string(frame::type_name(each.param)); });

// One identifier with another prefix does not change the others' order; trailing zeros count.
TEST(TrackRunSort, LongIdentifiersWithSeveralBeginningsAreInOrder) {
  const FrameMemory memory{BufferCache::make({}), 7};
  frame::Schema schema;
  schema.fields.push_back({.name = "id", .type = Type::binary});
  const auto form = RowForm::make(schema, {std::string("id"), KeyBy::hash}).value();
  std::vector<std::string> ids = {"ion-1", "", "electron-"};
  for (int i = 0; i < 6000; ++i) ids.push_back(fmt::format("electron-{}", i % 2500));
  for (int i = 0; i < 3000; ++i) ids.push_back(fmt::format("electron-of-the-outer-shell-{:020}-{}", i % 3, i % 1100));
  for (std::size_t i = 0; i < 3000; ++i) ids.push_back("zero" + std::string(i % 7, '\0'));
  std::mt19937_64 random{5};
  std::ranges::shuffle(ids, random);
  std::uint64_t bytes = 0;
  for (const std::string& id : ids) bytes += id.size();
  RowForm::Made made = form->make_frame(ids.size(), memory, bytes).value();
  TextTarget texts{made.columns[0], made.text};
  for (const std::string& id : ids) texts.add(bytes_of(id), form->key_bytes());
  const auto view = form->view({made.frame->buffer.data(), made.frame->bytes}).value();
  const auto run = TrackRun::sort(form, {{made.frame, view, {{1, ids.size()}}}}, memory).value();
  const BlockPtr block = run->block(0, memory).value();
  ASSERT_TRUE(block->check());
  std::ranges::sort(ids);
  std::vector<std::string> sorted;
  for (std::size_t key = 0; key < block->keys().size(); ++key) {
    const RowRange rows = block->rows_of(key);
    sorted.insert(sorted.end(), rows.end - rows.first, std::string(text_of(block->long_bytes(key))));
  }
  EXPECT_EQ(sorted, ids);
}

TEST(TrackSnapshot, OfAPoolWithoutRowsIsEmpty) {
  TrackReader reader(TrackSnapshot(nullptr, 16), {}, 10);
  EXPECT_EQ(reader.next({BufferCache::make({}), 1}).value(), nullptr);
}

}  // namespace
}  // namespace offpath::sift
