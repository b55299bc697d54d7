// Frames that a job compresses between pull and store.
#include "testing/mover/mover_fixture.h"

namespace offpath::mover {
namespace {

class CompressingMover : public MoverTest {
 protected:
  void make_compressing(std::uint64_t pull_ahead_bytes = 0) {
    make(pull_ahead_bytes, {}, wire::Destination::ipc_page, wire::Compression::zstd);
    jobs.clear();  // buffers made ahead
  }
  // Completes the next pull with these bytes.
  void bring(std::uint8_t first, std::uint32_t step) {
    const link::ReadPiece& piece = pulls.front().pieces.front();
    std::uint32_t value = first;
    for (std::uint64_t i = 0; i < column_bytes; ++i, value = value * 1664525u + step)
      piece.to[i] = static_cast<std::byte>(value >> 24);
  }
};

TEST_F(CompressingMover, TheProgramHasItsArraysBeforeTheJobBegins) {
  make_compressing();
  send(0, 1);
  bring(0, 0);
  end_pull();
  finish();
  EXPECT_EQ(pulled, ticket);
  EXPECT_EQ(stored, 0u);
  ASSERT_EQ(jobs.size(), 1u);
  run_job();
  EXPECT_EQ(stored, ticket);
  const Frame& kept = *store.kept;
  EXPECT_TRUE(kept.arrow);
  EXPECT_EQ(kept.rows, rows);
  EXPECT_EQ(kept.bytes, kept.buffer.length());
  EXPECT_LT(kept.bytes, 1024u);
  const auto view = frame::parse_frame(kept.buffer.bytes());
  ASSERT_TRUE(view) << view.error().message;
  EXPECT_TRUE(view->messages.back().compressed);
  EXPECT_EQ(cache->used_bytes(),
            page_bytes);  // its pull buffer and the scratch memory are back in the cache
  EXPECT_EQ(mover->counters().packed_frames, 1u);
  EXPECT_EQ(mover->counters().packed_bytes, kept.bytes);
  EXPECT_GT(mover->counters().plain_bytes, column_bytes);
  EXPECT_EQ(mover->counters().pack_ns, 100u);
}

TEST_F(CompressingMover, AFrameThatBecomesNoSmallerStaysAsItIs) {
  make_compressing();
  send(0, 1);
  bring(1, 1013904223);
  end_pull();
  finish();
  run_job();
  const Frame& kept = *store.kept;
  EXPECT_EQ(kept.bytes, mover->counters().plain_bytes);
  EXPECT_EQ(mover->counters().packed_bytes, mover->counters().plain_bytes);
  const auto view = frame::parse_frame(kept.buffer.bytes());
  ASSERT_TRUE(view);
  EXPECT_FALSE(view->messages.back().compressed);
  EXPECT_EQ(view->messages.back().body % page_bytes, 0u);
}

TEST_F(CompressingMover, JobsThatEndInAnotherOrderStoreInTheirs) {
  make_compressing(8 * column_bytes);
  for (int i = 0; i < 3; ++i) send(1, i == 0 ? std::optional<wire::RegionId>(1) : std::nullopt);
  for (int i = 0; i < 3; ++i) {
    bring(static_cast<std::uint8_t>(i), 0);
    end_pull();
  }
  finish();
  ASSERT_EQ(jobs.size(), 3u);
  EXPECT_EQ(pulled, ticket);
  std::swap(jobs[0], jobs[2]);
  run_job();
  run_job();
  EXPECT_EQ(stored, 0u);
  run_job();
  EXPECT_EQ(stored, ticket);
  EXPECT_EQ(store.row_keys.size(), 3u);
}

TEST_F(CompressingMover, AChannelThatEndsDuringTheJobLeavesNothing) {
  make_compressing();
  send(0, 1);
  end_pull();
  finish();
  mover->on_channel_closed(channel, 0, effects);
  run_job();
  EXPECT_EQ(mover->counters().operations, 0u);
  EXPECT_EQ(cache->used_bytes(), 0u);
  EXPECT_TRUE(store.row_keys.empty());
}

TEST_F(CompressingMover, OtherDestinationsAreRefusedByName) {
  using wire::Destination;
  for (const auto destination : {Destination::native, Destination::serialised, Destination::arrays,
                                 Destination::record_batch, Destination::c_abi, Destination::agent_serialise}) {
    failures.clear();
    make(0, {}, destination, wire::Compression::lz4);
    ASSERT_EQ(failures.size(), 1u);
    EXPECT_EQ(
        failures[0],
        fmt::format("stream \"s\": compression lz4 with destination {}; frames of ipc and ipc-page are compressed",
                    wire::destination_name(destination)));
    EXPECT_EQ(mover->counters().streams_open, 0u);
  }
  failures.clear();
  make(0, {}, Destination::ipc, wire::Compression::lz4);
  EXPECT_TRUE(failures.empty());
}

}  // namespace
}  // namespace offpath::mover
