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

// Keeps all frames.
class AllFrames final : public Store {
 public:
  Result<std::string> admit(const std::string& pool, uid_t, Effects&) override { return pool; }
  Result<Stored> put(const Place& place, FramePtr frame, std::uint64_t, TimeNs, Effects&) override {
    frames[place.row_key] = std::move(frame);
    return Stored::now;
  }
  Result<FramePtr> find(const std::string&, const std::string& row, const std::string&, uid_t) override {
    return frames.at(row);
  }
  Status end_step(const std::string&, const std::string&, std::uint32_t, std::uint32_t, TimeNs, Effects&) override {
    return {};
  }
  void leave(const std::string&) override {}

  std::map<std::string, FramePtr> frames;
};

TEST(SmallObjects, SeventyThousandOfOneProgramTakeTensOfMappings) {
  constexpr ChannelNumber channel = 1;
  constexpr std::uint64_t count = 70'000;
  auto cache = BufferCache::make({.buffers_max = 80, .user_buffers_max = 70});
  AllFrames store;
  Mover mover({}, cache, store);
  Effects effects;
  std::uint64_t ticket = 0, charge = 0;
  const auto ask = [&](wire::EntryKind kind, const auto& message) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    mover.on_request(channel, {++ticket, static_cast<std::uint8_t>(kind), payload}, 0, effects);
  };
  mover.on_channel_open(channel, {"test", 1, 1}, 1, 0);
  ask(wire::EntryKind::open_stream, wire::OpenStream{.stream = 0,
                                                     .destination = wire::Destination::native,
                                                     .rows_max = 0,
                                                     .keep = 0,
                                                     .ranks = 0,
                                                     .rank = 0,
                                                     .name = "s",
                                                     .pool = "local:/s",
                                                     .schema = {}});
  for (const service::Effect& effect : effects)
    if (const auto* const reply = std::get_if<service::ReplyEffect>(&effect))
      charge = std::get<wire::Opened>(reply->message).charge_base + page_bytes;
  ask(wire::EntryKind::need_credit, wire::NeedCredit{.stream = 0, .total = count * charge});
  for (std::uint64_t i = 0; i < count; ++i) {
    effects.clear();
    const std::string key = std::to_string(i);
    ask(wire::EntryKind::send,
        wire::Send{.stream = 0,
                   .charge = charge,
                   .rows = 0,
                   .row_key = key,
                   .column_key = {},
                   .nodes = {},
                   .buffers = {{.region = 1, .generation = 1, .offset = 0, .length = 8 + i % 4089}},
                   .set = 0});
    std::uint64_t token = 0;
    for (const service::Effect& effect : effects) {
      const auto* const failed = std::get_if<service::FailEffect>(&effect);
      ASSERT_EQ(failed, nullptr) << failed->failure.message;
      if (const auto* const pull = std::get_if<service::PullEffect>(&effect)) {
        token = pull->token;
        offpath::store(pull->pieces.at(0).to, i);
      }
    }
    mover.on_transfer(token, {}, 10, effects);
    mover.finish_pulled(20, effects);
  }
  ASSERT_EQ(store.frames.size(), count);
  EXPECT_EQ(cache->counters().used_buffers, 69u);
  for (const auto& [key, frame] : store.frames) {
    ASSERT_EQ(frame->bytes, 8 + std::stoull(key) % 4089);
    ASSERT_EQ(load<std::uint64_t>(frame->buffer.data()), std::stoull(key));
  }
  EXPECT_GT(mover.credit().memory_free_for(2), 0u) << "another user";
  EXPECT_TRUE(cache->take(1 << 20, 2));
}

TEST_F(MoverTest, MovesAreForStreamsOfPlainBytes) {
  using wire::Destination;
  for (const auto destination :
       {Destination::ipc, Destination::arrays, Destination::agent_serialise, Destination::serialised}) {
    failures.clear();
    make(0, {}, destination, destination == Destination::ipc ? wire::Compression::zstd : wire::Compression::none);
    jobs.clear();
    wire::Move move{.stream = 0,
                    .update = false,
                    .charge = charge,
                    .object_bytes = 100,
                    .row_key = "r",
                    .column_key = {},
                    .pieces = {}};
    move.pieces.push_back({{.region = 1, .generation = 1, .offset = 0, .length = 100}, 0});
    request(wire::EntryKind::move, move);
    ASSERT_EQ(failures.size(), 1u) << wire::destination_name(destination);
    EXPECT_NE(failures[0].find("moves need a stream with destination native"), std::string::npos) << failures[0];
    EXPECT_TRUE(pulls.empty());
    EXPECT_EQ(stored, ticket);
  }
}

// Objects may consist mostly of holes. Zeroing a gigabyte takes a tenth of a second, in which the loop would serve
// nobody else.
TEST_F(MoverTest, HolesOfAnObjectAreZeroedInAJobIfTheyAreLarge) {
  MoverOptions options;
  options.prepared_bytes_max = 0;  // no other jobs
  make(0, options, wire::Destination::native);
  constexpr std::uint64_t large = 4 << 20;
  const auto create = [&](std::uint64_t object_bytes) {
    wire::Move move{.stream = 0,
                    .update = false,
                    .charge = charge + object_bytes,
                    .object_bytes = object_bytes,
                    .row_key = "r",
                    .column_key = {},
                    .pieces = {}};
    move.pieces.push_back({{.region = 1, .generation = 1, .offset = 0, .length = 8}, 100});
    move.pieces.push_back({{.region = 1, .generation = 1, .offset = 8, .length = 8}, 4000});
    request(wire::EntryKind::move, move);
    ASSERT_TRUE(failures.empty()) << failures[0];
    std::byte* const at = pulls.back().pieces[0].to - 100;
    std::memset(at, 7, object_bytes);  // bytes of an earlier frame, and pulled bytes
    end_pull();
    finish();
  };
  const auto expect_zeros = [&](std::uint64_t object_bytes) {
    ASSERT_TRUE(store.kept);
    const Bytes bytes(store.kept->buffer.data(), object_bytes);
    for (std::uint64_t i = 0; i < object_bytes; ++i) {
      const bool pulled_there = (i >= 100 && i < 108) || (i >= 4000 && i < 4008);
      ASSERT_EQ(bytes[i], pulled_there ? std::byte{7} : std::byte{0}) << i;
    }
  };
  create(4096);
  EXPECT_TRUE(jobs.empty());
  expect_zeros(4096);
  store.kept = nullptr;
  create(large);
  EXPECT_FALSE(store.kept) << "a job is to zero it first";
  ASSERT_EQ(jobs.size(), 1u);
  run_job();
  expect_zeros(large);
}

// A reader may keep a buffer mapped forever once it was passed on.
TEST_F(MoverTest, ABufferIsReadIntoDirectlyUntilItHasBeenShared) {
  make(0);
  const auto unshared = [&] {
    send(0, 1);
    const service::PullEffect pull = end_pull();
    finish();
    return std::ranges::all_of(pull.pieces, &link::ReadPiece::unshared);
  };
  EXPECT_TRUE(unshared());
  const std::byte* const first = store.kept->buffer.data();
  EXPECT_TRUE(unshared());
  EXPECT_TRUE(unshared()) << "used again, and never shared";
  ASSERT_EQ(store.kept->buffer.data(), first);
  EXPECT_GE(store.kept->buffer.share(), 0);
  EXPECT_TRUE(unshared());
  EXPECT_FALSE(unshared());
  ASSERT_EQ(store.kept->buffer.data(), first);
}

TEST_F(MoverTest, OnlyWhatACreateOfBytesMadeIsChangedInPlace) {
  make(0);
  wire::OpenStream open{.stream = 1,
                        .destination = wire::Destination::native,
                        .rows_max = 0,
                        .keep = 1,
                        .ranks = 0,
                        .rank = 0,
                        .name = "bytes",
                        .pool = "local:/s",
                        .schema = {}};
  request(wire::EntryKind::open_stream, open);
  open.stream = 2;
  open.destination = wire::Destination::serialised;
  open.name = "serialised";
  request(wire::EntryKind::open_stream, open);
  charge = 1 << 16;  // enough for each of them
  const auto move = [&](bool update, std::string_view key) {
    wire::Move made{.stream = 1,
                    .update = update,
                    .charge = charge,
                    .object_bytes = 100,
                    .row_key = key,
                    .column_key = {},
                    .pieces = {}};
    made.pieces.push_back({{.region = 1, .generation = 1, .offset = 0, .length = 8}, 16});
    request(wire::EntryKind::move, made);
  };
  const auto put = [&](std::uint32_t stream, std::string_view key) {
    wire::Send made{.stream = stream,
                    .charge = charge,
                    .rows = rows,
                    .row_key = key,
                    .column_key = {},
                    .nodes = {},
                    .buffers = {},
                    .set = 0};
    made.buffers.push_back({.region = 1, .generation = 1, .offset = 0, .length = column_bytes});
    request(wire::EntryKind::send, made);
    end_pull();
    finish();
  };
  const auto refused = [&](std::string_view key) {
    failures.clear();
    move(true, key);
    ASSERT_EQ(failures.size(), 1u) << "the mover is about to write into object " << key;
    EXPECT_NE(failures[0].find("was not made by a create of bytes"), std::string::npos) << failures[0];
    EXPECT_TRUE(pulls.empty());
  };
  put(0, "laid out as Arrow");
  ASSERT_TRUE(store.kept->arrow);
  ASSERT_NO_FATAL_FAILURE(refused("laid out as Arrow"));
  put(2, "serialised");
  ASSERT_TRUE(store.kept->arrow);
  ASSERT_NO_FATAL_FAILURE(refused("serialised"));
  put(1, "sent");
  ASSERT_NO_FATAL_FAILURE(refused("sent"));
  move(false, "created");
  end_pull();
  finish();
  failures.clear();
  move(true, "created");
  EXPECT_TRUE(failures.empty()) << failures[0];
  const service::PullEffect update = end_pull();
  EXPECT_EQ(update.pieces.at(0).to, store.kept->buffer.data() + 16);
  EXPECT_FALSE(update.pieces.at(0).unshared) << "it is published";
  // Another put under the same keys makes another object.
  const FramePtr before = store.kept;
  put(2, "created");
  EXPECT_NE(store.kept, before);
  ASSERT_NO_FATAL_FAILURE(refused("created"));
}

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
