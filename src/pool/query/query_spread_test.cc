// Queries over several members, which answer in any order, change, or are lost.
#include <gtest/gtest.h>

#include <algorithm>

#include <arrow/ipc/reader.h>

#include "pool/query/query_service.h"
#include "testing/pool/query_fixture.h"

namespace offpath::pool {
namespace {

// This is b, of a, b and c.
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
  tell_end("a");  // requested ahead, followed by this member's own frame
  ask(EntryKind::query_next, wire::QueryNext{answer, 1});
  run_jobs();
  EXPECT_EQ(rows_given(), 100u);
  ask(EntryKind::query_next, wire::QueryNext{answer, 2});
  tell_frame("c", frame_of(*particles(0, 3), *cache_));  // an empty frame: no news
  EXPECT_TRUE(effects_.empty());
  tell_frame("c", frame_of(*particles(7, 3), *cache_));
  EXPECT_EQ(rows_given(), 7u);
  tell_end("c");
  ask(EntryKind::query_next, wire::QueryNext{answer, 3});
  EXPECT_EQ(done(), 0u);
  EXPECT_EQ(service_.counters().open, 0u);
  EXPECT_TRUE(members_.asked.empty() && members_.cancelled.empty());
}

// A part's bytes stay charged until its member answers, even after the query's end.
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

// With a frame of each member, rows are returned as soon as no other row can precede them.
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
                                    1 + 4.0 / 64}));  // up to the possible start of a's next frame
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

// First frames have one schema, otherwise the query has failed already; here a broken member changes it later.
TEST_F(QuerySpreadTest, ALaterFrameWithAnotherTypeOfAColumnOfTheOrderIsRefused) {
  members_.order = {"id"};
  members_.own.clear();
  Query query;
  query.projections = {{"x", field("x")}};
  begin(query, -1, "hash:/p");
  tell_begun("a");
  tell_begun("c");
  const std::uint64_t answer = done();
  const auto x = array_of(std::vector<double>{1, 2});
  const auto of_column = [&](const std::shared_ptr<arrow::Array>& id) {
    return frame_of(
        *arrow::RecordBatch::Make(
            arrow::schema({arrow::field("x", arrow::float64()), arrow::field("order by id", id->type())}), 2, {x, id}),
        *cache_);
  };
  ask(EntryKind::query_next, wire::QueryNext{answer, 0});
  tell_frame("a", of_column(array_of(std::vector<std::int64_t>{1, 2})));
  tell_frame("c", of_column(array_of(std::vector<std::int64_t>{1, 2})));
  run_jobs();
  EXPECT_EQ(rows_given(), 4u);
  ask(EntryKind::query_next, wire::QueryNext{answer, 1});
  tell_frame("a", of_column(array_of(std::vector<std::int64_t>{3, 4})));
  arrow::StringBuilder texts;
  ASSERT_TRUE(texts.AppendValues({"3", "4"}).ok());
  tell_frame("c", of_column(texts.Finish().ValueOrDie()));
  run_jobs();
  EXPECT_EQ(failure(), "column \"id\", by which rows are ordered, is int64 of one member and string of another");
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
  tell("a", EntryKind::peer_query_next, tl::unexpected(lost));  // no request waits for a frame: the next one gets the
                                                                // failure
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
  before.fetched(QueryMembers::Reply{nullptr, 1}, 0, effects_);  // an answer to the request before, which is not
                                                                 // expected any more
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
            "pool \"hash:/p\": rows that only members d, e had are missing; a partial answer leaves them out");
  EXPECT_TRUE(members_.asked.empty());
  Query query;
  query.without_lost = true;
  begin(query, -1, "hash:/p");
  EXPECT_EQ(members_.asked.size(), 2u);
  EXPECT_TRUE(
      decode_query(members_.asked.front().body)->without_lost);  // otherwise they refuse it, if they know of the loss
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

TEST_F(QuerySpreadTest, CoresOfOneAgentThatAreLostCountOnce) {
  const Failure changing{Error::would_block, "member c knows of others"};
  members_.replicas = 2;
  members_.members = {"a", "a+1", "b", "c"};
  begin({}, -1, "hash:/p");
  run_jobs();
  tell("c", EntryKind::peer_query, tl::unexpected(changing));
  members_.members = {"b", "c"};
  members_.view = 2;
  members_.asked.clear();
  service_.on_time(limits().retry_ns, effects_);
  EXPECT_EQ(members_.asked.size(), 1u) << "the other copies are there";
  tell("c", EntryKind::peer_query, tl::unexpected(changing), limits().settle_ns);
  run_jobs();
  EXPECT_EQ(failure(), "member c knows of others");
}

TEST_F(QuerySpreadTest, WhileRowsMoveItIsRetriedUntilItsTimeIsOverAndSaysWhy) {
  const Failure moving{Error::would_block, "member a has rows that move"};
  const TimeNs deadline = 8 * limits().settle_ns;
  members_.own.clear();
  begin({}, deadline, "hash:/p");
  tell("a", EntryKind::peer_query, tl::unexpected(moving), 2 * limits().settle_ns);
  EXPECT_TRUE(effects_.empty()) << "its time is not over";
  service_.on_time(deadline - 1, effects_);
  tell("a", EntryKind::peer_query, tl::unexpected(moving), deadline - 1);
  EXPECT_TRUE(effects_.empty());
  service_.on_time(deadline, effects_);
  EXPECT_EQ(failure(), "the query's deadline passed before its answer was complete: member a has rows that move");
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
  EXPECT_EQ(failure(), "the query's deadline passed before its answer was complete");
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
  EXPECT_EQ(failure().substr(0, 28), "members of a group belong to");
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
