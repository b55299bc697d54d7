#include "pool/query/query_service.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <arrow/ipc/reader.h>

#include "testing/pool/frames.h"
#include "wire/messages/message_kinds.h"
#include "wire/messages/peer_messages.h"
#include "wire/messages/replies.h"

namespace offpath::pool {
namespace {

using wire::EntryKind;

constexpr service::ChannelNumber asker = 1, stranger = 2;

// Answers for this member's rows and, as a test says, for those of others.
class FakeMembers final : public QueryMembers {
 public:
  struct Asked {
    std::string member;
    EntryKind kind;
    std::vector<std::byte> body, payload;
    Fetched fetched;
  };
  explicit FakeMembers(std::shared_ptr<service::BufferCache> cache) : cache_(std::move(cache)) {}

  const std::string& self() const noexcept override { return self_; }
  Result<std::vector<QuerySource>> choose(const std::string& pool, std::string_view, std::string_view, uid_t) override {
    if (pool != "local:/p") return fail(Error::not_found, "there is no pool \"{}\"", pool);
    return std::vector<QuerySource>(4, {frame_of(*particles(100'000, 1), *cache_), "r", "c"});
  }
  Result<std::optional<Spread>> spread(const std::string& pool) override {
    if (!pool.starts_with("hash:/")) return std::nullopt;
    return Spread{pool, members.size(), members, replicas, order};
  }
  std::vector<std::string> lost(const std::string& pool) const override {
    return pool.starts_with("hash:/") ? gone : std::vector<std::string>{};
  }
  Result<std::vector<QuerySource>> choose_part(const Part& part, service::Effects&) override {
    if (part.view != view) return fail(Error::would_block, "member {} knows of others", self_);
    return own;
  }
  Result<WaitCharge> charge(uid_t user, std::uint64_t bytes) override {
    return WaitAccounts::charge(accounts, user, bytes);
  }
  void fetch_part(std::string member, uid_t, EntryKind kind, TimeNs, std::vector<std::byte> body, Compose compose,
                  Fetched fetched, TimeNs, service::Effects&) override {
    std::vector<std::byte> payload;
    compose({.bytes = {.length = body.size()}}, 1, payload);
    asked.push_back({std::move(member), kind, std::move(body), std::move(payload), std::move(fetched)});
  }
  void cancel_part(const std::string& member, std::uint64_t, TimeNs, service::Effects&) override {
    cancelled.push_back(member);
  }
  // As who gives frames to programs does.
  void answer(const FrameTable::Get& get, const FramePtr& frame, TimeNs, service::Effects& effects) override {
    wire::Got got{};
    got.length = frame->bytes;
    got.rows = frame->rows;
    service::HandOverEffect over{get.channel, get.ticket, frame, got};
    effects.emplace_back(std::move(over));
  }

  std::vector<std::string> members = {"a", "b", "c"};
  std::uint32_t replicas = 1;
  std::vector<std::string> order, gone;
  std::uint64_t view = 3;
  std::vector<QuerySource> own;
  std::deque<Asked> asked;
  std::vector<std::string> cancelled;
  std::shared_ptr<WaitAccounts> accounts =
      std::make_shared<WaitAccounts>(WaitAccounts::Limits{64, 64, 1 << 20});  // requests, of a user, bytes

 private:
  std::shared_ptr<service::BufferCache> cache_;
  std::string self_ = "b";
};

class QueryServiceTest : public ::testing::Test {
 protected:
  QueryServiceTest() {
    service_.on_channel_open(asker, 1000);
    service_.on_channel_open(stranger, 1001);
  }
  static QueryService::Limits limits() {
    QueryService::Limits made;
    made.query = {.threads = 1, .frame_bytes_max = 64 << 10, .step_bytes = 128 << 10};
    made.open_max = 2;
    return made;
  }
  template <class Message>
  std::uint64_t ask(EntryKind kind, const Message& message, service::ChannelNumber channel = asker, TimeNs now = 0) {
    std::vector<std::byte> payload;
    wire::encode(message, payload);
    service_.on_request(channel, {++ticket_, static_cast<std::uint8_t>(kind), payload}, is_member_, now, effects_);
    return ticket_;
  }
  // Asks, lets the bytes arrive, and runs jobs until there is nothing to do but answer.
  void begin(const Query& query, std::int64_t wait_ns = -1, const std::string& pool = "local:/p") {
    const auto bytes = encode(query);
    ask(EntryKind::pool_query,
        wire::PoolQuery{pool, "*", "*", wait_ns, {.region = 1, .generation = 1, .offset = 0, .length = bytes.size()}});
    auto* const pull = effects_.empty() ? nullptr : std::get_if<service::PullEffect>(&effects_.back());
    if (pull == nullptr) return;
    std::memcpy(pull->pieces.at(0).to, bytes.data(), bytes.size());
    const std::uint64_t token = pull->token;
    effects_.clear();
    service_.on_transfer(token, {}, 0, effects_);
  }
  void run_jobs() {
    for (std::size_t i = 0; i < effects_.size(); ++i) {
      auto* const job = std::get_if<service::JobEffect>(&effects_[i]);
      if (job == nullptr) continue;
      const service::JobEffect taken = std::move(*job);
      effects_.erase(effects_.begin() + static_cast<std::ptrdiff_t>(i));
      service_.on_job(taken.token, taken.run(), 0, effects_);
      i = static_cast<std::size_t>(-1);
    }
  }
  template <class Effect>
  const Effect* only() {
    return effects_.size() == 1 ? std::get_if<Effect>(&effects_.front()) : nullptr;
  }
  std::uint64_t done() {
    const auto* const reply = only<service::ReplyEffect>();
    const auto* const said = reply != nullptr ? std::get_if<wire::Done>(&reply->message) : nullptr;
    EXPECT_NE(said, nullptr);
    const std::uint64_t value = said != nullptr ? said->value : 0;
    effects_.clear();
    return value;
  }
  std::string failure() {
    const auto* const failed = only<service::FailEffect>();
    const std::string message = failed != nullptr ? failed->failure.message : "no failure";
    effects_.clear();
    return message;
  }

  std::shared_ptr<service::BufferCache> cache_ = service::BufferCache::make({});
  FakeMembers members_{cache_};
  QueryService service_{limits(), cache_, members_};
  service::Effects effects_;
  std::uint64_t ticket_ = 0;
  bool is_member_ = false;
};

TEST_F(QueryServiceTest, FramesComeOneByOneAndStepsOnlyAsTheyAreAskedFor) {
  begin({});
  run_jobs();
  const std::uint64_t answer = done();
  std::uint64_t frames = 0, rows = 0;
  for (;; ++frames) {
    ask(EntryKind::query_next, wire::QueryNext{answer, frames});
    run_jobs();
    const auto* const over = only<service::HandOverEffect>();
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
  service_.on_channel_closed(asker, 0, effects_);
  EXPECT_EQ(service_.counters().open, 0u);
  EXPECT_EQ(service_.counters().running, 0u);
}

TEST_F(QueryServiceTest, WhoWantsItNoMoreCancelsItsRequest) {
  begin({});
  const std::uint64_t begun = ticket_;
  ask(EntryKind::pool_cancel, wire::PoolCancel{begun}, stranger);
  ask(EntryKind::pool_cancel, wire::PoolCancel{begun + 100});
  EXPECT_EQ(service_.counters().open, 1u);
  ask(EntryKind::pool_cancel, wire::PoolCancel{begun});
  EXPECT_EQ(service_.counters().open, 0u);
  run_jobs();  // the one that ran for it
  ASSERT_NE(only<service::FailEffect>(), nullptr);
  EXPECT_EQ(only<service::FailEffect>()->ticket, begun);
  EXPECT_EQ(only<service::FailEffect>()->failure.code, Error::cancelled);
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

// ---- over several members: this is b, of a, b and c

class QuerySpreadTest : public QueryServiceTest {
 protected:
  QuerySpreadTest() { members_.own = {{frame_of(*particles(100, 2), *cache_), "r2", "c"}}; }

  // The oldest unanswered request to that member.
  FakeMembers::Asked taken(const std::string& member) {
    const auto at = std::ranges::find(members_.asked, member, &FakeMembers::Asked::member);
    EXPECT_NE(at, members_.asked.end()) << member;
    if (at == members_.asked.end()) return {};
    FakeMembers::Asked one = std::move(*at);
    members_.asked.erase(at);
    return one;
  }
  void tell(const std::string& member, EntryKind kind, Result<QueryMembers::Reply> reply, TimeNs now = 0) {
    const FakeMembers::Asked asked = taken(member);
    EXPECT_EQ(asked.kind, kind);
    if (asked.fetched) asked.fetched(std::move(reply), now, effects_);
  }
  void tell_begun(const std::string& member, std::uint64_t has = 1) {
    tell(member, EntryKind::peer_query, QueryMembers::Reply{nullptr, has});
  }
  void tell_frame(const std::string& member, FramePtr frame) {
    tell(member, EntryKind::peer_query_next, QueryMembers::Reply{std::move(frame), 0});
  }
  void tell_end(const std::string& member) { tell(member, EntryKind::peer_query_next, QueryMembers::Reply{}); }
  std::uint64_t rows_given() {
    const auto* const over = only<service::HandOverEffect>();
    const std::uint64_t rows = over != nullptr ? over->got.rows : UINT64_MAX;
    effects_.clear();
    return rows;
  }
};

TEST_F(QuerySpreadTest, FramesFollowEachOtherInTheOrderOfMembers) {
  begin({}, -1, "hash:/p");
  EXPECT_EQ(members_.asked.size(), 2u);
  EXPECT_TRUE(decode_query(members_.asked.front().body));
  run_jobs();
  tell_begun("c");
  EXPECT_TRUE(effects_.empty());  // not before all have begun
  tell_begun("a");
  const std::uint64_t answer = done();
  ask(EntryKind::query_next, wire::QueryNext{answer, 0});
  EXPECT_TRUE(effects_.empty());
  tell_frame("a", frame_of(*particles(50, 1), *cache_));
  EXPECT_EQ(rows_given(), 50u);
  tell_end("a");  // was asked ahead, and this member's own frame then
  ask(EntryKind::query_next, wire::QueryNext{answer, 1});
  run_jobs();
  EXPECT_EQ(rows_given(), 100u);
  ask(EntryKind::query_next, wire::QueryNext{answer, 2});
  tell_frame("c", frame_of(*particles(0, 3), *cache_));  // says nothing that is not known
  EXPECT_TRUE(effects_.empty());
  tell_frame("c", frame_of(*particles(7, 3), *cache_));
  EXPECT_EQ(rows_given(), 7u);
  tell_end("c");
  ask(EntryKind::query_next, wire::QueryNext{answer, 3});
  EXPECT_EQ(done(), 0u);
  EXPECT_EQ(service_.counters().open, 0u);
  EXPECT_TRUE(members_.asked.empty() && members_.cancelled.empty());
}

// A part's bytes wait for its member though its query is over.
TEST_F(QuerySpreadTest, PartsAreTheirUsersUntilTheMembersHaveAnswered) {
  members_.accounts = std::make_shared<WaitAccounts>(WaitAccounts::Limits{8, 1, 1 << 20});
  const auto begin_anew = [&] {
    service_.on_channel_closed(asker, 0, effects_);
    service_.on_channel_open(asker, 1000);
    effects_.clear();
    begin({}, -1, "hash:/p");
  };
  begin_anew();
  ASSERT_EQ(members_.asked.size(), 2u);
  const std::string full =
      "1 requests of user 1000 are waiting, which is the limit of each user (limits.user_waiting_max)";
  begin_anew();
  EXPECT_EQ(failure(), full);
  tell("a", EntryKind::peer_query, fail(Error::cancelled, "not wanted"));
  begin_anew();
  EXPECT_EQ(failure(), full) << "c has not answered";
  tell("c", EntryKind::peer_query, fail(Error::cancelled, "not wanted"));
  begin_anew();
  EXPECT_EQ(members_.asked.size(), 2u);
}

TEST_F(QuerySpreadTest, APartsBytesCountForEachMemberThatIsAsked) {
  const std::uint64_t bytes = encode(Query{}).size() + 2;  // and "*" for rows and for columns
  members_.accounts = std::make_shared<WaitAccounts>(WaitAccounts::Limits{8, 8, 3 * bytes - 1});
  begin({}, -1, "hash:/p");
  EXPECT_EQ(failure(), fmt::format("requests that wait for objects would have keys of {} bytes, at most {} are allowed",
                                   3 * bytes, 3 * bytes - 1));
  EXPECT_TRUE(members_.asked.empty());
  members_.accounts = std::make_shared<WaitAccounts>(WaitAccounts::Limits{8, 8, 3 * bytes});
  begin({}, -1, "hash:/p");
  EXPECT_EQ(members_.asked.size(), 2u);
}

std::shared_ptr<arrow::RecordBatch> numbered(const std::vector<std::int64_t>& ids,
                                             const std::vector<std::int64_t>& steps, bool hidden) {
  std::vector<double> x(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) x[i] = static_cast<double>(ids[i]) + static_cast<double>(steps[i]) / 64;
  arrow::FieldVector fields = {arrow::field("x", arrow::float64()),
                               arrow::field(hidden ? "order by id" : "id", arrow::int64()),
                               arrow::field(hidden ? "order by step" : "step", arrow::int64())};
  return arrow::RecordBatch::Make(arrow::schema(fields), static_cast<std::int64_t>(ids.size()),
                                  {array_of(x), array_of(ids), array_of(steps)});
}

// Frames of all members are at hand, and rows leave them as soon as none can come before.
TEST_F(QuerySpreadTest, WhereMembersHaveAnOrderTheAnswerHasItToo) {
  members_.order = {"id", "step"};
  members_.own = {{frame_of(*numbered({-2, 2, 2, 8}, {1, 0, 3, 0}, false), *cache_), "r", "c"}};
  Query query;
  query.projections = {{"x", field("x")}};
  begin(query, -1, "hash:/p");
  const auto sent = decode_query(members_.asked.front().body);
  ASSERT_TRUE(sent);
  ASSERT_EQ(sent->projections.size(), 3u);
  EXPECT_EQ(sent->projections[1].expression, field("id"));
  run_jobs();
  tell_begun("a");
  tell_begun("c");
  const std::uint64_t answer = done();
  std::vector<double> x;
  std::uint64_t index = 0;
  const auto ask_next = [&] {
    ask(EntryKind::query_next, wire::QueryNext{answer, index++});
    run_jobs();
  };
  const auto take = [&] {
    const auto* const over = only<service::HandOverEffect>();
    ASSERT_NE(over, nullptr);
    arrow::io::BufferReader from(
        std::make_shared<arrow::Buffer>(reinterpret_cast<const std::uint8_t*>(over->frame->buffer.data()),
                                        static_cast<std::int64_t>(over->frame->bytes)));
    const auto table = arrow::ipc::RecordBatchStreamReader::Open(&from).ValueOrDie()->ToTable().ValueOrDie();
    EXPECT_EQ(table->num_columns(), 1);
    const auto batch = table->CombineChunksToBatch().ValueOrDie();
    const auto& values = static_cast<const arrow::DoubleArray&>(*batch->column(0));
    for (std::int64_t i = 0; i < values.length(); ++i) x.push_back(values.Value(i));
    effects_.clear();
  };
  ask_next();
  tell_frame("c", frame_of(*numbered({}, {}, true), *cache_));  // nothing in it: asked for the next
  tell_frame("a", frame_of(*numbered({-3, 1, 1}, {0, 2, 4}, true), *cache_));
  run_jobs();
  EXPECT_TRUE(effects_.empty());
  tell_frame("c", frame_of(*numbered({3, 9}, {5, 6}, true), *cache_));
  run_jobs();
  take();
  EXPECT_EQ(x, (std::vector<double>{-3, -2 + 1.0 / 64, 1 + 2.0 / 64,
                                    1 + 4.0 / 64}));  // up to what a's next frame may begin with
  ask_next();
  tell_end("a");
  run_jobs();
  take();
  ask_next();
  tell_end("c");
  run_jobs();
  if (effects_.empty()) ask_next();
  take();
  EXPECT_TRUE(std::ranges::is_sorted(x));
  EXPECT_EQ(x.size(), 9u);
  ask_next();
  EXPECT_EQ(done(), 0u);
  EXPECT_EQ(service_.counters().open, 0u);
}

TEST_F(QuerySpreadTest, AnAnswerInOrderWithoutRowsHasItsColumnsAndALostMemberEndsIt) {
  members_.order = {"id", "step"};
  members_.own.clear();
  Query query;
  query.projections = {{"x", field("x")}};
  begin(query, -1, "hash:/p");
  tell_begun("a");
  tell_begun("c", 0);
  std::uint64_t answer = done();
  tell_frame("a", frame_of(*numbered({}, {}, true), *cache_));
  tell_end("a");
  run_jobs();
  ask(EntryKind::query_next, wire::QueryNext{answer, 0});
  EXPECT_EQ(rows_given(), 0u);
  ask(EntryKind::query_next, wire::QueryNext{answer, 1});
  EXPECT_EQ(done(), 0u);
  begin(query, -1, "hash:/p");
  tell_begun("a");
  tell_begun("c");
  answer = done();
  tell_frame("a", frame_of(*numbered({1}, {1}, true), *cache_));
  tell("c", EntryKind::peer_query_next, tl::unexpected(Failure{Error::peer_lost, "connection reset"}));
  ask(EntryKind::query_next, wire::QueryNext{answer, 0});
  EXPECT_EQ(failure(), "member c: connection reset");
  EXPECT_EQ(service_.counters().open, 0u);
}

TEST_F(QuerySpreadTest, RowsThatCannotBePutInOrderAreRefused) {
  members_.order = {"id", "step"};
  members_.own.clear();
  begin({}, -1, "hash:/p");
  tell_begun("a");
  tell_begun("c", 0);
  const std::uint64_t answer = done();
  ask(EntryKind::query_next, wire::QueryNext{answer, 0});
  tell_frame("a", frame_of(*particles(3, 1), *cache_));
  run_jobs();
  EXPECT_EQ(failure(), "an answer to be put in order has not got column \"step\" once");
}

TEST_F(QuerySpreadTest, FiguresAreCombinedFromThoseOfAllThatHaveAny) {
  Query query;
  query.aggregates = {{AggregateFunction::count, "n", std::nullopt}};
  begin(query, -1, "hash:/p");
  const auto sent = decode_query(members_.asked.front().body);
  ASSERT_TRUE(sent);
  EXPECT_TRUE(sent->partial);
  run_jobs();
  tell_begun("c", 0);  // nothing that matches
  tell_begun("a");
  query.partial = true;
  auto run = QueryRun::make(query, {{frame_of(*particles(40, 1), *cache_), "r", "c"}}, limits().query,
                            QueryThreads::make(1), cache_, 0);
  ASSERT_TRUE(run);
  auto step = (*run)->step({});
  ASSERT_TRUE(step);
  tell_frame("a", step->frames.at(0));
  run_jobs();
  const std::uint64_t answer = done();
  ask(EntryKind::query_next, wire::QueryNext{answer, 0});
  const auto* const over = only<service::HandOverEffect>();
  ASSERT_NE(over, nullptr);
  arrow::io::BufferReader from(
      std::make_shared<arrow::Buffer>(reinterpret_cast<const std::uint8_t*>(over->frame->buffer.data()),
                                      static_cast<std::int64_t>(over->frame->bytes)));
  const auto table = arrow::ipc::RecordBatchStreamReader::Open(&from).ValueOrDie()->ToTable().ValueOrDie();
  EXPECT_EQ(table->GetColumnByName("n")->GetScalar(0).ValueOrDie()->ToString(), "140");
}

TEST_F(QuerySpreadTest, AMemberThatIsLostEndsItWithItsName) {
  const Failure lost{Error::peer_lost, "connection reset"};
  begin({}, -1, "hash:/p");
  tell("a", EntryKind::peer_query, tl::unexpected(lost));
  run_jobs();
  EXPECT_EQ(failure(), "member a: connection reset");
  EXPECT_EQ(members_.cancelled, std::vector<std::string>{"c"});
  members_.asked.clear();
  begin({}, -1, "hash:/p");
  run_jobs();
  tell_begun("a");
  tell_begun("c");
  const std::uint64_t answer = done();
  tell("a", EntryKind::peer_query_next, tl::unexpected(lost));  // nobody waits for a frame: it is said to who does
  EXPECT_TRUE(effects_.empty());
  ask(EntryKind::query_next, wire::QueryNext{answer, 0});
  EXPECT_EQ(failure(), "member a: connection reset");
  EXPECT_EQ(service_.counters().open, 0u);
  EXPECT_EQ(members_.cancelled, (std::vector<std::string>{"c", "c"}));
}

TEST_F(QuerySpreadTest, WhileMembersChangeItBeginsAnewUnlessRowsWentWithThem) {
  const Failure changing{Error::would_block, "member a knows of others"};
  begin({}, -1, "hash:/p");
  run_jobs();
  tell("a", EntryKind::peer_query, tl::unexpected(changing));
  EXPECT_EQ(members_.cancelled, std::vector<std::string>{"c"});
  EXPECT_EQ(service_.next_deadline(), limits().retry_ns);
  const FakeMembers::Asked before = taken("c");
  service_.on_time(limits().retry_ns, effects_);
  run_jobs();
  tell_begun("a");
  before.fetched(QueryMembers::Reply{nullptr, 1}, 0, effects_);  // to the question before: nobody waits for that
  EXPECT_TRUE(effects_.empty());
  tell_begun("c");
  done();
  members_.asked.clear();
  begin({}, -1, "hash:/p");
  run_jobs();
  tell("a", EntryKind::peer_query, tl::unexpected(changing));
  members_.members = {"a", "b"};
  members_.view = 2;
  service_.on_time(2 * limits().retry_ns, effects_);
  EXPECT_EQ(failure(), "member c was lost, with rows of pool \"hash:/p\", when the query began");
}

TEST_F(QuerySpreadTest, APartIsAskedOfItsMemberAloneWhileTheMembersAreThoseOfTheListing) {
  Query query;
  query.part = QueryPart{members_.view, "c"};
  begin(query, -1, "hash:/p");
  ASSERT_EQ(members_.asked.size(), 1u);
  EXPECT_FALSE(decode_query(members_.asked.front().body)->part);
  tell_begun("c");
  const std::uint64_t answer = done();
  ask(EntryKind::query_next, wire::QueryNext{answer, 0});
  tell_frame("c", frame_of(*particles(7, 3), *cache_));
  EXPECT_EQ(rows_given(), 7u);
  tell_end("c");
  ask(EntryKind::query_next, wire::QueryNext{answer, 1});
  EXPECT_EQ(done(), 0u);
  query.part->member = "b";
  begin(query, -1, "hash:/p");
  run_jobs();
  done();
  EXPECT_TRUE(members_.asked.empty());
  query.part->member = "d";
  begin(query, -1, "hash:/p");
  EXPECT_EQ(failure(), "pool \"hash:/p\": member d, whose part is asked for, is not one of its members any more");
  query.part = QueryPart{members_.view + 1, "c"};
  begin(query, -1, "hash:/p");
  EXPECT_EQ(failure(),
            "pool \"hash:/p\": its members have changed since the part of member c was listed: list its parts again");
}

TEST_F(QuerySpreadTest, RowsThatWereLostBeforeItBeganMakeItFailUnlessItLeavesThemOut) {
  members_.gone = {"d", "e"};
  begin({}, -1, "hash:/p");
  EXPECT_EQ(failure(),
            "pool \"hash:/p\": members d, e went with rows that no other member has; a partial answer leaves them out");
  EXPECT_TRUE(members_.asked.empty());
  Query query;
  query.without_lost = true;
  begin(query, -1, "hash:/p");
  EXPECT_EQ(members_.asked.size(), 2u);
  EXPECT_TRUE(decode_query(members_.asked.front().body)
                  ->without_lost);  // they would refuse it otherwise, if they know of the loss
  run_jobs();
  tell_begun("a");
  tell_begun("c");
  done();
}

TEST_F(QuerySpreadTest, WithCopiesTheRestAnswersAndAfterAWhileItIsGivenUp) {
  const Failure changing{Error::would_block, "member a knows of others"};
  members_.replicas = 2;
  begin({}, -1, "hash:/p");
  run_jobs();
  tell("a", EntryKind::peer_query, tl::unexpected(changing));
  members_.members = {"a", "b"};
  members_.view = 2;
  members_.asked.clear();
  service_.on_time(limits().retry_ns, effects_);
  EXPECT_EQ(members_.asked.size(), 1u);
  tell("a", EntryKind::peer_query, tl::unexpected(changing), limits().settle_ns);
  run_jobs();
  EXPECT_EQ(failure(), "member a knows of others");
}

TEST_F(QuerySpreadTest, OtherColumnsATimeThatIsOverAndAChannelThatEndsEndItEverywhere) {
  members_.own.clear();
  begin({}, 100, "hash:/p");
  tell_begun("a");
  tell_begun("c");
  const std::uint64_t answer = done();
  tell_frame("a", frame_of(*particles(5, 1), *cache_));
  tell_end("a");
  ask(EntryKind::query_next, wire::QueryNext{answer, 0});
  effects_.clear();
  ask(EntryKind::query_next, wire::QueryNext{answer, 1});
  tell_frame("c", frame_of(*mixed_batch(5), *cache_));
  EXPECT_EQ(failure().substr(0, 41), "members a and c answer different columns:");
  begin({}, 100, "hash:/p");
  service_.on_time(100, effects_);
  EXPECT_EQ(failure(), "the query's time was over before its answer was there");
  EXPECT_EQ(members_.cancelled, (std::vector<std::string>{"c", "a", "c"}));
  begin({}, -1, "hash:/p");
  service_.on_channel_closed(asker, 0, effects_);
  EXPECT_EQ(members_.cancelled.size(), 5u);
  EXPECT_EQ(service_.counters().open, 0u);
}

TEST_F(QuerySpreadTest, APartIsServedToMembersAloneUntilItIsCancelled) {
  const auto bytes = encode(Query{});
  const wire::PeerQuery asked{
      1000, 1000, -1, 4, 3, {.region = 1, .generation = 0, .offset = 0, .length = bytes.size()}, "hash:/p", "*", "*"};
  ask(EntryKind::peer_query, asked, stranger);
  EXPECT_EQ(failure().substr(0, 28), "members of a group are of on");
  is_member_ = true;
  ask(EntryKind::peer_query, asked, stranger);
  auto* const pull = std::get_if<service::PullEffect>(&effects_.back());
  ASSERT_NE(pull, nullptr);
  std::memcpy(pull->pieces.at(0).to, bytes.data(), bytes.size());
  const std::uint64_t token = pull->token;
  effects_.clear();
  service_.on_transfer(token, {}, 0, effects_);
  run_jobs();
  EXPECT_EQ(done(), 1u);
  ask(EntryKind::peer_query, asked, stranger);
  EXPECT_EQ(failure(), "part 4 of a query is 0, or there already");
  ask(EntryKind::peer_query_next, wire::PeerQueryNext{4, 0, 9, {}, "a"}, stranger);
  EXPECT_EQ(rows_given(), 100u);
  ask(EntryKind::peer_cancel, wire::PeerCancel{wire::PeerCancel::What::query, 4}, stranger);
  EXPECT_EQ(done(), 0u);
  EXPECT_EQ(service_.counters().open, 0u);
  ask(EntryKind::peer_query_next, wire::PeerQueryNext{4, 1, 9, {}, "a"}, stranger);
  EXPECT_EQ(failure().substr(0, 26), "there is no part 4 of a qu");
}

}  // namespace
}  // namespace offpath::pool
