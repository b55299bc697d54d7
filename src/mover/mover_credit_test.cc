// Memory that is promised to streams: more streams than there is memory, in virtual time.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mover/mover.h"
#include "testing/link/seeded_random.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/replies.h"

namespace offpath::mover {
namespace {

// Keeps every frame until it is dropped.
class KeptFrames final : public Store {
 public:
  Result<std::string> admit(const std::string& pool, uid_t, Effects&) override { return pool; }
  Result<Stored> put(const Place& place, FramePtr frame, std::uint64_t, TimeNs, Effects&) override {
    frames.emplace_back(place.row_key, std::move(frame));
    return Stored::now;
  }
  Result<FramePtr> find(const std::string&, const std::string&, const std::string&, uid_t) override {
    return fail(Error::not_found, "nothing is updated here");
  }
  Status end_step(const std::string&, const std::string&, std::uint32_t, std::uint32_t, TimeNs, Effects&) override {
    return {};
  }
  void leave(const std::string&) override {}

  std::deque<std::pair<std::string, FramePtr>> frames;  // with their row keys
};

// Programs with one stream each, as the mover sees them. A program posts only within its credit.
class Programs {
 public:
  struct Program {
    uid_t user = 0;
    std::uint64_t credit = 0, charged = 0, base = 0;
    std::uint64_t pulled = 0, stored = 0;  // the words of its line
    std::deque<std::uint64_t> posted;      // tickets that are not stored
    bool is_open = true;
  };

  explicit Programs(const MoverOptions& options) : options_(options) {
    mover = std::make_unique<Mover>(options, cache, store);
  }

  std::uint64_t open(uid_t user) {
    const ChannelNumber number = ++channels_;
    all[number].user = user;
    mover->on_channel_open(number, {"program", user, static_cast<int>(number)}, 1, 0);
    const std::string name = "s" + std::to_string(number), pool = "local:/" + name;
    ask(number, wire::EntryKind::open_stream,
        wire::OpenStream{.stream = 0,
                         .destination = wire::Destination::native,
                         .rows_max = 0,
                         .keep = 0,
                         .ranks = 0,
                         .rank = 0,
                         .name = name,
                         .pool = pool,
                         .schema = {}});
    return number;
  }
  void close(ChannelNumber number) {
    all[number].is_open = false;
    all[number].posted.clear();
    mover->on_channel_closed(number, now, effects_);
    take_effects();
  }
  [[nodiscard]] std::uint64_t charge_of(ChannelNumber number, std::uint64_t bytes) {
    return all[number].base + wire::charge_of_buffer(bytes);
  }
  // As HostEnd::post_data without a wait. False: there is no credit, and it was asked for.
  bool post(ChannelNumber number, std::uint64_t bytes) {
    Program& program = all[number];
    const std::uint64_t charge = charge_of(number, bytes);
    if (program.charged + charge > program.credit) {
      ask(number, wire::EntryKind::need_credit, wire::NeedCredit{.stream = 0, .total = program.charged + charge});
      if (program.charged + charge > program.credit) return false;
    }
    program.posted.push_back(ticket_ + 1);
    send(number, charge, bytes, std::to_string(++rows_));
    return true;
  }
  // On credit, a batch that fails as soon as it has memory: its keys need more than it was charged.
  void post_one_that_fails(ChannelNumber number) { send(number, 64, 8, std::string(1100, 'k')); }
  void ask_for(ChannelNumber number, std::uint64_t total) {
    ask(number, wire::EntryKind::need_credit, wire::NeedCredit{.stream = 0, .total = total});
  }
  void keep_for_members(std::uint64_t bytes) {
    mover->keep_for_members(bytes, now, effects_);
    take_effects();
  }
  void pass(TimeNs time) {
    now += time;
    if (mover->next_deadline() <= now) mover->on_time(now, effects_);
    take_effects();
  }
  // Some pull ends; false: none is under way.
  bool end_pull(std::uint64_t which = 0) {
    if (pulls_.empty()) return false;
    const auto at = pulls_.begin() + static_cast<std::ptrdiff_t>(which % pulls_.size());
    const std::uint64_t token = at->token;
    pulls_.erase(at);
    mover->on_transfer(token, {}, now, effects_);
    mover->finish_pulled(now, effects_);
    take_effects();
    return true;
  }
  void end_pulls() {
    while (end_pull()) {
    }
  }
  void drop_oldest() {
    if (store.frames.empty()) return;
    store.frames.pop_front();
    mover->on_memory_freed(now, effects_);
    take_effects();
  }
  [[nodiscard]] std::size_t unstored() const {
    std::size_t sum = 0;
    for (const auto& [number, program] : all) sum += program.posted.size();
    return sum;
  }
  // No memory is promised twice, and no user has more than its share.
  void check() {
    const MoverCounters& counters = mover->counters();
    ASSERT_LE(cache->used_bytes() + counters.claimed_bytes + counters.promised_bytes, options_.memory_bytes_max);
    const auto streams = mover->streams(now);
    const auto lacking = std::ranges::count_if(streams, [](const auto& each) { return each.credit_lacking > 0; });
    ASSERT_TRUE(!store.frames.empty() || !pulls_.empty() || lacking == 0) << "nothing holds memory";
    for (const auto& [number, program] : all)
      ASSERT_LE(cache->used_bytes_of(program.user), options_.user_bytes_max) << "user " << program.user;
    ASSERT_TRUE(failures.empty()) << failures.front();
  }

  std::shared_ptr<BufferCache> cache = BufferCache::make({});
  KeptFrames store;
  std::unique_ptr<Mover> mover;
  std::map<ChannelNumber, Program> all;
  std::vector<std::string> failures;
  TimeNs now = 0;

 private:
  void send(ChannelNumber number, std::uint64_t charge, std::uint64_t bytes, const std::string& key) {
    all[number].charged += charge;
    ask(number, wire::EntryKind::send,
        wire::Send{.stream = 0,
                   .charge = charge,
                   .rows = 0,
                   .row_key = key,
                   .column_key = {},
                   .nodes = {},
                   .buffers = {{.region = 1, .generation = 1, .offset = 0, .length = bytes}},
                   .set = 0});
  }
  template <class Message>
  void ask(ChannelNumber number, wire::EntryKind kind, const Message& message) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    mover->on_request(number, {++ticket_, static_cast<std::uint8_t>(kind), payload}, now, effects_);
    take_effects();
  }
  void take_effects() {
    for (service::Effect& effect : effects_) {
      if (auto* pull = std::get_if<service::PullEffect>(&effect)) {
        if (all[pull->channel].is_open) pulls_.push_back(std::move(*pull));
      } else if (auto* failed = std::get_if<service::FailEffect>(&effect)) {
        failures.push_back(failed->failure.message);
      } else if (const auto* reply = std::get_if<service::ReplyEffect>(&effect)) {
        all[reply->channel].base = std::get<wire::Opened>(reply->message).charge_base;
      } else if (const auto* line = std::get_if<service::LineEffect>(&effect)) {
        Program& program = all[line->channel];
        std::uint64_t& word = line->word == service::LineEffect::Word::pulled   ? program.pulled
                              : line->word == service::LineEffect::Word::stored ? program.stored
                                                                                : program.credit;
        EXPECT_TRUE(line->value >= word) << "words only grow";
        word = line->value;
        while (!program.posted.empty() && program.posted.front() <= program.stored) program.posted.pop_front();
      }
    }
    effects_.clear();
  }

  MoverOptions options_;
  Effects effects_;
  std::vector<service::PullEffect> pulls_;
  std::uint64_t ticket_ = 0, rows_ = 0;
  ChannelNumber channels_ = 0;
};

constexpr std::uint64_t mebibytes = 1 << 20;

TEST(Credit, OfIdleStreamsIsTakenBackForOneThatAsks) {
  Programs programs({.memory_bytes_max = 48 * mebibytes});
  for (int i = 0; i < 60; ++i) {
    const ChannelNumber idle = programs.open(0);
    ASSERT_TRUE(programs.post(idle, 64 << 10));
    programs.end_pulls();
    programs.drop_oldest();  // a reader has taken it
  }
  EXPECT_EQ(programs.cache->used_bytes(), 0u);
  EXPECT_GT(programs.mover->counters().promised_bytes, 40 * mebibytes) << "to programs that may never send again";
  const ChannelNumber one = programs.open(0);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(programs.post(one, 15 * mebibytes)) << i;
  programs.end_pulls();
  programs.check();
  EXPECT_EQ(programs.all[one].posted.size(), 0u);
  EXPECT_FALSE(programs.post(one, 15 * mebibytes)) << "three are held";
  programs.drop_oldest();
  EXPECT_TRUE(programs.post(one, 15 * mebibytes));
}

TEST(Credit, ThatWasTakenBackIsStillGoodWhenItIsUsed) {
  Programs programs({.memory_bytes_max = 16 * mebibytes});
  std::vector<ChannelNumber> idle;
  for (int i = 0; i < 30; ++i) {
    idle.push_back(programs.open(0));
    ASSERT_TRUE(programs.post(idle.back(), mebibytes));
    programs.end_pulls();
    programs.drop_oldest();
  }
  const ChannelNumber one = programs.open(0);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(programs.post(one, 5 * mebibytes));
  programs.end_pulls();
  // All of them post within their credit, up to three batches each, and most of them find no memory.
  std::size_t posted = 0;
  for (int round = 0; round < 3; ++round)
    for (const ChannelNumber number : idle)
      if (const auto& program = programs.all[number];
          program.charged + programs.charge_of(number, 100 << 10) <= program.credit)
        posted += programs.post(number, 100 << 10);
  programs.end_pulls();
  programs.check();
  EXPECT_GT(posted, 20u);
  EXPECT_GT(programs.unstored(), posted / 2);
  const auto waits = programs.mover->streams(programs.now);
  EXPECT_GT(std::ranges::count_if(waits, [](const auto& each) { return each.credit_lacking > 0; }), 10);
  for (std::size_t dropped = 0; programs.unstored() > 0; ++dropped) {
    ASSERT_LE(dropped, posted + 3) << programs.unstored() << " batches still wait";
    ASSERT_FALSE(programs.store.frames.empty()) << "nothing holds memory, and batches wait";
    programs.drop_oldest();
    programs.end_pulls();
    programs.check();
  }
  for (const auto& stream : programs.mover->streams(0)) EXPECT_EQ(stream.lacking_since, never);
}

TEST(Credit, IsTakenBackFromTheUserThatAsksFirst) {
  Programs programs({.memory_bytes_max = 32 * mebibytes});
  std::vector<ChannelNumber> of_one, of_other;
  for (int i = 0; i < 8; ++i) of_one.push_back(programs.open(1));
  for (int i = 0; i < 8; ++i) of_other.push_back(programs.open(2));
  std::uint64_t credit = 0;
  for (const auto& stream : programs.mover->streams(0)) credit += stream.credit_left;
  const std::uint64_t free = programs.mover->credit().memory_unused(),
                      before = programs.mover->counters().promised_bytes;
  ASSERT_EQ(credit, before) << "all of it is promised";
  ASSERT_TRUE(programs.post(programs.open(1), free + 2 * mebibytes));
  // The memory promised to the others of user 2 is there: they send without a wait.
  for (const ChannelNumber number : of_other) {
    if (const auto& program = programs.all[number]; program.credit < programs.charge_of(number, 64 << 10)) continue;
    ASSERT_TRUE(programs.post(number, 64 << 10));
  }
  programs.end_pulls();
  programs.check();
  EXPECT_EQ(programs.unstored(), 0u);
}

TEST(Credit, OfAUserBeyondItsShareComesFromItsOwnStreams) {
  Programs programs({.memory_bytes_max = 64 * mebibytes, .user_bytes_max = 16 * mebibytes});
  for (int i = 0; i < 40; ++i) (void)programs.open(1);
  EXPECT_TRUE(programs.post(programs.open(1), 15 * mebibytes));
  programs.end_pulls();
  EXPECT_FALSE(programs.post(programs.open(1), 4 * mebibytes)) << "more than the share";
  EXPECT_TRUE(programs.post(programs.open(2), 15 * mebibytes)) << "another user";
  programs.end_pulls();
  programs.check();
}

TEST(Credit, AStreamThatAskedFirstIsNotPassedByThoseThatHaveCredit) {
  Programs programs({.memory_bytes_max = 16 * mebibytes});
  const ChannelNumber large = programs.open(0), busy = programs.open(0);
  for (int i = 0; i < 12; ++i) {
    ASSERT_TRUE(programs.post(busy, mebibytes));
    programs.end_pulls();
  }
  ASSERT_FALSE(programs.post(large, 12 * mebibytes));
  // The other stream goes on as long as it gets anything; its frames are dropped one by one.
  for (int i = 0; i < 100 && !programs.post(large, 12 * mebibytes); ++i) {
    (void)programs.post(busy, mebibytes);
    programs.end_pulls();
    programs.drop_oldest();
  }
  EXPECT_EQ(programs.all[large].posted.size(), 1u);
  programs.end_pulls();
  programs.check();
}

TEST(Credit, ABatchOnCreditPassesAnAskThatIsTooLargeForNow) {
  Programs programs({.memory_bytes_max = 8 * mebibytes});
  const ChannelNumber idle = programs.open(0), other = programs.open(0), large = programs.open(0);
  while (programs.post(other, 500 << 10)) programs.end_pulls();
  ASSERT_FALSE(programs.post(large, 4 * mebibytes));
  programs.drop_oldest();  // which the other one's ask takes
  ASSERT_TRUE(programs.post(idle, 400 << 10));
  ASSERT_EQ(programs.all[idle].posted.size(), 1u) << "it waits for memory";
  programs.drop_oldest();
  programs.end_pulls();
  EXPECT_EQ(programs.all[idle].posted.size(), 0u);
  programs.check();
}

// Memory that ranks of a job hold may be freed only when the last of them has sent its part of the step.
TEST(Credit, AnAskHoldsUpOthersForAWhileOnly) {
  Programs programs({.memory_bytes_max = 16 * mebibytes});
  const ChannelNumber first = programs.open(0), second = programs.open(0);
  ASSERT_TRUE(programs.post(first, 8 * mebibytes));
  programs.end_pulls();
  ASSERT_FALSE(programs.post(first, 10 * mebibytes));
  ASSERT_FALSE(programs.post(second, 4 * mebibytes)) << "in its turn";
  programs.pass(2 * second_ns);
  EXPECT_TRUE(programs.post(second, 4 * mebibytes));
  programs.end_pulls();
  programs.check();
}

TEST(Credit, AnAskThatCanNeverBeMetHoldsUpNobody) {
  Programs programs({.memory_bytes_max = 16 * mebibytes, .user_bytes_max = 8 * mebibytes});
  const ChannelNumber greedy = programs.open(1), full = programs.open(2), other = programs.open(3);
  programs.ask_for(greedy, UINT64_MAX);
  EXPECT_TRUE(programs.post(full, 6 * mebibytes));
  programs.end_pulls();
  EXPECT_FALSE(programs.post(full, 4 * mebibytes)) << "beyond its user's share";
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(programs.post(other, 2 * mebibytes)) << i;
  programs.end_pulls();
}

TEST(Credit, ABatchThatNeedsWhatIsKeptForMembersMayUseIt) {
  Programs programs({.memory_bytes_max = 16 * mebibytes});
  programs.keep_for_members(3 * mebibytes);
  const ChannelNumber one = programs.open(0);
  const std::uint64_t promised = programs.mover->counters().promised_bytes;
  ASSERT_GT(promised, 2 * mebibytes / 8);
  EXPECT_TRUE(programs.post(one, programs.mover->credit().memory_max_for_programs() + promised / 2))
      << "else it waits forever";
}

TEST(Credit, ManyBatchesThatFailAtOnceNeedNoStack) {
  Programs programs({.memory_bytes_max = 8 * mebibytes});
  const ChannelNumber idle = programs.open(0), other = programs.open(0);
  while (programs.post(other, 500 << 10)) programs.end_pulls();
  ASSERT_TRUE(programs.mover->credit().make_free(programs.mover->credit().memory_reach_for_programs()));
  programs.keep_for_members(programs.mover->credit().memory_unused());
  constexpr std::size_t count = 20'000;
  const std::uint64_t credit = programs.all[idle].credit;
  std::size_t posted = 0;
  for (; posted < count && programs.all[idle].charged + 64 <= credit; ++posted) programs.post_one_that_fails(idle);
  ASSERT_GT(posted, count / 4);
  EXPECT_EQ(programs.mover->counters().failures, 0u) << "they wait for memory";
  programs.keep_for_members(0);
  EXPECT_EQ(programs.mover->counters().failures, posted);
}

// Requests that wait for memory are memory of the agent's own, beside that of frames.
TEST(Credit, ChannelsKeepFewerRequestsWhenAllOfThemKeepMany) {
  Programs programs(
      {.memory_bytes_max = 8 * mebibytes, .lacking_bytes_max = 64 << 10, .all_lacking_bytes_max = 32 << 10});
  const ChannelNumber one = programs.open(0), other = programs.open(0), full = programs.open(0);
  while (programs.post(full, 500 << 10)) programs.end_pulls();
  ASSERT_TRUE(programs.mover->credit().make_free(programs.mover->credit().memory_reach_for_programs()));
  programs.keep_for_members(programs.mover->credit().memory_unused());
  for (int i = 0; i < 3; ++i) programs.post_one_that_fails(one);
  EXPECT_FALSE(programs.mover->is_full(one)) << "alone it may keep more";
  for (int i = 0; i < 20; ++i) programs.post_one_that_fails(other);
  EXPECT_TRUE(programs.mover->is_full(one));
  EXPECT_TRUE(programs.mover->is_full(other));
  programs.keep_for_members(0);
  EXPECT_EQ(programs.mover->counters().failures, 23u);
  EXPECT_FALSE(programs.mover->is_full(one));
}

TEST(Credit, AProgramThatEndsLeavesNothingOfBatchesThatLackMemory) {
  Programs programs({.memory_bytes_max = 8 * mebibytes});
  const ChannelNumber idle = programs.open(0), other = programs.open(0);
  const std::uint64_t credit = programs.all[idle].credit;
  ASSERT_GT(credit, 512u << 10);
  while (programs.post(other, 500 << 10)) programs.end_pulls();
  ASSERT_TRUE(programs.post(idle, 400 << 10));
  EXPECT_EQ(programs.all[idle].posted.size(), 1u) << "it waits for memory";
  programs.close(idle);
  programs.close(other);
  programs.store.frames.clear();
  EXPECT_EQ(programs.mover->counters().promised_bytes, 0u);
  EXPECT_EQ(programs.mover->counters().claimed_bytes, 0u);
  EXPECT_EQ(programs.mover->counters().operations, 0u);
  EXPECT_EQ(programs.mover->credit().memory_unused(), 8 * mebibytes);
}

TEST(Credit, OtherServicesGetWhatIsOnlyPromised) {
  Programs programs({.memory_bytes_max = 8 * mebibytes});
  for (int i = 0; i < 40; ++i) (void)programs.open(static_cast<uid_t>(i % 3));
  ASSERT_LT(programs.mover->credit().memory_free(), mebibytes);
  EXPECT_TRUE(programs.mover->credit().make_free(7 * mebibytes));
  EXPECT_GE(programs.mover->credit().memory_free(), 7 * mebibytes);
  const Buffer taken = programs.cache->take(7 * mebibytes, 0).value();
  EXPECT_FALSE(programs.mover->credit().make_free(2 * mebibytes));
}

// Any programs, in any order: memory is never exceeded, no batch is lost or passed, and all end as memory is freed.
TEST(Credit, HoldsUpNobodyWhateverProgramsDo) {
  for (std::uint64_t seed = 1; seed <= 100 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    link::SeededRandom random(seed);
    const std::uint64_t memory = (4 + random.below(28)) * mebibytes;
    const std::uint64_t share = random.chance(0.5) ? UINT64_MAX : memory / 2;
    Programs programs({.memory_bytes_max = memory, .user_bytes_max = share});
    const std::uint64_t largest = std::min(memory, share) / 2;
    std::vector<ChannelNumber> open;
    for (int step = 0; step < 400 && !testing::Test::HasFailure(); ++step) {
      programs.now += static_cast<TimeNs>(random.below(1000));
      const std::uint64_t what = random.below(16);
      if (open.empty() || (what == 0 && open.size() < 50)) {
        open.push_back(programs.open(static_cast<uid_t>(random.below(3))));
      } else if (what == 1 && random.chance(0.2)) {
        const std::size_t at = random.below(open.size());
        programs.close(open[at]);
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
      } else if (what < 9) {
        (void)programs.post(open[random.below(open.size())],
                            1 + random.below(random.chance(0.1) ? largest : largest / 32));
      } else if (what < 13) {
        (void)programs.end_pull(random.next());
      } else {
        programs.drop_oldest();
      }
      programs.check();
    }
    while (!testing::Test::HasFailure() && (programs.end_pull() || !programs.store.frames.empty())) {
      programs.end_pulls();
      programs.drop_oldest();
      programs.check();
    }
    EXPECT_EQ(programs.unstored(), 0u);
    for (const ChannelNumber number : open) programs.close(number);
    EXPECT_EQ(programs.mover->counters().promised_bytes + programs.mover->counters().claimed_bytes, 0u);
  }
}

}  // namespace
}  // namespace offpath::mover
