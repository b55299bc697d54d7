// Room for runs of tracks: the order of turns, and the charges.
#include "sift/tracks/track_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "sift/split/particles.h"
#include "testing/pool/memory_unread.h"

namespace offpath::sift {
namespace {

using ::testing::HasSubstr;
using For = TrackMemory::For;

class TrackRoom : public ::testing::Test {
 protected:
  TrackMemory::RunPtr make_run(std::uint64_t rows) {
    std::vector<std::uint64_t> ids(rows);
    std::iota(ids.begin(), ids.end(), 0);
    FramePtr frame = particle_frame(*form_, ids, 1, memory_);
    RowsView view = form_->view({frame->buffer.data(), frame->bytes}).value();
    std::vector<Piece> pieces;
    pieces.push_back({std::move(frame), std::move(view), {{1, rows}}});
    return TrackRun::sort(form_, pieces, memory_, nullptr, tracks_.block_bytes()).value();
  }
  // Carries out requested moves to disk. Returns their number.
  std::size_t leave() {
    Effects effects;
    tracks_.forget_unread(now_, effects);
    tracks_.work(now_, next_token_, effects);
    std::size_t left = 0;
    for (const Effect& effect : effects)
      if (const auto* spill = std::get_if<SpillEffect>(&effect)) {
        ++left;
        EXPECT_TRUE(tracks_.on_spilled(
            spill->token,
            full_ ? Result<FramePtr>(fail(Error::no_space, "the disk is full"))
                  : pool::MemoryUnread::frame(1, 1, memory_.cache, [] { return fail(Error::io, "none"); }),
            now_));
      }
    return left;
  }

  FrameMemory memory_{BufferCache::make({.huge_pages = false}), 7};
  std::shared_ptr<const RowForm> form_ = RowForm::make(particle_schema(), "id").value();
  SiftOptions options_{.settings = parse_settings("sift:/t?key=id&spill=on&tracks_budget=1MiB").value(),
                       .self = {"a", 1},
                       .memory = memory_};
  TrackMemory tracks_{options_};
  TimeNs now_ = 0;
  std::uint64_t next_token_ = 1;
  bool full_ = false;
};

constexpr std::uint64_t some_bytes = 300 << 10;

TEST_F(TrackRoom, AMergeYieldsToFourSortsAndThenHasItsTurn) {
  ASSERT_TRUE(tracks_.take(some_bytes, For::sort));
  ASSERT_TRUE(tracks_.take(some_bytes, For::sort));
  ASSERT_TRUE(tracks_.take(some_bytes, For::sort));
  EXPECT_FALSE(tracks_.take(some_bytes, For::merge)) << "no room";
  for (std::uint32_t sorts = 0; sorts < TrackMemory::sorts_before_merge; ++sorts) {
    EXPECT_FALSE(tracks_.take(some_bytes, For::sort)) << "no room";
    EXPECT_FALSE(tracks_.take(some_bytes, For::merge)) << "a sort waits";
    tracks_.give_back(some_bytes);
    EXPECT_FALSE(tracks_.take(some_bytes, For::merge)) << "a sort waits";
    EXPECT_TRUE(tracks_.take(some_bytes, For::sort)) << sorts;
  }
  tracks_.give_back(some_bytes);
  EXPECT_FALSE(tracks_.take(some_bytes, For::sort)) << "it is the merge's turn";
  EXPECT_TRUE(tracks_.take(some_bytes, For::merge));
  tracks_.give_back(some_bytes);
  EXPECT_TRUE(tracks_.take(some_bytes, For::sort));
}

TEST_F(TrackRoom, NoSortWaitsForAMergeThatDoesNotWaitAnyMore) {
  ASSERT_TRUE(tracks_.take(3 * some_bytes, For::sort));
  EXPECT_FALSE(tracks_.take(some_bytes, For::merge));
  for (std::uint32_t sorts = 0; sorts < TrackMemory::sorts_before_merge; ++sorts)
    ASSERT_TRUE(tracks_.take(1000, For::sort));
  EXPECT_FALSE(tracks_.take(1000, For::sort)) << "it is the merge's turn";
  tracks_.no_merge_waits();
  EXPECT_TRUE(tracks_.take(1000, For::sort));
}

TEST_F(TrackRoom, AMergeHasNoTurnWhileTheDiskFails) {
  const TrackMemory::RunPtr run = make_run(15'500);  // of 53 bytes with step and index
  ASSERT_GT(run->bytes(), 786'432u);
  tracks_.add(run, "run", false);
  EXPECT_FALSE(tracks_.take(some_bytes, For::merge));
  for (std::uint32_t sorts = 0; sorts < TrackMemory::sorts_before_merge; ++sorts)
    ASSERT_TRUE(tracks_.take(1000, For::sort));
  EXPECT_FALSE(tracks_.take(1000, For::sort));
  full_ = true;
  EXPECT_EQ(leave(), 1u) << "room is made for the merge";
  EXPECT_TRUE(tracks_.take(1000, For::sort)) << "nobody knows when the merge could begin";
  EXPECT_EQ(tracks_.held_back(), "tracks cannot leave memory: the disk is full");
  full_ = false;
  now_ += second_ns;
  EXPECT_EQ(leave(), 1u);
  EXPECT_TRUE(tracks_.take(some_bytes, For::merge));
}

TEST_F(TrackRoom, ListsOfBlocksAreChargedWhereverTheirRunsAre) {
  const TrackMemory::RunPtr run = make_run(12'000);
  const std::uint64_t list = run->blocks().size() * 56;
  ASSERT_GT(run->blocks().size(), 100u);
  EXPECT_EQ(run->list_bytes(), list);
  tracks_.add(run, "run", false);
  EXPECT_EQ(tracks_.list_bytes(), list);
  EXPECT_EQ(tracks_.memory_bytes(), run->bytes() + list);
  EXPECT_FALSE(tracks_.take((1 << 20) - run->bytes(), For::sort)) << "the list is there as well";
  EXPECT_EQ(leave(), 1u);
  EXPECT_EQ(tracks_.disk_bytes(), run->bytes());
  EXPECT_EQ(tracks_.memory_bytes(), list);
  EXPECT_TRUE(tracks_.held_back().empty());
  std::vector<TrackMemory::RunPtr> more;
  while (tracks_.list_bytes() <= 1 << 19) {
    more.push_back(make_run(12'000));
    tracks_.add(more.back(), std::to_string(more.size()), false);
    (void)tracks_.take(1 << 20, For::sort);
    leave();
  }
  EXPECT_FALSE(tracks_.take(1000, For::sort));
  EXPECT_THAT(tracks_.held_back(), HasSubstr("over half of tracks_budget=1048576"));
  EXPECT_TRUE(tracks_.take(1000, For::merge)) << "it makes one list of several";
  Effects effects;
  for (const auto& each : more) tracks_.retire(each, effects);
  more.clear();
  leave();
  EXPECT_EQ(tracks_.list_bytes(), list);
}

}  // namespace
}  // namespace offpath::sift
