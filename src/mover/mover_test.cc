// The mover alone: requests in, effects out.
#include "testing/mover/mover_fixture.h"

namespace offpath::mover {
namespace {

TEST_F(MoverTest, RequestsWaitForThePullBeforeThem) {
  make(0);
  for (int i = 0; i < 5; ++i) send(0, 1);
  ASSERT_EQ(pulls.size(), 1u);
  const std::uint64_t one_frame = cache->used_bytes();
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(pulls.size(), 1u) << i;
    end_pull();
    EXPECT_LE(cache->used_bytes(), 2 * one_frame);  // the kept frame, and the one being pulled
  }
  finish();
  EXPECT_EQ(pulled, ticket);
  EXPECT_EQ(stored, ticket);
  EXPECT_EQ(store.row_keys, (std::vector<std::string>{"2", "3", "4", "5", "6"}));
  EXPECT_EQ(mover->counters().operations, 0u);
}

TEST_F(MoverTest, AStreamIsAdmittedOnceAndPutsByTheNameItWasTold) {
  make(0);
  for (int i = 0; i < 3; ++i) {
    send(0, 1);
    end_pull();
  }
  finish();
  EXPECT_EQ(store.row_keys.size(), 3u);
  EXPECT_EQ(store.admitted, 1);
  EXPECT_EQ(store.pools, std::set<std::string>{"local:/s"});
}

TEST_F(MoverTest, TwoBuffersServeAStreamThatKeepsOneFrame) {
  make(0);
  std::set<const std::byte*> places;
  for (int i = 0; i < 20; ++i) send(0, 1);
  for (int i = 0; i < 20; ++i) places.insert(end_pull().pieces.front().to);
  EXPECT_EQ(places.size(), 2u);
}

TEST_F(MoverTest, ALinkThatCompletesLaterHasSeveralUnderWay) {
  make(3 * column_bytes);
  for (int i = 0; i < 8; ++i) send(0, 1);
  EXPECT_EQ(pulls.size(), 3u);
  end_pull();
  EXPECT_EQ(pulls.size(), 3u);
}

TEST_F(MoverTest, TheProgramHasItsArraysBeforeTheFrameIsFinished) {
  make(0);
  send(0, 1);
  end_pull();
  EXPECT_EQ(pulled, ticket);
  EXPECT_EQ(stored, 0u);
  finish();
  EXPECT_EQ(stored, ticket);
}

TEST_F(MoverTest, WorkThatIsDoneAtOnceTakesTimeWithinItsRound) {
  static TimeNs clock = 0;
  clock = 0;
  make(0, {.clock = [] { return clock; }});
  send(0, 1);
  clock = 40;
  end_pull();
  EXPECT_EQ(mover->counters().pull_ns, 40u);
  clock = 5000;
  finish();
  EXPECT_EQ(stored, ticket);
  EXPECT_EQ(mover->counters().finish_ns, 5000u - 40);
}

TEST_F(MoverTest, TooManyWaitingRequestsAreSaidToBeFull) {
  make(0, {.waiting_bytes_max = 8192});
  send(0, 1);
  EXPECT_FALSE(mover->is_full(channel));
  int waiting = 0;
  for (; !mover->is_full(channel) && waiting < 100; ++waiting) send(0, 1);
  EXPECT_GT(waiting, 2);
  EXPECT_LE(waiting, 8);
  EXPECT_FALSE(mover->is_full(channel + 1));
  while (!pulls.empty()) end_pull();
  EXPECT_FALSE(mover->is_full(channel));
}

TEST_F(MoverTest, SetsMeanWhatTheyMeantWhenTheyWereNamed) {
  make(0);
  send(0, 9);  // under way while the others wait
  send(1, 5);  // set 1 is region 5
  send(1, std::nullopt);
  send(1, 6);  // from now on it is region 6
  send(2, 7);
  send(1, std::nullopt);
  send(2, std::nullopt);
  std::vector<wire::RegionId> regions;
  for (int i = 0; i < 7; ++i) regions.push_back(end_pull().pieces.front().region);
  EXPECT_EQ(regions, (std::vector<wire::RegionId>{9, 5, 5, 6, 7, 6, 7}));
  EXPECT_TRUE(failures.empty());
}

TEST_F(MoverTest, SetsThatWereNeverNamedOrHaveOtherRowsFail) {
  make(0);
  send(3, std::nullopt);
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_NE(failures[0].find("buffer set 3 is unknown"), std::string::npos) << failures[0];
  send(3, 5);
  send(3, std::nullopt, 7);
  ASSERT_EQ(failures.size(), 2u);
  EXPECT_NE(failures[1].find("7 rows; buffer set 3 has 1024"), std::string::npos) << failures[1];
  end_pull();
  finish();
  EXPECT_EQ(stored, ticket);
}

TEST_F(MoverTest, SetsServeBytesAsTheyAreToo) {
  make(0, {}, wire::Destination::serialised);
  send(1, 5);
  send(1, std::nullopt);
  EXPECT_EQ(end_pull().pieces.front().region, 5u);
  const service::PullEffect again = end_pull();
  ASSERT_EQ(again.pieces.size(), 1u);
  EXPECT_EQ(again.pieces.front().region, 5u);
  EXPECT_TRUE(failures.empty());
}

TEST_F(MoverTest, SetsOfAChannelHaveABound) {
  make(0);
  const auto name_large_sets = [&] {
    for (std::uint32_t set = 1; set <= wire::sets_max; ++set) {
      wire::Send send{.stream = 0,
                      .charge = 0,
                      .rows = rows,
                      .row_key = "r",
                      .column_key = {},
                      .nodes = {},
                      .buffers = {},
                      .set = set};
      send.buffers.resize(wire::set_buffers_max);
      request(wire::EntryKind::send, send);
    }
  };
  // A renamed set replaces the old one: one stream's sets stay within the bound, however often they are renamed.
  constexpr std::uint64_t of_a_stream = wire::sets_max * wire::set_bytes(wire::set_buffers_max);
  static_assert(of_a_stream < wire::sets_bytes_max && 4 * of_a_stream > wire::sets_bytes_max);
  for (int i = 0; i < 8; ++i) name_large_sets();
  for (const std::string& failure : failures) EXPECT_EQ(failure.find("buffer sets"), std::string::npos) << failure;
  // The sets of several streams together exceed it.
  failures.clear();
  for (std::uint32_t stream = 1; stream < 4; ++stream) {
    const std::string name = std::to_string(stream);
    wire::OpenStream open{.stream = stream,
                          .destination = wire::Destination::native,
                          .rows_max = rows,
                          .keep = 1,
                          .ranks = 0,
                          .rank = 0,
                          .name = name,
                          .pool = "local:/s",
                          .schema = {}};
    request(wire::EntryKind::open_stream, open);
    for (std::uint32_t set = 1; set <= wire::sets_max; ++set) {
      wire::Send send{.stream = stream,
                      .charge = 0,
                      .rows = 1,
                      .row_key = "r",
                      .column_key = {},
                      .nodes = {},
                      .buffers = {},
                      .set = set};
      send.buffers.resize(wire::set_buffers_max);
      request(wire::EntryKind::send, send);
    }
  }
  EXPECT_TRUE(std::ranges::any_of(failures, [](const std::string& failure) {
    return failure.find("buffer sets of") != std::string::npos &&
           failure.find("at most 2097152 are allowed") != std::string::npos;
  }));
}

TEST_F(MoverTest, OneJobAtATimeGivesMemoryToTheKernel) {
  constexpr std::uint64_t large = 4 << 20;
  cache = BufferCache::make({.cached_bytes_max = large});
  make(0);
  jobs.clear();
  const auto discard = [&] {
    const Buffer first = cache->take(large, 1).value(), second = cache->take(large, 1).value();
  };
  mover->drop_buffers(effects);
  EXPECT_TRUE(effects.empty());
  discard();
  mover->drop_buffers(effects);
  mover->drop_buffers(effects);
  take_effects();
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_TRUE(jobs[0].run());
  EXPECT_EQ(cache->leaving_bytes(), 0u);
  mover->on_job(jobs[0].token, {}, 0, effects);
  discard();
  mover->drop_buffers(effects);
  take_effects();
  EXPECT_EQ(jobs.size(), 2u);
}

// Few buffers, but enough memory.
TEST_F(MoverTest, AUserWithHisShareOfFramesGetsNoCreditAndOthersDo) {
  constexpr ChannelNumber of_other = 2;
  constexpr uid_t other_user = 7;
  constexpr std::uint64_t all = 16, share = 14;
  cache = BufferCache::make({.cached_bytes_max = 0, .buffers_max = all, .user_buffers_max = share});
  make(0);
  mover->on_channel_open(of_other, {"other", other_user, 2}, 4, 0);
  std::vector<Buffer> kept;
  for (std::uint64_t i = 0; i < share; ++i) kept.push_back(cache->take(8192, 0).value());
  EXPECT_EQ(mover->credit().memory_free_for(0), 0u);
  other = 0;
  request(wire::EntryKind::need_credit, wire::NeedCredit{.stream = 0, .total = 6ull << 30});
  EXPECT_EQ(other, 0u) << "credit is held back";
  EXPECT_GT(mover->credit().memory_lacking(), 0u);

  const auto ask = [&](wire::EntryKind kind, const auto& message) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    mover->on_request(of_other, {++ticket, static_cast<std::uint8_t>(kind), payload}, 0, effects);
    take_effects();
  };
  ask(wire::EntryKind::open_stream, wire::OpenStream{.stream = 0,
                                                     .destination = wire::Destination::ipc_page,
                                                     .rows_max = rows,
                                                     .keep = 1,
                                                     .ranks = 0,
                                                     .rank = 0,
                                                     .name = "s",
                                                     .pool = "local:/s",
                                                     .schema = encoded});
  EXPECT_GE(other, charge) << "he has credit for a batch";
  wire::Send send{.stream = 0,
                  .charge = charge,
                  .rows = rows,
                  .row_key = "his",
                  .column_key = {},
                  .nodes = {},
                  .buffers = {{.region = 1, .generation = 1, .offset = 0, .length = column_bytes}},
                  .set = 0};
  ask(wire::EntryKind::send, send);
  ASSERT_EQ(pulls.size(), 1u);
  mover->on_transfer(pulls[0].token, {}, 10, effects);
  take_effects();
  finish();
  ASSERT_TRUE(failures.empty()) << failures[0];
  EXPECT_EQ(stored, ticket);
  EXPECT_EQ(cache->counters().used_buffers, share + 1);

  other = 0;
  kept.clear();
  mover->on_memory_freed(0, effects);
  take_effects();
  EXPECT_EQ(other, 0u) << "they count until they are gone";
  cache->drop_leaving();
  mover->on_memory_freed(0, effects);
  take_effects();
  EXPECT_EQ(other, 6ull << 30);
}

}  // namespace
}  // namespace offpath::mover
