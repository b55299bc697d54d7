// Objects as the mover makes and changes them: small ones, holes, bytes in place.
#include "testing/mover/mover_fixture.h"

namespace offpath::mover {
namespace {

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

// Objects may consist mostly of holes. Zeroing a gigabyte takes a tenth of a second, in which the loop would serve no
// other program.
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

}  // namespace
}  // namespace offpath::mover
