// Streams while they grow, and their ends.
#include "testing/mover/mover_fixture.h"

namespace offpath::mover {
namespace {

TEST_F(MoverTest, AStreamGrowsWhileBatchesAreUnderWay) {
  make(0);
  const std::uint64_t grown = rows * 16, usual = charge;  // it was opened for half as many rows
  send(0, 1);                                             // is pulled
  send(0, 1);                                             // waits for that
  charge += 15 * column_bytes;
  send(0, 1, grown);  // a program that did not ask first
  request(wire::EntryKind::grow_stream, wire::GrowStream{.stream = 0, .rows_max = rows * 8});
  charge = usual;
  send(0, 1);
  for (int i = 0; i < 3; ++i) {
    end_pull();
    finish();
  }
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0], "stream \"s\" (4, ): 16384 rows; the stream has rows_max 8192");
  failures.clear();
  request(wire::EntryKind::grow_stream, wire::GrowStream{.stream = 0, .rows_max = grown});
  request(wire::EntryKind::grow_stream, wire::GrowStream{.stream = 0, .rows_max = rows});
  EXPECT_EQ(answers, std::vector<std::uint64_t>({rows * 8, grown, grown})) << "fewer change nothing";
  charge += 15 * column_bytes;
  send(0, 1, grown);
  end_pull();
  finish();
  EXPECT_TRUE(failures.empty()) << failures.front();
  EXPECT_EQ(store.kept->rows, grown);
  EXPECT_EQ(store.row_keys, std::vector<std::string>({"2", "3", "6", "9"}));
  EXPECT_EQ(stored, 9u);
  EXPECT_EQ(mover->streams(0).at(0).rows_max, grown);
  request(wire::EntryKind::grow_stream, wire::GrowStream{.stream = 1, .rows_max = grown});
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0], "stream number 1 is not open");
}

TEST_F(MoverTest, TheWindowGrowsWithTheStreamAndNoFurtherThanItsShare) {
  constexpr std::uint64_t mebibyte = 1 << 20, memory = 256 * mebibyte;
  make(0, {.memory_bytes_max = memory, .window_bytes = mebibyte});
  const std::uint64_t before = mover->counters().promised_bytes;
  EXPECT_LE(before, mebibyte);
  request(wire::EntryKind::grow_stream, wire::GrowStream{.stream = 0, .rows_max = mebibyte});  // 8 MiB
  const std::uint64_t of_two = mover->counters().promised_bytes;
  EXPECT_GE(of_two, 16 * mebibyte);
  EXPECT_LE(of_two, 17 * mebibyte);
  request(wire::EntryKind::grow_stream, wire::GrowStream{.stream = 0, .rows_max = mebibyte * mebibyte});
  EXPECT_LE(mover->counters().promised_bytes, memory / 8) << "two of 8 TiB are more than there is";
  mover->on_channel_closed(channel, 0, effects);
  EXPECT_EQ(mover->counters().promised_bytes, 0u);
}

TEST_F(MoverTest, AnEndOfAStepThatIsRefusedFailsItsTicket) {
  make(0);
  store.step_outcome = fail(Error::too_large, "too many steps");
  request(wire::EntryKind::step_end, wire::StepEnd{.stream = 0, .row_key = "step7"});
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_EQ(failures[0], "stream \"s\" (step7, ): too many steps");
  EXPECT_EQ(stored, ticket);
}

TEST_F(MoverTest, AStreamThatIsClosedOrNeverOpenedLeavesItsPool) {
  make(0, {}, wire::Destination::ipc_page, wire::Compression::none);
  EXPECT_EQ(store.admitted_now, 1);
  request(wire::EntryKind::open_stream, wire::OpenStream{.stream = 1,
                                                         .destination = wire::Destination::ipc,
                                                         .rows_max = 0,
                                                         .keep = 0,
                                                         .ranks = 0,
                                                         .rank = 0,
                                                         .name = "t",
                                                         .pool = "local:/t",
                                                         .schema = encoded});
  EXPECT_EQ(failures.size(), 1u) << "rows_max is 0, which is seen after it was admitted";
  EXPECT_EQ(store.admitted_now, 1);
  mover->on_channel_closed(channel, 0, effects);
  EXPECT_EQ(store.admitted_now, 0);
}

TEST_F(MoverTest, AChannelThatEndsTakesWhatWaitsWithIt) {
  make(0);
  for (int i = 0; i < 5; ++i) send(0, 1);
  mover->on_channel_closed(channel, 0, effects);
  EXPECT_EQ(mover->counters().operations, 0u);
  EXPECT_EQ(mover->counters().promised_bytes, 0u);
  EXPECT_EQ(cache->used_bytes(), 0u);
  mover->on_transfer(pulls.front().token, {}, 0, effects);  // late, for no operation
}

TEST_F(MoverTest, AChannelThatEndsBetweenPullAndFrameLeavesNothing) {
  make(0);
  send(0, 1);
  end_pull();
  mover->on_channel_closed(channel, 0, effects);
  finish();
  EXPECT_EQ(mover->counters().operations, 0u);
  EXPECT_EQ(cache->used_bytes(), 0u);
  EXPECT_TRUE(store.row_keys.empty());
}

}  // namespace
}  // namespace offpath::mover
