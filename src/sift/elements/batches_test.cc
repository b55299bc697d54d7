#include "sift/elements/batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/sift/sift_parts.h"

namespace offpath::sift {
namespace {

TEST(Batches, ASplitTakesWhatTheNextStageCanAdmitInOnePart) {
  SiftParts parts("sift:/t?key=id&fanout=2&threshold=4KiB&budget=512KiB");
  Element& element = parts.elements[{1, 0}];
  EXPECT_FALSE(Batches::is_ready(element));
  for (int i = 0; i < 4; ++i) parts.give(element, 1000);
  const std::uint64_t bytes = element.bytes;
  ASSERT_TRUE(Batches::is_ready(element));
  const auto batch = parts.batches.take(element);
  ASSERT_LT(batch->held.size(), 4u);
  std::uint64_t rows = 0, charge = 0;
  for (const HeldPiece& piece : batch->held) {
    rows += piece.piece.view.rows;
    charge += piece.charge;
  }
  EXPECT_EQ(batch->charge, charge);
  const std::uint64_t frame = parts.form.tracks->rows->frame_bytes(rows, 0) + parts.form.overhead_bytes;
  EXPECT_TRUE(parts.charges.check(parts.charges.of_piece(frame, rows)));
  EXPECT_EQ(element.pieces.size(), 4 - batch->held.size());
  Batches::put_back(element, *batch);
  EXPECT_EQ(element.bytes, bytes);
  ASSERT_EQ(element.pieces.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(element.pieces[i].order, i + 1) << "in their order";
}

TEST(Batches, OfALargePieceAtLeastItselfIsTaken) {
  SiftParts parts("sift:/t?key=id&fanout=2&threshold=4KiB&budget=512KiB");
  Element& element = parts.elements[{1, 0}];
  parts.give(element, 4000);
  EXPECT_EQ(parts.batches.take(element)->held.size(), 1u);
  EXPECT_FALSE(Batches::is_ready(element));
}

TEST(Batches, ASortTakesAsMuchAsARunMayHaveAndSaysHowMuchItIs) {
  SiftParts parts("sift:/t?key=id&fanout=2&threshold=4KiB&budget=4MiB&spill=on&tracks_budget=1MiB");
  Element& element = parts.elements[{2, 0}];
  for (int step = 0; step < 6; ++step) parts.give(element, 1000, step);
  const std::uint64_t bytes = parts.batches.next_run_bytes(element);
  const auto batch = parts.batches.take(element);
  ASSERT_LT(batch->held.size(), 6u);
  const auto run =
      TrackRun::sort(parts.form.tracks->rows, batch->pieces, parts.memory, nullptr, parts.track_memory.block_bytes());
  EXPECT_LE((*run)->bytes() + (*run)->list_bytes(), bytes);
  EXPECT_LE((*run)->bytes(), parts.track_memory.run_bytes_max());
}

// Its pieces in the order of its record, without those that are lost.
TEST(Batches, ASplitOfBeforeARestartComesFirstAndAsItWas) {
  SiftParts parts("sift:/t?key=id&fanout=2&threshold=4KiB&budget=4MiB", {"a"}, true);
  Element& element = parts.elements[{1, 0}];
  for (int i = 0; i < 4; ++i) parts.give(element, 10);
  Replay replay;
  replay.number = 5;
  for (const std::uint64_t sequence : {3u, 1u, 2u}) replay.pieces.push_back({0, 1, sequence});
  for (int i = 0; i < 3; ++i) {
    if (i != 1) replay.here.emplace(element.pieces.front().key, std::move(element.pieces.front()));
    element.pieces.pop_front();
  }
  replay.missing = 1;
  element.replays.push_back(std::move(replay));
  EXPECT_FALSE(Batches::is_ready(element)) << "a piece is missing";
  element.replays.front().missing = 0;
  ASSERT_TRUE(Batches::is_ready(element));
  const auto batch = parts.batches.take(element);
  EXPECT_TRUE(batch->again);
  EXPECT_EQ(batch->number, 5u);
  ASSERT_EQ(batch->held.size(), 2u);
  EXPECT_EQ(batch->held[0].key.sequence, 3u);
  EXPECT_EQ(batch->held[1].key.sequence, 1u);
  Batches::put_back(element, *batch);
  EXPECT_EQ(element.replays.front().here.size(), 2u);
  EXPECT_EQ(element.pieces.size(), 1u);
}

}  // namespace
}  // namespace offpath::sift
