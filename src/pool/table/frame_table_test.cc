#include "pool/table/frame_table.h"
#include "testing/cpu_time.h"
#include "wire/limits.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/pool_messages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace offpath::pool {
namespace {

constexpr uid_t owner = 1000, other = 1001, root = 0;
constexpr ChannelNumber reader = 1, stranger = 2;

class FrameTableTest : public ::testing::Test {
 protected:
  FrameTableTest() {
    table_.on_channel_open(reader, owner);
    table_.on_channel_open(stranger, other);
  }

  FramePtr frame(std::uint64_t bytes) {
    auto made = std::make_shared<service::Frame>();
    made->buffer = cache_->take(bytes, owner).value();
    made->bytes = bytes;
    made->rows = bytes / 8;
    return made;
  }
  void put(const std::string& row, const std::string& column, std::uint64_t bytes = 64, std::uint64_t keep = 0,
           bool hidden = false) {
    ASSERT_TRUE(table_.put({"local:/p", row, column, owner, keep, hidden}, frame(bytes), 0, effects_));
  }
  template <class Message>
  void ask(wire::EntryKind kind, const Message& message, ChannelNumber channel = reader, TimeNs now = 0) {
    payload_.clear();
    wire::encode(message, payload_);
    table_.on_request(channel, {++ticket_, static_cast<std::uint8_t>(kind), payload_}, now, effects_);
  }
  template <class Effect>
  const Effect* only() {
    if (effects_.size() != 1) return nullptr;
    return std::get_if<Effect>(&effects_.front());
  }
  std::vector<std::string> rows(const std::string& row_glob, const std::string& column_glob) {
    effects_.clear();
    ask(wire::EntryKind::pool_list, wire::PoolList{"local:/p", row_glob, column_glob, 0});
    std::vector<std::string> found;
    if (const auto* listed = only<service::ListedEffect>())
      for (const auto& entry : listed->message.entries) found.emplace_back(entry.row_key);
    return found;
  }

  std::shared_ptr<service::BufferCache> cache_ = service::BufferCache::make({});
  FrameTable table_{FrameTable::Limits{}};
  Effects effects_;
  std::vector<std::byte> payload_;
  std::uint64_t ticket_ = 0;
};

using Strings = std::vector<std::string>;

TEST_F(FrameTableTest, WhatCannotBeHandedOverIsPushedFromItsLeaseThoughItWasDropped) {
  put("a", "b", 8000);
  ask(wire::EntryKind::pool_get, wire::PoolGet{"local:/p", "a", "b", 0});
  ASSERT_NE(only<service::HandOverEffect>(), nullptr);
  const std::uint64_t lease = only<service::HandOverEffect>()->got.lease;
  effects_.clear();
  ask(wire::EntryKind::pool_drop, wire::PoolDrop{"local:/p", "*", "*"});
  effects_.clear();
  ask(wire::EntryKind::push_lease, wire::PushLease{lease, 3});
  ASSERT_NE(only<service::FailEffect>(), nullptr) << "no segment";
  effects_.clear();
  ask(wire::EntryKind::push_lease, wire::PushLease{lease, wire::segment_flag | 3});
  const auto* const push = only<service::PushEffect>();
  ASSERT_NE(push, nullptr);
  EXPECT_EQ(push->pieces.at(0).length, 8000u);
  EXPECT_EQ(table_.counters().leases, 0u);
  const std::uint64_t token = push->token;
  effects_.clear();
  table_.on_transfer(token, {}, effects_);
  const auto* const reply = only<service::ReplyEffect>();
  ASSERT_NE(reply, nullptr);
  EXPECT_EQ(std::get<wire::Got>(reply->message).how, wire::Got::How::pushed);
  effects_.clear();
  ask(wire::EntryKind::push_lease, wire::PushLease{lease, wire::segment_flag | 3});
  ASSERT_NE(only<service::FailEffect>(), nullptr) << "the lease is over";
}

TEST_F(FrameTableTest, GetHandsOverWhatIsThereAndLeasesIt) {
  put("step0", "rank0", 8000);
  ask(wire::EntryKind::pool_get, wire::PoolGet{"local:/p", "step0", "rank0", 0});
  const auto* over = only<service::HandOverEffect>();
  ASSERT_NE(over, nullptr);
  EXPECT_EQ(over->got.how, wire::Got::How::descriptor);
  EXPECT_EQ(over->got.length, 8000u);
  EXPECT_EQ(over->got.rows, 1000u);
  EXPECT_EQ(table_.counters().leases, 1u);
  const std::uint64_t lease = over->got.lease;
  effects_.clear();
  ask(wire::EntryKind::release, wire::Release{lease});
  EXPECT_EQ(table_.counters().leases, 0u);
}

TEST_F(FrameTableTest, ASmallObjectComesInItsAnswerAndNeedsNoLease) {
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{8}, std::uint64_t{wire::enclosed_bytes_max}}) {
    effects_.clear();
    put("small", std::to_string(bytes), bytes);
    ask(wire::EntryKind::pool_get, wire::PoolGet{"local:/p", "small", std::to_string(bytes), 0});
    const auto* over = only<service::HandOverEffect>();
    ASSERT_NE(over, nullptr);
    EXPECT_EQ(over->got.how, wire::Got::How::enclosed);
    EXPECT_EQ(over->got.length, bytes);
    EXPECT_EQ(over->frame->bytes, bytes) << "which has the bytes until the answer is written";
  }
  EXPECT_EQ(table_.counters().leases, 0u);
}

TEST_F(FrameTableTest, ALeasedFrameOutlivesItsDrop) {
  put("a", "b", 4096);
  ask(wire::EntryKind::pool_get, wire::PoolGet{"local:/p", "a", "b", 0});
  effects_.clear();
  ask(wire::EntryKind::pool_drop, wire::PoolDrop{"local:/p", "", ""});
  EXPECT_EQ(std::get<wire::Done>(only<service::ReplyEffect>()->message).value, 1u);
  EXPECT_EQ(cache_->used_bytes(), 4096u) << "the reader still maps it";
  table_.on_channel_closed(reader);
  EXPECT_EQ(cache_->used_bytes(), 0u);
}

TEST_F(FrameTableTest, AGetWaitsForItsObject) {
  ask(wire::EntryKind::pool_get, wire::PoolGet{"local:/p", "later", "c", second_ns}, reader, 100);
  EXPECT_TRUE(effects_.empty());
  EXPECT_EQ(table_.next_deadline(), 100 + second_ns);
  put("other", "c");
  EXPECT_TRUE(effects_.empty());
  put("later", "c");
  EXPECT_NE(only<service::HandOverEffect>(), nullptr);
  EXPECT_EQ(table_.next_deadline(), never);
}

TEST_F(FrameTableTest, AGetThatWaitedInVainSaysWhatIsMissing) {
  put("step1", "rank0", 64, 0, true);
  EXPECT_TRUE(table_.end_step("local:/p", "step1", 0, 2, 0, effects_));
  ask(wire::EntryKind::pool_get, wire::PoolGet{"local:/p", "step1", "rank0", second_ns});
  table_.on_time(second_ns - 1, effects_);
  EXPECT_TRUE(effects_.empty());
  table_.on_time(second_ns, effects_);
  const auto* failed = only<service::FailEffect>();
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(failed->failure.code, Error::timeout);
  EXPECT_EQ(failed->failure.message, "pool \"local:/p\": 1 of 2 ranks have ended step \"step1\"");
}

TEST_F(FrameTableTest, AStepShowsWhenItsLastRankHasEndedIt) {
  put("s", "r0", 64, 0, true);
  put("s", "r1", 64, 0, true);
  EXPECT_EQ(rows("", ""), Strings{});
  EXPECT_TRUE(table_.end_step("local:/p", "s", 0, 2, 0, effects_));
  EXPECT_TRUE(table_.end_step("local:/p", "s", 0, 2, 0, effects_));  // given twice, counted once
  EXPECT_EQ(rows("", ""), Strings{});
  EXPECT_TRUE(table_.end_step("local:/p", "s", 1, 2, 0, effects_));
  EXPECT_EQ(rows("", ""), (Strings{"s", "s"}));
}

TEST_F(FrameTableTest, ListIsInOrderOfStoringAndTakesPatterns) {
  put("step2", "a");
  put("step1", "a");
  put("step1", "b");
  EXPECT_EQ(rows("", ""), (Strings{"step2", "step1", "step1"}));
  EXPECT_EQ(rows("step1", "b"), Strings{"step1"});
  EXPECT_EQ(rows("step[3-9]", ""), Strings{});
}

TEST_F(FrameTableTest, ALongListComesInPieces) {
  for (int i = 0; i < 2000; ++i) put("row" + std::to_string(i), "column");
  std::uint64_t after = 0, seen = 0;
  for (bool more = true; more;) {
    effects_.clear();
    ask(wire::EntryKind::pool_list, wire::PoolList{"local:/p", "", "", after});
    const auto* listed = only<service::ListedEffect>();
    ASSERT_NE(listed, nullptr);
    std::vector<std::byte> bytes;
    wire::encode(listed->message, bytes);
    EXPECT_LE(bytes.size(), wire::entry_bytes_max);
    seen += listed->message.entries.size();
    after = listed->message.entries.back().sequence;
    more = listed->message.more;
  }
  EXPECT_EQ(seen, 2000u);
}

TEST_F(FrameTableTest, APageOfAListHasOneObjectWhateverItsKeys) {
  const std::string column(wire::key_bytes_max, 'c');
  for (char row : {'a', 'b', 'c'}) put(std::string(wire::key_bytes_max, row), column);
  std::uint64_t after = 0;
  for (char row : {'a', 'b', 'c'}) {
    effects_.clear();
    ask(wire::EntryKind::pool_list, wire::PoolList{"local:/p", "", "", after});
    const auto* listed = only<service::ListedEffect>();
    ASSERT_NE(listed, nullptr);
    ASSERT_EQ(listed->message.entries.size(), 1u);
    EXPECT_EQ(listed->message.entries[0].row_key.front(), row);
    EXPECT_EQ(listed->message.more, row != 'c');
    after = listed->message.entries[0].sequence;
  }
}

TEST_F(FrameTableTest, KeysOfObjectsTakeNoMoreThanTheirMemory) {
  FrameTable table({.key_bytes_max = 1000});
  const auto put_into = [&](char row) {
    return table.put({"local:/p", std::string(300, row), "c", owner, 0, false}, frame(8), 0, effects_);
  };
  for (char row : {'a', 'b', 'c'}) EXPECT_TRUE(put_into(row));
  EXPECT_EQ(table.counters().key_bytes, 903u);
  const Status refused = put_into('d');
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Error::would_block) << "so the put waits";
  EXPECT_EQ(refused.error().message, "keys of objects have 903 bytes here, at most 1000 are allowed");
  ASSERT_TRUE(table.drop("local:/p", owner, "a*", "*"));
  EXPECT_TRUE(put_into('d'));
}

TEST_F(FrameTableTest, KeysOfRequestsThatWaitAreBounded) {
  FrameTable table({.waiting_key_bytes_max = 10'000});
  const auto want = [&](std::size_t length) {
    effects_.clear();
    table.get({.channel = reader,
               .ticket = ++ticket_,
               .user = owner,
               .pool = "local:/p",
               .keys = {std::string(length, 'k'), "c"},
               .wait_ns = second_ns},
              effects_);
    const auto* const failed = only<service::FailEffect>();
    return failed != nullptr ? failed->failure.message : std::string("waits");
  };
  EXPECT_EQ(want(6000), "waits");
  EXPECT_EQ(want(6000), "requests that wait for objects would have keys of 12002 bytes, at most 10000 are allowed");
  EXPECT_EQ(want(100), "waits") << "short ones are bounded by their number";
}

// Rounds of the loop and puts take as long with tens of thousands of waiting gets, which one user may have, as with a
// few.
TEST_F(FrameTableTest, WhoWaitsSlowsNobodyDown) {
  const auto want = [&](int row) {
    table_.get({.channel = reader,
                .ticket = ++ticket_,
                .user = owner,
                .pool = "local:/p",
                .keys = {std::to_string(row), "c"},
                .wait_ns = second_ns,
                .deadline = second_ns + row},
               effects_);
  };
  std::vector<TimeNs> took;
  const auto rounds_take = [&] {
    took.push_back(least_cpu_ns([&] {
      for (int i = 0; i < 100; ++i) {
        ASSERT_EQ(table_.next_deadline(), second_ns) << "the first one's";
        put("other" + std::to_string(i % 10), "c", 64, 2);
      }
    }));
  };
  for (int row = 0; row < 10; ++row) want(row);
  rounds_take();
  for (int row = 10; row < 60'000; ++row) want(row);
  rounds_take();
  EXPECT_EQ(table_.counters().waiting, 60'000u);
  EXPECT_LT(took[1], 20 * took[0]) << "of 100 rounds, with 60,000 that wait and with 10";
  effects_.clear();
  table_.on_time(second_ns + 99, effects_);
  EXPECT_EQ(effects_.size(), 100u);
  EXPECT_EQ(table_.next_deadline(), second_ns + 100);
  effects_.clear();
  want(500);
  put("500", "c", 64, 2);
  EXPECT_EQ(table_.counters().waiting, 59'899u) << "two waited for this one, in a pool that is theirs";
  table_.on_channel_closed(reader);
  EXPECT_EQ(table_.counters().waiting, 0u);
  EXPECT_EQ(table_.next_deadline(), never);
}

TEST_F(FrameTableTest, KeepLetsTheOldestGo) {
  for (int i = 0; i < 5; ++i) put("row" + std::to_string(i), "c", 4096, 2);
  EXPECT_EQ(rows("", ""), (Strings{"row3", "row4"}));
  EXPECT_EQ(cache_->used_bytes(), 2 * 4096u);
}

TEST_F(FrameTableTest, AStepThatIsNotOverIsNeverPartOfWhatLeaves) {
  for (const char* step : {"s0", "s1"})
    for (const char* rank : {"r0", "r1"}) put(step, rank, 4096, 2, true);
  EXPECT_EQ(table_.counters().frames, 4u) << "hidden frames are not counted by keep";
  for (const char* step : {"s0", "s1"})
    for (std::uint32_t rank : {0u, 1u}) EXPECT_TRUE(table_.end_step("local:/p", step, rank, 2, 0, effects_));
  EXPECT_EQ(rows("", ""), (Strings{"s1", "s1"}));
  EXPECT_EQ(table_.counters().frames, 2u);
}

TEST_F(FrameTableTest, TheSameKeysAreReplaced) {
  put("a", "b", 64);
  put("a", "b", 128);
  EXPECT_EQ(table_.counters().frames, 1u);
  EXPECT_EQ(table_.counters().bytes, 128u);
}

TEST_F(FrameTableTest, AnotherUserIsRefusedWhateverHeAsks) {
  put("a", "b");
  const auto denied = [this] {
    const auto* failed = only<service::FailEffect>();
    const bool is = failed != nullptr && failed->failure.code == Error::denied;
    effects_.clear();
    return is;
  };
  ask(wire::EntryKind::pool_get, wire::PoolGet{"local:/p", "a", "b", 0}, stranger);
  EXPECT_TRUE(denied());
  ask(wire::EntryKind::pool_list, wire::PoolList{"local:/p", "", "", 0}, stranger);
  EXPECT_TRUE(denied());
  ask(wire::EntryKind::pool_drop, wire::PoolDrop{"local:/p", "", ""}, stranger);
  EXPECT_TRUE(denied());
  ask(wire::EntryKind::pool_write, wire::PoolWrite{"local:/p", 1}, stranger);
  EXPECT_TRUE(denied());
  EXPECT_EQ(table_.admit("local:/p", other).error().code, Error::denied);
  EXPECT_TRUE(table_.admit("local:/p", root));
  // Waiting for a pool before it exists gives no access to it.
  ask(wire::EntryKind::pool_get, wire::PoolGet{"local:/new", "a", "b", second_ns}, stranger);
  EXPECT_TRUE(effects_.empty());
  ASSERT_TRUE(table_.put({"local:/new", "a", "b", owner, 0, false}, frame(64), 0, effects_));
  EXPECT_TRUE(denied());
}

TEST_F(FrameTableTest, APipeIsTheProgramsToWrite) {
  put("a", "b");
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const Fd reading(ends[0]);
  ask(wire::EntryKind::pool_write, wire::PoolWrite{"local:/p", 1});
  table_.on_offer(reader, 1, Fd(ends[1]), effects_);
  ASSERT_NE(only<service::FailEffect>(), nullptr);
  EXPECT_EQ(only<service::FailEffect>()->failure.code, Error::unsupported);
}

TEST_F(FrameTableTest, AUsersFilesAreWrittenOneAtATime) {
  put("a", "b");
  const auto write = [this](ChannelNumber channel, std::uint64_t offer) {
    table_.on_offer(channel, offer, Fd(memfd_create("written", MFD_CLOEXEC)), effects_);
    ask(wire::EntryKind::pool_write, wire::PoolWrite{"local:/p", offer}, channel);
  };
  table_.on_channel_open(3, owner);
  write(reader, 1);
  ASSERT_NE(only<service::JobEffect>(), nullptr);
  const service::JobEffect first = *only<service::JobEffect>();
  effects_.clear();
  write(reader, 2);
  write(3, 3);
  write(reader, 4);
  EXPECT_TRUE(effects_.empty());
  table_.on_channel_closed(3);  // its write does not wait any more
  table_.on_job(first.token, {}, effects_);
  ASSERT_EQ(effects_.size(), 2u);
  EXPECT_NE(std::get_if<service::ReplyEffect>(&effects_[0]), nullptr);
  const auto second = std::get<service::JobEffect>(effects_[1]);
  effects_.clear();
  // Requests under way end with their program.
  table_.on_channel_closed(reader);
  const Status ended = second.run();
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, Error::cancelled);
  table_.on_job(second.token, ended, effects_);
  EXPECT_EQ(effects_.size(), 1u) << "a failure that nobody hears, and no other job";
  effects_.clear();
  table_.on_channel_open(reader, owner);
  write(reader, 5);
  EXPECT_NE(only<service::JobEffect>(), nullptr);
}

TEST_F(FrameTableTest, WhileAWriteHangsItsUsersProgramsWriteOthers) {
  put("a", "b");
  const auto write = [this](std::uint64_t offer) {
    effects_.clear();
    table_.on_offer(reader, offer, Fd(memfd_create("written", MFD_CLOEXEC)), effects_);
    ask(wire::EntryKind::pool_write, wire::PoolWrite{"local:/p", offer});
  };
  write(1);
  ASSERT_NE(only<service::JobEffect>(), nullptr);
  service::JobEffect hangs = *only<service::JobEffect>();
  write(2);  // waits for the first one's end
  table_.on_job(hangs.token, fail(Error::timeout, "no progress"), effects_);
  ASSERT_EQ(effects_.size(), 2u);
  EXPECT_EQ(std::get<service::FailEffect>(effects_[0]).failure.code, Error::timeout);
  EXPECT_EQ(std::get<service::FailEffect>(effects_[1]).failure.code, Error::unsupported);
  write(3);
  ASSERT_NE(only<service::FailEffect>(), nullptr);
  EXPECT_EQ(only<service::FailEffect>()->failure.code, Error::unsupported);
  EXPECT_EQ(hangs.run().error().code, Error::cancelled) << "what hung goes no further";
  hangs.run = nullptr;
  write(4);
  EXPECT_NE(only<service::JobEffect>(), nullptr);
}

TEST_F(FrameTableTest, MoreWritesThanMayWaitAreRefused) {
  put("a", "b");
  for (std::uint64_t offer = 1; offer <= 66; ++offer) {
    effects_.clear();
    table_.on_offer(reader, offer, Fd(memfd_create("written", MFD_CLOEXEC)), effects_);
    ask(wire::EntryKind::pool_write, wire::PoolWrite{"local:/p", offer});
  }
  ASSERT_NE(only<service::FailEffect>(), nullptr);
  EXPECT_EQ(only<service::FailEffect>()->failure.message,
            "64 writes of user 1000 wait for their turn, which is the limit");
}

TEST_F(FrameTableTest, AWriteAndItsDescriptorComeInAnyOrder) {
  put("a", "b");
  const auto descriptor = [] { return Fd(memfd_create("written", MFD_CLOEXEC)); };
  const auto end = [this] {  // a write's end lets another of its user begin
    const auto* const job = only<service::JobEffect>();
    ASSERT_NE(job, nullptr);
    const std::uint64_t token = job->token;
    table_.on_job(token, {}, effects_);
    effects_.clear();
  };
  table_.on_offer(reader, 1, descriptor(), effects_);
  EXPECT_TRUE(effects_.empty());
  ask(wire::EntryKind::pool_write, wire::PoolWrite{"local:/p", 1});
  end();
  ask(wire::EntryKind::pool_write, wire::PoolWrite{"local:/p", 2});
  EXPECT_TRUE(effects_.empty());
  table_.on_offer(stranger, 2, descriptor(), effects_);
  EXPECT_TRUE(effects_.empty());
  table_.on_offer(reader, 2, descriptor(), effects_);
  end();
  EXPECT_EQ(table_.next_deadline(), never);
  // A waiting write is dropped with its channel, and its pool may be gone when the descriptor comes.
  effects_.clear();
  ask(wire::EntryKind::pool_write, wire::PoolWrite{"local:/p", 3});
  ask(wire::EntryKind::pool_drop, wire::PoolDrop{"local:/p", "*", "*"});
  effects_.clear();
  table_.on_channel_closed(reader);
  EXPECT_EQ(table_.next_deadline(), never);
  table_.on_offer(reader, 3, descriptor(), effects_);
  EXPECT_TRUE(effects_.empty());
}

TEST_F(FrameTableTest, UnknownThingsAreNamed) {
  put("a", "b");
  ask(wire::EntryKind::pool_get, wire::PoolGet{"local:/p", "a", "c", 0});
  EXPECT_EQ(only<service::FailEffect>()->failure.message, "pool \"local:/p\" has no object (a, c)");
  effects_.clear();
  ask(wire::EntryKind::pool_get, wire::PoolGet{"local:/q", "a", "c", 0});
  EXPECT_EQ(only<service::FailEffect>()->failure.message, "there is no pool \"local:/q\"");
  effects_.clear();
  ask(wire::EntryKind::pool_write, wire::PoolWrite{"local:/p", 9});
  EXPECT_TRUE(effects_.empty());  // its descriptor may still be under way
  ask(wire::EntryKind::pool_write, wire::PoolWrite{"local:/p", 10});
  EXPECT_EQ(only<service::FailEffect>()->failure.message, "a write waits for descriptor 9; one at a time, not 10 too");
  effects_.clear();
  EXPECT_EQ(table_.next_deadline(), second_ns);
  table_.on_time(second_ns, effects_);
  EXPECT_EQ(only<service::FailEffect>()->failure.message, "no descriptor was offered under number 9");
}

TEST_F(FrameTableTest, ABudgetHoldsBackWhatDoesNotFitYetAndRefusesWhatNeverWill) {
  PoolOptions options;
  options.budget_bytes = 8192;
  ASSERT_TRUE(table_.define("local:/p", options, owner));
  put("a", "", 4096);
  put("b", "", 4096);
  const FrameTable::Place place{"local:/p", "c", "", owner, 0, false};
  EXPECT_EQ(table_.put(place, frame(8193), 0, effects_).error().message,
            "object (c, ) has 8193 bytes, pool \"local:/p\" has a budget of 8192 on each member");
  EXPECT_EQ(table_.put(place, frame(1), 0, effects_).error().code, Error::would_block);
  put("a", "", 4000);  // in the place of one
  const std::uint64_t freed = table_.freed();
  ASSERT_EQ(table_.drop("local:/p", owner, "a", "").value().size(), 1u);
  EXPECT_NE(table_.freed(), freed);
  EXPECT_TRUE(table_.put(place, frame(4096), 0, effects_));
}

TEST_F(FrameTableTest, WithoutOverwritingTheSamePutAgainIsTheSamePut) {
  PoolOptions options;
  options.overwrite = false;
  ASSERT_TRUE(table_.define("local:/p", options, owner));
  const FrameTable::Place place{"local:/p", "a", "", owner, 0, false};
  ASSERT_TRUE(table_.put(place, frame(8), 0, effects_, {7, 1}));
  EXPECT_TRUE(table_.put(place, frame(8), 0, effects_, {7, 1}));
  EXPECT_EQ(table_.put(place, frame(8), 0, effects_, {7, 2}).error().message,
            "pool \"local:/p\" has an object (a, ) already, and overwrite=no");
  EXPECT_EQ(table_.put(place, frame(8), 0, effects_).error().code, Error::exists);
  EXPECT_EQ(table_.counters().puts, 1u);
}

TEST_F(FrameTableTest, ObjectsLiveAsLongAsTheirPoolSays) {
  PoolOptions options;
  options.ttl_ns = second_ns;
  ASSERT_TRUE(table_.define("local:/p", options, owner));
  const FrameTable::Place place{"local:/p", "a", "", owner, 0, false};
  ASSERT_TRUE(table_.put(place, frame(8), 100, effects_));
  ASSERT_TRUE(table_.put(place, frame(8), 200, effects_));  // a new life
  EXPECT_EQ(table_.next_deadline(), 100 + second_ns);
  table_.on_time(100 + second_ns, effects_);
  EXPECT_EQ(rows("", "").size(), 1u);
  table_.on_time(200 + second_ns, effects_);
  EXPECT_TRUE(rows("", "").empty());
  EXPECT_EQ(table_.counters().expired, 1u);
}

TEST_F(FrameTableTest, ReadersGetAndListAndNoMore) {
  PoolOptions options;
  options.readers = {other};
  ASSERT_TRUE(table_.define("local:/p", options, owner));
  put("a", "b");
  ask(wire::EntryKind::pool_get, wire::PoolGet{"local:/p", "a", "b", 0}, stranger);
  EXPECT_NE(only<service::HandOverEffect>(), nullptr);
  effects_.clear();
  ask(wire::EntryKind::pool_drop, wire::PoolDrop{"local:/p", "", ""}, stranger);
  EXPECT_EQ(only<service::FailEffect>()->failure.code, Error::denied);
  EXPECT_EQ(table_.put({"local:/p", "c", "", other, 0, false}, frame(8), 0, effects_).error().code, Error::denied);
}

// A drop visits a range of rows only; it has to drop the same objects as matching all rows would.
TEST_F(FrameTableTest, DropsWhatAListingOfTheSamePatternsShows) {
  const Strings rows_there = {"a", "ab", "ab[", "abc", "b", "step1", "step10", "step2"},
                columns_there = {"", "x", "x1", "y"};
  for (const std::string row :
       {"", "*", "a", "ab", "ab[", "a?", "a*", "step1", "step1*", "step[12]", "[ab]*", "*c", "none", "zz*"}) {
    for (const std::string column : {"", "*", "x", "x*", "?", "none"}) {
      for (const std::string& each : rows_there)
        for (const std::string& other_key : columns_there) put(each, other_key);
      const std::size_t all = rows("", "").size(), chosen = rows(row, column).size();
      ASSERT_EQ(table_.drop("local:/p", owner, row, column).value().size(), chosen) << row << ' ' << column;
      EXPECT_EQ(rows("", "").size(), all - chosen) << row << ' ' << column;
      EXPECT_TRUE(rows(row, column).empty()) << row << ' ' << column;
    }
  }
}

}  // namespace
}  // namespace offpath::pool
