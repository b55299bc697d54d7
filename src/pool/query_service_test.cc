#include "pool/query_service.h"

#include <gtest/gtest.h>

#include "pool/test_frames.h"

namespace offpath::pool {
namespace {

using wire::EntryKind;

constexpr mover::ChannelNumber asker = 1, stranger = 2;

class QueryServiceTest : public ::testing::Test {
 protected:
  QueryServiceTest() : service_(limits(), cache_, [this](const std::string& pool, auto, auto, uid_t) { return choose(pool); }, give) {
    service_.on_channel_open(asker, 1000);
    service_.on_channel_open(stranger, 1001);
  }
  static QueryService::Limits limits() {
    QueryService::Limits made;
    made.query = {.threads = 1, .frame_bytes_max = 64 << 10, .step_bytes = 128 << 10};
    made.open_max = 2;
    return made;
  }
  // As who gives frames to programs does.
  static void give(mover::ChannelNumber channel, std::uint64_t ticket, const FramePtr& frame, mover::Effects& effects) {
    wire::Got got{};
    got.length = frame->bytes;
    got.rows = frame->rows;
    mover::HandOverEffect over{channel, ticket, frame, got};
    effects.emplace_back(std::move(over));
  }
  Result<std::vector<QuerySource>> choose(const std::string& pool) {
    if (pool != "local:/p") return fail(Error::not_found, "there is no pool \"{}\"", pool);
    return std::vector<QuerySource>(4, {frame_of(*particles(100'000, 1), *cache_), "r", "c"});
  }

  template <class Message>
  std::uint64_t ask(EntryKind kind, const Message& message, mover::ChannelNumber channel = asker, TimeNs now = 0) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    service_.on_request(channel, {++ticket_, static_cast<std::uint8_t>(kind), payload}, now, effects_);
    return ticket_;
  }
  // Asks, lets the bytes arrive, and runs jobs until there is nothing to do but answer.
  void begin(const Query& query, std::int64_t wait_ns = -1, const std::string& pool = "local:/p") {
    const auto bytes = encode(query);
    ask(EntryKind::pool_query, wire::PoolQuery{pool, "*", "*", wait_ns, {.region = 1, .generation = 1, .offset = 0, .length = bytes.size()}});
    auto* const pull = effects_.empty() ? nullptr : std::get_if<mover::PullEffect>(&effects_.back());
    if (pull == nullptr) return;
    std::memcpy(pull->pieces.at(0).to, bytes.data(), bytes.size());
    const std::uint64_t token = pull->token;
    effects_.clear();
    service_.on_transfer(token, {}, effects_);
  }
  void run_jobs() {
    for (std::size_t i = 0; i < effects_.size(); ++i) {
      auto* const job = std::get_if<mover::JobEffect>(&effects_[i]);
      if (job == nullptr) continue;
      const mover::JobEffect taken = std::move(*job);
      effects_.erase(effects_.begin() + static_cast<std::ptrdiff_t>(i));
      service_.on_job(taken.token, taken.run(), effects_);
      i = static_cast<std::size_t>(-1);
    }
  }
  template <class Effect>
  const Effect* only() {
    return effects_.size() == 1 ? std::get_if<Effect>(&effects_.front()) : nullptr;
  }
  std::uint64_t done() {
    const auto* const reply = only<mover::ReplyEffect>();
    const auto* const said = reply != nullptr ? std::get_if<wire::Done>(&reply->message) : nullptr;
    EXPECT_NE(said, nullptr);
    const std::uint64_t value = said != nullptr ? said->value : 0;
    effects_.clear();
    return value;
  }
  std::string failure() {
    const auto* const failed = only<mover::FailEffect>();
    const std::string message = failed != nullptr ? failed->failure.message : "no failure";
    effects_.clear();
    return message;
  }

  std::shared_ptr<mover::BufferCache> cache_ = mover::BufferCache::make({});
  QueryService service_;
  mover::Effects effects_;
  std::uint64_t ticket_ = 0;
};

TEST_F(QueryServiceTest, FramesComeOneByOneAndStepsOnlyAsTheyAreAskedFor) {
  begin({});
  run_jobs();
  const std::uint64_t answer = done();
  std::uint64_t frames = 0, rows = 0;
  for (;; ++frames) {
    ask(EntryKind::query_next, wire::QueryNext{answer, frames});
    run_jobs();
    const auto* const over = only<mover::HandOverEffect>();
    if (over == nullptr) break;
    rows += over->got.rows;
    EXPECT_LE(over->got.length, 4u << 20);
    effects_.clear();
  }
  EXPECT_EQ(done(), 0u);
  EXPECT_EQ(rows, 400'000u);
  EXPECT_GT(service_.counters().steps, 1u);
  EXPECT_EQ(service_.counters().open, 0u);
  EXPECT_EQ(service_.counters().rows_read, 400'000u);
}

TEST_F(QueryServiceTest, WhatIsWrongWithAQueryIsSaidAtItsBeginning) {
  begin({}, -1, "local:/none");
  EXPECT_EQ(failure(), "there is no pool \"local:/none\"");
  Query query;
  query.filter = field("speed");
  begin(query);
  run_jobs();
  EXPECT_EQ(failure().substr(0, 34), "there is no column \"speed\"; there ");
  ask(EntryKind::pool_query, wire::PoolQuery{"local:/p", "*", "*", -1, {.length = query_bytes_max + 1}});
  EXPECT_EQ(failure(), "a query of 1048577 bytes, 1 to 1048576 are allowed");
  begin({});
  effects_.clear();
  EXPECT_EQ(service_.counters().open, 1u);
}

TEST_F(QueryServiceTest, ATimeThatIsOverEndsItWhetherAJobRunsOrNot) {
  begin({}, 100);
  EXPECT_EQ(service_.next_deadline(), 100);
  service_.on_time(100, effects_);  // its first step is running, and sees the stop
  run_jobs();
  EXPECT_EQ(failure(), "the query's time was over before its answer was there");
  begin({}, 100);
  run_jobs();
  const std::uint64_t answer = done();
  service_.on_time(100, effects_);
  EXPECT_TRUE(effects_.empty());
  ask(EntryKind::query_next, wire::QueryNext{answer, 0});
  EXPECT_EQ(failure().substr(0, 18), "there is no answer");
}

TEST_F(QueryServiceTest, AnswersBelongToTheirChannelAndEndWithIt) {
  begin({});
  run_jobs();
  const std::uint64_t answer = done();
  ask(EntryKind::query_next, wire::QueryNext{answer, 0}, stranger);
  EXPECT_EQ(failure().substr(0, 18), "there is no answer");
  ask(EntryKind::release, wire::Release{answer}, stranger);
  EXPECT_EQ(service_.counters().open, 1u);
  ask(EntryKind::query_next, wire::QueryNext{answer, 7});
  EXPECT_EQ(failure(), "frame 7 of an answer was asked for, it is at 0");
  begin({});
  begin({});
  run_jobs();
  service_.on_channel_closed(asker, effects_);
  EXPECT_EQ(service_.counters().open, 0u);
  EXPECT_EQ(service_.counters().running, 0u);
}

TEST_F(QueryServiceTest, OneStepAtATimeAndSoManyAnswersOfAChannel) {
  begin({});
  EXPECT_EQ(service_.counters().running, 1u);
  auto first = std::move(effects_);
  effects_.clear();
  begin({});
  EXPECT_TRUE(effects_.empty());  // waits for its place
  begin({});
  EXPECT_EQ(failure(), "the program has 2 answers open, which is the limit");
  effects_ = std::move(first);
  run_jobs();
  EXPECT_EQ(effects_.size(), 2u);  // both have begun
}

}  // namespace
}  // namespace offpath::pool
