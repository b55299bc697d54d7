// The pools of one agent after a start, with a failing disk: repairs and moves of unreadable objects.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "pool/members/pools.h"
#include "testing/pool/memory_store.h"
#include "wire/messages/pool_messages.h"
#include "wire/messages/replies.h"

namespace offpath::pool {
namespace {

using wire::EntryKind;

constexpr service::ChannelNumber program = 1, member = 2;
constexpr uid_t user = 1000;

// Member a of a and b after a start, with objects on its disk.
class PoolsAfterAStart : public ::testing::Test {
 protected:
  PoolsAfterAStart() { write("step0", 1); }
  FramePtr frame_of(std::size_t bytes, char fill = 'x') {
    auto frame = std::make_shared<service::Frame>();
    frame->buffer = *cache_->take(bytes, user);
    frame->bytes = bytes;
    std::memset(frame->buffer.data(), fill, bytes);
    return frame;
  }
  void write(const std::string& row, std::uint64_t number) {
    ObjectRecord record;
    record.number = number;
    record.bytes = 100;
    record.pool_user = record.user = user;
    record.id = {.writer = 3, .number = number, .counter = 10};
    record.pool = "rank:/p?replicas=2&spill=durable";
    record.row = row;
    record.column = "c";
    ASSERT_TRUE(store_->write(std::move(record), frame_of(100)->buffer.bytes(), true));
  }
  void start() {
    PoolsOptions made;
    made.store = store_;
    started_ = std::make_unique<Pools>(made, cache_, [](std::uint64_t) { return true; });
    started_->set_self("a", 8);
    started_->on_channel_open(program, user);
    started_->on_channel_open(member, user);
    ASSERT_TRUE(started_->recover(now_, effects_));
    started_->on_members({"a", "b"}, {}, now_, effects_);
  }
  void get(const std::string& row) {
    std::vector<std::byte> payload;
    wire::encode(wire::PoolGet{"rank:/p", row, "c", 0}, payload);
    started_->on_request(program, {++ticket_, static_cast<std::uint8_t>(EntryKind::pool_get), payload}, now_, effects_);
    run_for(0);
  }
  // Runs jobs of the disk and due work. Requests to b are answered by `answer`, or kept in `asked_`, by kind.
  void run_for(TimeNs duration) {
    for (const TimeNs end = now_ + duration;; now_ = std::min(end, now_ + 100 * millisecond_ns)) {
      started_->spill(now_, effects_);
      started_->on_time(now_, effects_);
      for (bool any = true; std::exchange(any, false);)
        for (const service::Effect& effect : std::exchange(effects_, {}))
          if (const auto* job = std::get_if<service::JobEffect>(&effect)) {
            started_->on_disk_job(job->token, job->run(), now_, effects_);
            any = true;
          } else if (const auto* asked = std::get_if<service::AskEffect>(&effect)) {
            EXPECT_EQ(asked->member, "b");
            asked_[asked->kind].push_back(asked->token);
            if (asked->object) sent_ += static_cast<char>(*asked->object->buffer.data());
          } else if (const auto* failed = std::get_if<service::FailEffect>(&effect)) {
            failures_[failed->channel].push_back(failed->failure.code);
          }
      if (now_ == end) return;
    }
  }
  void answer_gets(const Result<Answer>& answer) {
    for (const std::uint64_t token : std::exchange(asked_[EntryKind::peer_get], {}))
      started_->on_answer(token, answer, now_, effects_);
    run_for(0);
  }
  // The objects of b.
  Answer copy() {
    Answer answer{wire::ReplyKind::got};
    wire::encode(wire::Got{.how = wire::Got::How::pushed, .arrow = false, .lease = 0, .length = 100, .rows = 0},
                 answer.payload);
    answer.inbox = frame_->buffer.bytes().first(100);
    return answer;
  }
  // The objects that this member reads for a query over both.
  Result<std::vector<QuerySource>> part() {
    const auto spread = started_->spread("rank:/p?replicas=2&spill=durable");
    return started_->choose_part({spread->value().text, "*", "*", user, spread->value().view, user}, effects_);
  }
  void expect_waiting_query() {
    const auto chosen = part();
    ASSERT_FALSE(chosen) << "at " << now_;
    EXPECT_EQ(chosen.error().code, Error::would_block);
  }
  [[nodiscard]] bool holds(const std::string& row) const { return started_->table().holds("rank:/p", {row, "c"}); }

  std::shared_ptr<service::BufferCache> cache_ = service::BufferCache::make({});
  Effects effects_;
  TimeNs now_ = second_ns;
  std::uint64_t ticket_ = 0;
  std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  FramePtr frame_ = frame_of(100);
  std::unique_ptr<Pools> started_;
  std::map<EntryKind, std::vector<std::uint64_t>> asked_;
  std::string sent_;  // the first byte of each object that b was asked to take
  std::map<service::ChannelNumber, std::vector<Error>> failures_;
};

TEST_F(PoolsAfterAStart, ALostCopyIsRepairedThoughTheOtherOwnerAndTheDiskFailFirst) {
  store_->files.begin()->second.bytes[5] ^= std::byte{1};
  start();
  get("step0");
  ASSERT_EQ(asked_[EntryKind::peer_get].size(), 2u) << "for the program, and for the copy";
  EXPECT_FALSE(holds("step0"));
  EXPECT_EQ(started_->counters().moves_waiting, 1u);
  for (const Error error : {Error::timeout, Error::io, Error::denied}) {
    answer_gets(fail(error, "not now"));
    EXPECT_EQ(started_->counters().moves_waiting, 1u);
    EXPECT_TRUE(asked_[EntryKind::peer_get].empty()) << "not at once";
    run_for(6 * second_ns);
    ASSERT_EQ(asked_[EntryKind::peer_get].size(), 1u) << "after " << static_cast<int>(error);
  }
  store_->fails_writing = [] { return true; };
  answer_gets(copy());
  EXPECT_FALSE(holds("step0"));
  store_->fails_writing = {};
  run_for(6 * second_ns);
  ASSERT_EQ(asked_[EntryKind::peer_get].size(), 1u);
  answer_gets(copy());
  EXPECT_TRUE(holds("step0"));
  EXPECT_EQ(started_->counters().moves_waiting, 0u);
  const PutId* const id = started_->table().id_of("rank:/p", FrameTable::KeysView{"step0", "c"});
  ASSERT_NE(id, nullptr);
  EXPECT_EQ(id->version(), (Version{10, 3})) << "it is the same put";
}

TEST_F(PoolsAfterAStart, ACopyThatNobodyHasIsNotAskedForAgain) {
  store_->files.begin()->second.bytes[5] ^= std::byte{1};
  start();
  get("step0");
  answer_gets(fail(Error::not_found, "none"));
  EXPECT_EQ(started_->counters().moves_waiting, 0u);
  run_for(20 * second_ns);
  EXPECT_TRUE(asked_[EntryKind::peer_get].empty());
}

TEST_F(PoolsAfterAStart, WhatOneOwnerCannotReadIsNotMissing) {
  start();
  store_->fails_reading = [] { return true; };
  get("step0");
  wire::PeerGet of_b{};
  of_b.user = user;
  of_b.owner = user;
  of_b.reader = "b";
  of_b.pool = "rank:/p?replicas=2&spill=durable";
  of_b.row_key = "step0";
  of_b.column_key = "c";
  std::vector<std::byte> payload;
  wire::encode(of_b, payload);
  started_->on_peer_request(member, {++ticket_, static_cast<std::uint8_t>(EntryKind::peer_get), payload}, true, now_,
                            effects_);
  run_for(2 * second_ns);
  EXPECT_EQ(failures_[member], std::vector{Error::io}) << "b asks the next one, and does not take it for lost";
  ASSERT_EQ(asked_[EntryKind::peer_get].size(), 1u);
  answer_gets(fail(Error::io, "b cannot read it either"));
  EXPECT_EQ(failures_[program], std::vector{Error::io});
  get("step0");
  run_for(2 * second_ns);
  answer_gets(fail(Error::not_found, "b has none"));
  EXPECT_EQ(failures_[program], (std::vector{Error::io, Error::io}));
}

TEST_F(PoolsAfterAStart, WhatAnOwnerDidNotAnswerForIsNotMissing) {
  start();
  for (const char* const row : {"r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7"}) {
    failures_.clear();
    get(row);
    ASSERT_EQ(asked_[EntryKind::peer_get].size(), 1u);
    answer_gets(fail(Error::timeout, "b has not answered in time"));
    EXPECT_EQ(failures_[program], std::vector{Error::timeout}) << row << ", of which this member says that it has none";
    get(row);
    answer_gets(fail(Error::not_found, "b has none"));
    EXPECT_EQ(failures_[program].back(), Error::not_found) << "all owners say so";
  }
}

TEST_F(PoolsAfterAStart, AMoveWhoseRowCannotBeReadForLongIsTriedAgain) {
  start();
  bool fails = true;
  store_->fails_reading = [&] { return fails; };
  run_for(60 * second_ns);
  EXPECT_TRUE(asked_[EntryKind::peer_put].empty());
  EXPECT_TRUE(holds("step0"));
  EXPECT_EQ(started_->counters().moves_waiting, 1u);
  fails = false;
  run_for(40 * second_ns);
  EXPECT_FALSE(asked_[EntryKind::peer_put].empty());
}

// The version of a put is never sent with the bytes of the replaced put: the new owner would keep them for good.
TEST_F(PoolsAfterAStart, ARowThatIsPutAnewWhileItIsReadBackMovesWithItsNewBytes) {
  start();
  std::optional<std::pair<std::uint64_t, Status>> read;  // by its job; the result was not taken yet
  for (const TimeNs end = now_ + 10 * second_ns; !read && now_ < end; now_ += 100 * millisecond_ns) {
    started_->on_time(now_, effects_);
    for (const service::Effect& effect : std::exchange(effects_, {}))
      if (const auto* job = std::get_if<service::JobEffect>(&effect)) read.emplace(job->token, job->run());
  }
  ASSERT_TRUE(read) << "the row is to move, and lies on disk";
  ASSERT_TRUE(started_->put({"rank:/p", "step0", "c", user, 0, false}, frame_of(100, 'y'), 1, now_, effects_));
  run_for(0);
  ASSERT_EQ(sent_, "y") << "the put";
  started_->on_disk_job(read->first, read->second, now_, effects_);
  run_for(second_ns);
  EXPECT_EQ(sent_, "yy") << "the move";
}

// Another owner has the row, but only its first owner is asked for it.
TEST_F(PoolsAfterAStart, AQueryWaitsUntilALostCopyIsHereAgain) {
  store_->files.begin()->second.bytes[5] ^= std::byte{1};
  start();
  run_for(4 * second_ns);
  ASSERT_FALSE(holds("step0"));
  ASSERT_EQ(asked_[EntryKind::peer_get].size(), 1u);
  expect_waiting_query();
  answer_gets(copy());
  const auto chosen = part();
  ASSERT_TRUE(chosen) << chosen.error().message;
  ASSERT_EQ(chosen->size(), 1u);
  EXPECT_EQ(chosen->front().row_key, "step0");
}

// A query asks only each row's first owner; a first owner that still lacks the row would leave it out.
TEST_F(PoolsAfterAStart, AQueryWaitsUntilRowsFromDiskAreWithTheirFirstOwners) {
  write("step1", 2);  // of which b is the first owner
  start();
  for (const TimeNs end = now_ + 10 * second_ns; asked_[EntryKind::peer_put].size() < 2 && now_ < end;
       now_ += 100 * millisecond_ns) {
    started_->spill(now_, effects_);
    started_->on_time(now_, effects_);
    expect_waiting_query();  // before the disk has read anything
    run_for(0);
    expect_waiting_query();
  }
  ASSERT_EQ(asked_[EntryKind::peer_put].size(), 2u);
  Answer stored{wire::ReplyKind::done};
  wire::encode(wire::Done{0}, stored.payload);
  for (const std::uint64_t token : asked_[EntryKind::peer_put]) started_->on_answer(token, stored, now_, effects_);
  run_for(0);
  const auto chosen = part();
  ASSERT_TRUE(chosen) << chosen.error().message;
  ASSERT_EQ(chosen->size(), 1u);
  EXPECT_EQ(chosen->front().row_key, "step0");
}

}  // namespace
}  // namespace offpath::pool
