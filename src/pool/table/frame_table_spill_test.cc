#include <gtest/gtest.h>

#include <deque>

#include "pool/table/frame_table.h"
#include "testing/pool/memory_store.h"

namespace offpath::pool {
namespace {

constexpr uid_t owner = 1000;
constexpr ChannelNumber reader = 1;
constexpr std::uint64_t object_bytes = 1000;

class SpillTest : public ::testing::Test {
 protected:
  SpillTest() { start(); }

  // As after a kill: only the objects on disk.
  void start(const FrameTable::Limits& limits = {}) {
    effects_.clear();
    jobs_.clear();
    table_ = std::make_unique<FrameTable>(limits);
    table_->keep_on(std::make_unique<Disk>(store_, cache_),
                    {[this](std::uint64_t bytes) { return ++looks_, bytes <= room_; }, [this] { return wanted_; }});
    table_->on_channel_open(reader, owner);
  }
  void define(Spill spill, std::uint64_t budget = 0, bool overwrite = true) {
    PoolOptions options;
    options.spill = spill;
    options.budget_bytes = budget;
    options.overwrite = overwrite;
    ASSERT_TRUE(table_->define("local:/p", options, owner));
  }
  void recover() {
    const auto all = table_->disk()->scan().value();
    for (const RecordPtr& record : all) table_->recover(record, now_);
  }
  // A durable pool with one object, of an agent that has started again since.
  void start_again_with_one_object() {
    define(Spill::durable);
    Status stored;
    keep("row", 1, 1, stored);
    work();
    start();
    define(Spill::durable);
    recover();
  }
  FramePtr frame(std::uint8_t seed, std::uint64_t bytes = object_bytes) {
    auto made = std::make_shared<service::Frame>();
    made->buffer = cache_->take(bytes, owner).value();
    made->bytes = bytes;
    made->rows = seed;
    std::memset(made->buffer.data(), seed, bytes);
    return made;
  }
  Status put(const std::string& row, std::uint8_t seed, bool hidden = false) {
    return table_->put({"local:/p", row, "", owner, 0, hidden}, frame(seed), now_, effects_);
  }
  // Of a durable pool; `id` is that of the put. Runs no job.
  void keep(const std::string& row, std::uint8_t seed, std::uint64_t id, Status& outcome) {
    const FrameTable::Place place{"local:/p", row, "", owner, 0, false};
    const FramePtr kept = frame(seed);
    table_->keep(
        place, kept, {1, id},
        [this, place, kept, id, &outcome](Result<RecordPtr> file, TimeNs now, Effects& effects) {
          outcome =
              file ? table_->put(place, kept, now, effects, {1, id}, *file) : Status(tl::unexpected(file.error()));
        },
        effects_);
  }
  // Runs requested jobs, and the jobs they cause.
  void work() {
    for (int rounds = 0; rounds < 100; ++rounds) {
      table_->lighten(now_, effects_);
      take_jobs();
      if (jobs_.empty()) return;
      while (!jobs_.empty()) run(0);
    }
    FAIL() << "it does not come to rest";
  }
  void take_jobs() {
    for (auto& effect : effects_)
      if (auto* job = std::get_if<service::JobEffect>(&effect))
        jobs_.push_back(std::move(*job));
      else
        others_.push_back(std::move(effect));
    effects_.clear();
  }
  void run(std::size_t place) {
    const service::JobEffect job = std::move(jobs_[place]);
    jobs_.erase(jobs_.begin() + static_cast<std::ptrdiff_t>(place));
    const Status status = job.run();
    table_->disk()->on_job(job.token, status, now_, effects_);
    take_jobs();
  }
  void get(const std::string& row) {
    others_.clear();
    table_->get({.channel = reader, .ticket = 1, .user = owner, .pool = "local:/p", .keys = {row, ""}, .wait_ns = 0},
                effects_);
  }
  // The value of every byte; -1: it was refused, with `refusal_`; -2: something else.
  int value_of(const std::string& row) {
    get(row);
    work();
    if (others_.size() != 1) return -2;
    if (const auto* failed = std::get_if<service::FailEffect>(&others_.front())) {
      refusal_ = failed->failure;
      return -1;
    }
    const auto* over = std::get_if<service::HandOverEffect>(&others_.front());
    if (over == nullptr || over->frame->unread || over->frame->bytes != object_bytes) return -2;
    const Bytes bytes = over->frame->buffer.bytes();
    for (const std::byte byte : bytes)
      if (byte != bytes[0]) return -2;
    const int value = std::to_integer<int>(bytes[0]);
    others_.clear();
    table_->on_channel_closed(reader);
    table_->on_channel_open(reader, owner);
    return value;
  }
  [[nodiscard]] std::uint64_t in_memory() const {
    const auto pool = table_->pools().front();
    return pool.bytes - pool.spilled_bytes;
  }

  TimeNs now_ = second_ns;
  std::uint64_t room_ = UINT64_MAX, wanted_ = 0;
  std::size_t looks_ = 0;  // for room
  Failure refusal_{Error::invalid, ""};
  std::shared_ptr<service::BufferCache> cache_ = service::BufferCache::make({});
  std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  std::unique_ptr<FrameTable> table_;
  Effects effects_;
  std::deque<service::JobEffect> jobs_;
  std::vector<service::Effect> others_;
};

TEST_F(SpillTest, MoreThanTheBudgetIsAllReadBack) {
  define(Spill::on, 8 * object_bytes);
  for (int i = 0; i < 100; ++i) {
    Status stored = put(fmt::format("row{}", i), static_cast<std::uint8_t>(i));
    for (int tries = 0; !stored && tries < 3; ++tries) {
      ASSERT_EQ(stored.error().code, Error::would_block) << stored.error().message;
      work();
      stored = put(fmt::format("row{}", i), static_cast<std::uint8_t>(i));
    }
    ASSERT_TRUE(stored) << stored.error().message;
    ASSERT_LE(in_memory(), 8 * object_bytes);
  }
  for (int i = 0; i < 100; ++i) EXPECT_EQ(value_of(fmt::format("row{}", i)), i);
  EXPECT_LE(in_memory(), 8 * object_bytes);
  EXPECT_LE(cache_->used_bytes(), 8u * 4096);
}

TEST_F(SpillTest, APutThatIsRefusedMakesItselfRoomHoweverLittleIsLacking) {
  define(Spill::on, 3 * object_bytes);
  ASSERT_TRUE(put("a", 1));
  ASSERT_TRUE(put("b", 2));  // less than an eighth of the budget away from leaving
  work();
  ASSERT_EQ(table_->disk()->counters().objects, 0u);
  const Status refused =
      table_->put({"local:/p", "c", "", owner, 0, false}, frame(3, object_bytes + 500), now_, effects_);
  ASSERT_EQ(refused.error().code, Error::would_block);
  work();
  EXPECT_TRUE(table_->put({"local:/p", "c", "", owner, 0, false}, frame(3, object_bytes + 500), now_, effects_));
}

TEST_F(SpillTest, WhatWasLongestUnreadLeavesFirstAndIsNotWrittenTwice) {
  define(Spill::on);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(put(fmt::format("row{}", i), static_cast<std::uint8_t>(i)));
  EXPECT_EQ(value_of("row0"), 0);
  wanted_ = object_bytes;
  table_->lighten(now_, effects_);
  wanted_ = 0;
  work();
  ASSERT_EQ(store_->files.size(), 1u);
  EXPECT_EQ(store_->files.begin()->second.record.row, "row1");
  EXPECT_EQ(value_of("row1"), 1) << "it is in memory again";
  EXPECT_EQ(in_memory(), 4 * object_bytes);
  for (const char* row : {"row0", "row2", "row3"}) EXPECT_GE(value_of(row), 0);
  wanted_ = object_bytes;
  table_->lighten(now_, effects_);
  wanted_ = 0;
  work();
  EXPECT_EQ(in_memory(), 3 * object_bytes);
  EXPECT_EQ(store_->writes, 1u);
}

TEST_F(SpillTest, AFullDiskLosesNothingAndGoesOnWhenThereIsRoom) {
  define(Spill::on, 8 * object_bytes);
  store_->bytes_max = 2 * object_bytes;
  int stored = 0;
  for (int i = 0; i < 30; ++i) {
    if (!put(fmt::format("row{}", stored), static_cast<std::uint8_t>(stored)))
      work();
    else
      ++stored;
    now_ += millisecond_ns;
  }
  EXPECT_EQ(stored, 10) << "8 in memory, 2 on disk";
  const Status full = put("one more", 1);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, Error::would_block);
  EXPECT_NE(full.error().message.find("the disk is full"), std::string::npos) << full.error().message;
  EXPECT_GE(table_->disk()->counters().failures, 1u);
  for (int i = 0; i < stored; ++i) EXPECT_EQ(value_of(fmt::format("row{}", i)), i);
  store_->bytes_max = UINT64_MAX;
  EXPECT_FALSE(put("one more", 1));
  EXPECT_LT(table_->next_deadline(), never);
  now_ = std::max(now_, table_->next_deadline());
  table_->on_time(now_, effects_);
  work();
  EXPECT_TRUE(put("one more", 1));
  EXPECT_EQ(table_->disk()->failure(), "");
}

TEST_F(SpillTest, AnObjectThatWasDroppedOrPutAnewWhileItIsWrittenLeavesNoFile) {
  define(Spill::on);
  for (const char* row : {"dropped", "anew", "stays"}) ASSERT_TRUE(put(row, 1));
  wanted_ = 3 * object_bytes;
  table_->lighten(now_, effects_);
  wanted_ = 0;
  take_jobs();
  ASSERT_EQ(jobs_.size(), 3u);
  ASSERT_TRUE(table_->drop("local:/p", owner, "dropped", "*"));
  ASSERT_TRUE(put("anew", 2));
  work();
  ASSERT_EQ(store_->files.size(), 1u);
  EXPECT_EQ(store_->files.begin()->second.record.row, "stays");
  EXPECT_EQ(value_of("anew"), 2);
  EXPECT_EQ(value_of("dropped"), -1);
  EXPECT_EQ(table_->disk()->counters().objects, 1u);
  ASSERT_TRUE(table_->drop("local:/p", owner, "*", "*"));
  work();
  EXPECT_TRUE(store_->files.empty());
}

TEST_F(SpillTest, AfterAKillADurablePoolHasWhatWasStored) {
  define(Spill::durable);
  Status first, second, third;
  keep("row", 1, 1, first);
  keep("other", 7, 2, second);
  work();
  ASSERT_TRUE(first && second);
  keep("row", 2, 3, third);
  take_jobs();
  run(0);  // written, but the old file is not removed yet
  ASSERT_TRUE(third);
  EXPECT_EQ(store_->files.size(), 3u);
  for (const auto& [number, file] : store_->files) EXPECT_TRUE(file.lasting);
  start();
  define(Spill::durable);
  recover();
  work();
  EXPECT_EQ(value_of("row"), 2);
  EXPECT_EQ(value_of("other"), 7);
  const PutId* const put = table_->id_of("local:/p", FrameTable::KeysView{"row", ""});
  ASSERT_NE(put, nullptr);
  EXPECT_EQ(*put, (PutId{1, 3})) << "the same put again would not be taken for another one";
  EXPECT_EQ(store_->files.size(), 2u) << "what was replaced is removed at last";
}

TEST_F(SpillTest, AfterAKillTheLaterPutStaysThoughAnEarlierOneWasWrittenBehindIt) {
  const auto write = [&](std::uint64_t number, PutId id, std::uint8_t seed) {
    ObjectRecord record;
    record.number = number;
    record.bytes = object_bytes;
    record.pool_user = record.user = owner;
    record.id = std::move(id);
    record.pool = "local:/p?spill=durable";
    record.row = "row";
    ASSERT_TRUE(store_->write(std::move(record), frame(seed)->buffer.bytes(), true));
  };
  write(1, {1, 1}, 1);  // stored before puts had versions
  write(2, {.writer = 1, .number = 2, .counter = 20}, 2);
  write(3, {.writer = 1, .number = 3, .counter = 10}, 3);  // brought by a move
  define(Spill::durable);
  recover();
  work();
  EXPECT_EQ(value_of("row"), 2);
  ASSERT_EQ(store_->files.size(), 1u) << "the others are removed";
  EXPECT_EQ(store_->files.begin()->first, 2u);
  EXPECT_EQ(table_->counters().frames, 1u);
  EXPECT_EQ(table_->disk()->counters().objects, 1u);
}

TEST_F(SpillTest, OfTwoPutsTheLaterOneStaysWhicheverIsWrittenFirst) {
  define(Spill::durable);
  Status first, second;
  keep("row", 1, 1, first);
  keep("row", 2, 2, second);
  take_jobs();
  run(1);
  run(0);
  EXPECT_TRUE(first && second);
  EXPECT_EQ(value_of("row"), 2);
  EXPECT_EQ(store_->files.size(), 1u);
}

TEST_F(SpillTest, ThePutThatWasRepeatedIsOnePut) {
  define(Spill::durable, 0, false);
  Status first, again, other;
  keep("row", 1, 1, first);
  keep("row", 1, 1, again);
  keep("row", 2, 2, other);
  work();
  EXPECT_TRUE(first && again);
  EXPECT_EQ(other.error().code, Error::exists);
  EXPECT_EQ(store_->files.size(), 1u);
  EXPECT_EQ(value_of("row"), 1);
}

TEST_F(SpillTest, ADurablePutThatFindsADiskFullChangesNothing) {
  define(Spill::durable);
  Status first, second;
  keep("row", 1, 1, first);
  work();
  store_->bytes_max = object_bytes;
  keep("row", 2, 2, second);
  work();
  EXPECT_EQ(second.error().code, Error::no_space);
  EXPECT_EQ(value_of("row"), 1);
  EXPECT_TRUE(table_->disk()->rests(now_));
  EXPECT_FALSE(table_->disk()->rests(now_ + 2 * second_ns));
}

TEST_F(SpillTest, ACorruptObjectIsAClearErrorAndGone) {
  start_again_with_one_object();
  store_->files.begin()->second.bytes[5] = std::byte{99};
  EXPECT_EQ(value_of("row"), -1);
  EXPECT_EQ(refusal_.code, Error::io);
  EXPECT_NE(refusal_.message.find("corrupt"), std::string::npos);
  EXPECT_EQ(value_of("row"), -1);
  EXPECT_EQ(refusal_.code, Error::not_found);
  EXPECT_EQ(table_->counters().frames, 0u);
  EXPECT_EQ(table_->disk()->counters().corrupt, 1u);
}

TEST_F(SpillTest, WhatCannotBeReadIsTriedAgainAndNothingIsLost) {
  start_again_with_one_object();
  int failures = 1;
  store_->fails_reading = [&] { return failures-- > 0; };
  EXPECT_EQ(value_of("row"), 1) << "once";
  table_->let_go("local:/p", {"row", ""});
  failures = 20;  // three tries at a time, then a pause
  get("row");
  for (int looks = 0; others_.empty() && looks < 100; ++looks) {
    work();
    if (others_.empty()) now_ = std::max(now_, table_->next_deadline());
  }
  ASSERT_EQ(others_.size(), 1u);
  EXPECT_NE(std::get_if<service::HandOverEffect>(&others_.front()), nullptr);
  EXPECT_LT(failures, 0);
  // Longer than the wait.
  table_->on_channel_closed(reader);
  table_->on_channel_open(reader, owner);
  table_->let_go("local:/p", {"row", ""});
  others_.clear();
  failures = 1'000'000;
  const TimeNs begun = now_;
  get("row");
  for (int looks = 0; others_.empty() && looks < 100; ++looks) {
    work();
    if (others_.empty()) now_ = std::max(now_, table_->next_deadline());
  }
  ASSERT_EQ(others_.size(), 1u);
  const auto* const failed = std::get_if<service::FailEffect>(&others_.front());
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(failed->failure.code, Error::io);
  EXPECT_NE(failed->failure.message.find("stays on disk"), std::string::npos) << failed->failure.message;
  EXPECT_LE(now_, begun + 2 * second_ns);
  EXPECT_EQ(table_->counters().frames, 1u);
  EXPECT_EQ(table_->disk()->counters().corrupt, 0u);
  failures = 0;
  EXPECT_EQ(value_of("row"), 1);
}

TEST_F(SpillTest, WithoutMemoryAGetWaitsAndThenSaysSo) {
  start_again_with_one_object();
  room_ = 0;
  EXPECT_EQ(value_of("row"), -2) << "no answer yet";
  room_ = UINT64_MAX;
  work();
  ASSERT_EQ(others_.size(), 1u);
  EXPECT_NE(std::get_if<service::HandOverEffect>(&others_.front()), nullptr);
  others_.clear();
  table_->on_channel_closed(reader);
  table_->on_channel_open(reader, owner);
  cache_->clear();
  wanted_ = object_bytes;
  work();
  wanted_ = 0;
  room_ = 0;
  EXPECT_EQ(value_of("row"), -2);
  now_ = table_->next_deadline();
  table_->on_time(now_, effects_);
  take_jobs();
  ASSERT_EQ(others_.size(), 1u);
  const auto* failed = std::get_if<service::FailEffect>(&others_.front());
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(failed->failure.code, Error::would_block);
}

TEST_F(SpillTest, GetsThatWaitForTheDiskAreTold) {
  start_again_with_one_object();
  const auto waits = [this] {
    std::vector<std::string> all;
    table_->visit_reads([&](const Get& get, const std::string& why) { all.push_back(get.keys.first + ": " + why); });
    return all;
  };
  room_ = 0;
  get("row");
  EXPECT_EQ(waits(), std::vector<std::string>{"row: there is no memory for its 1000 bytes"});
  room_ = UINT64_MAX;
  table_->lighten(now_, effects_);
  EXPECT_EQ(waits(), std::vector<std::string>{"row: it is being read"});
  table_->on_channel_closed(reader);
  EXPECT_EQ(waits(), std::vector<std::string>{});
  table_->on_channel_open(reader, owner);
  work();
  EXPECT_EQ(waits(), std::vector<std::string>{});
  table_->let_go("local:/p", {"row", ""});
  store_->fails_reading = [] { return true; };
  get("row");
  for (int looks = 0; looks < 10 && (waits().empty() || waits()[0] == "row: it is being read"); ++looks) work();
  ASSERT_EQ(waits().size(), 1u);
  EXPECT_TRUE(waits()[0].ends_with("; it was tried 1 times, and is tried again")) << waits()[0];
}

TEST_F(SpillTest, GetsThatWaitForMemoryAreCountedAndOneIsLookedAtInARound) {
  define(Spill::durable);
  Status stored;
  keep("row", 1, 1, stored);
  work();
  start({.user_waiting_max = 50});
  define(Spill::durable);
  recover();
  room_ = 0;
  for (int i = 0; i < 50; ++i) get("row");
  table_->lighten(now_, effects_);
  EXPECT_TRUE(effects_.empty());
  looks_ = 0;
  table_->lighten(now_, effects_);
  EXPECT_EQ(looks_, 1u) << "there is no memory for the smallest, so there is none for any other";
  EXPECT_EQ(value_of("row"), -1);
  EXPECT_EQ(refusal_.message,
            "50 requests of user 1000 are waiting, which is the limit of each user (limits.user_waiting_max)");
  table_->on_channel_closed(reader);
  table_->on_channel_open(reader, owner);
  looks_ = 0;
  table_->lighten(now_, effects_);
  EXPECT_EQ(looks_, 0u) << "they are gone with their channel";
  for (int i = 0; i < 50; ++i) get("row");
  room_ = UINT64_MAX;
  work();
  EXPECT_EQ(others_.size(), 50u);
}

TEST_F(SpillTest, AStepThatEndedIsShownAfterANewStartToo) {
  define(Spill::on);
  ASSERT_TRUE(put("step0", 1, true));
  ASSERT_TRUE(put("step1", 2, true));
  wanted_ = 2 * object_bytes;
  table_->lighten(now_, effects_);
  wanted_ = 0;
  take_jobs();
  run(0);
  EXPECT_TRUE(table_->end_step("local:/p", "step0", 0, 1, now_, effects_));  // on disk already, or being written
  work();
  start();
  define(Spill::on);
  recover();
  EXPECT_EQ(value_of("step0"), 1);
  EXPECT_EQ(value_of("step1"), -1);
  EXPECT_NE(refusal_.message.find("has not been ended"), std::string::npos) << refusal_.message;
}

TEST_F(SpillTest, AtTheEndEverythingGoesToDisk) {
  define(Spill::on);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(put(fmt::format("row{}", i), static_cast<std::uint8_t>(i)));
  table_->flush();
  start();
  define(Spill::on);
  recover();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(value_of(fmt::format("row{}", i)), i);
}

TEST_F(SpillTest, AtTheEndAWriteThatFailedOnceIsTriedAgain) {
  define(Spill::on);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(put(fmt::format("row{}", i), static_cast<std::uint8_t>(i)));
  int failures = 1;
  store_->fails_writing = [&] { return failures-- > 0; };
  table_->flush();
  start();
  define(Spill::on);
  recover();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(value_of(fmt::format("row{}", i)), i);
}

TEST_F(SpillTest, WithoutSpillNothingIsEverWritten) {
  define(Spill::off);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(put(fmt::format("row{}", i), static_cast<std::uint8_t>(i)));
  wanted_ = 100 * object_bytes;
  work();
  table_->flush();
  EXPECT_EQ(store_->writes, 0u);
}

}  // namespace
}  // namespace offpath::pool
