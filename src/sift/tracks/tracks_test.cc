#include "sift/tracks/tracks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "sift/split/particles.h"
#include "sift/tracks/track_reader.h"

namespace offpath::sift {
namespace {

using frame::Type;
using Row = std::pair<std::uint64_t, std::int64_t>;  // key in order, step

class Tracks : public ::testing::TestWithParam<Type> {
 protected:
  Tracks() {
    frame::Schema schema = particle_schema();
    schema.fields[0].type = GetParam();
    form_ = TrackForm::make(schema, "id").value();
  }

  std::uint64_t draw_id(std::uint64_t ids) {
    std::uint64_t id = random_() % ids - (random_() % 4 == 0 ? 3 : 0);
    if (form_->rows->key_bytes() == 4) id &= 0xFFFF'FFFF;
    return id;
  }

  std::shared_ptr<const TrackRun> make_run(std::uint64_t rows, std::uint64_t ids,
                                           std::initializer_list<std::int64_t> steps) {
    std::vector<Piece> pieces;
    for (const std::int64_t step : steps) {
      std::vector<std::uint64_t> numbers(rows);
      for (std::uint64_t& id : numbers) {
        id = draw_id(ids);
        all_.push_back({key_of(*form_->rows, id), step});
      }
      FramePtr frame = particle_frame(*form_->rows, numbers, step, memory_);
      auto view = form_->rows->view({frame->buffer.data(), frame->bytes}).value();
      pieces.push_back({std::move(frame), std::move(view), {{step, rows}}});
    }
    return TrackRun::sort(form_->rows, pieces, memory_).value();
  }

  // Reads all frames, and checks that each but the last is full.
  std::vector<Row> read(TrackReader reader, std::uint64_t rows_max) {
    std::vector<Row> found;
    bool over = false;
    for (;;) {
      const FramePtr frame = reader.next(memory_).value();
      if (frame == nullptr) return found;
      EXPECT_FALSE(over);
      const auto view = form_->answers->view({frame->buffer.data(), frame->bytes}).value();
      EXPECT_LE(view.rows, rows_max);
      over = view.rows < rows_max;
      for (std::uint64_t row = 0; row < view.rows; ++row) {
        const auto step = load<std::int64_t>(view.columns[0].values + row * 8);
        found.emplace_back(key_of(*form_->rows, view.ids.values + row * view.ids.value_bytes), step);
        EXPECT_EQ(wrong_row(*form_->rows, view, row, step, 1), "");
      }
    }
  }

  std::mt19937_64 random_{5};
  FrameMemory memory_{BufferCache::make({}), 7};
  std::shared_ptr<const TrackForm> form_;
  std::vector<Row> all_;
};

TEST_P(Tracks, ARunIsSorted) {
  for (const std::uint64_t rows : {1u, 40u, 3000u}) {
    all_.clear();
    const auto run = make_run(rows, 500, {4, 2, 9});
    std::ranges::sort(all_);
    TrackSnapshot snapshot(form_, 1);
    snapshot.add(0, {run});
    EXPECT_EQ(read(TrackReader(snapshot, {}, 1u << 20), 1u << 20), all_);
    EXPECT_EQ(run->find(UINT64_MAX - 100).end, 0u);
  }
}

TEST_P(Tracks, MergedRunsReadAsBefore) {
  TrackRuns runs;
  TrackSnapshot before(form_, 1);
  for (std::int64_t step = 0; step < 23; ++step) {
    runs.add(make_run(1 + random_() % 300, 50, {step, step / 2}));  // steps overlap those of other runs
    const auto merged = runs.begin_merge(1ull << 40);
    if (merged.empty()) continue;
    EXPECT_TRUE(runs.begin_merge(1ull << 40).empty()) << "one at a time";
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
    if (turn % 3 != 0) query.identifiers.emplace();
    for (int i = 0; i < turn % 3 * 4; ++i) query.identifiers->push_back(draw_id(70));
    if (turn % 2 == 0) {
      query.first_step = static_cast<std::int64_t>(random_() % 20);
      query.last_step = query.first_step + static_cast<std::int64_t>(random_() % 10) - 2;
    }
    std::vector<Row> expected;
    for (const Row& row : all_) {
      const bool wanted = !query.identifiers || std::ranges::any_of(*query.identifiers, [&](std::uint64_t id) {
        return key_of(*form_->rows, id) == row.first;
      });
      if (wanted && row.second >= query.first_step && row.second <= query.last_step) expected.push_back(row);
    }
    EXPECT_EQ(read(TrackReader(snapshot, query, 64), 64), expected);
    const std::uint64_t one = draw_id(70);
    const auto of_one = std::ranges::count(all_, key_of(*form_->rows, one), &Row::first);
    EXPECT_EQ(snapshot.rows_of({&one, 1}), static_cast<std::uint64_t>(of_one));
  }
}

INSTANTIATE_TEST_SUITE_P(ByIdentifier, Tracks, ::testing::Values(Type::uint64, Type::int64, Type::uint32, Type::int32),
                         [](const auto& each) { return std::string(frame::type_name(each.param)); });

TEST(TrackSnapshot, OfAPoolWithoutRowsIsEmpty) {
  TrackReader reader(TrackSnapshot(nullptr, 16), {}, 10);
  EXPECT_EQ(reader.next({BufferCache::make({}), 1}).value(), nullptr);
}

}  // namespace
}  // namespace offpath::sift
