// Writes of a program and the parts of members, without channels: questions and answers are passed on by the test.
#include "sift/tracks/track_writes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace offpath::sift {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using What = wire::PeerWrite::What;

class TrackWritesTest : public ::testing::Test {
 protected:
  std::uint64_t begin(TimeNs deadline = never) {
    const auto number = writes.begin(1,
                                     {.name = "sift:/t",
                                      .text = "sift:/t?key=id",
                                      .pool_user = 7,
                                      .user = 7,
                                      .directory = "/d",
                                      .deadline = deadline},
                                     {"a", "b", "c"}, now, effects);
    EXPECT_TRUE(number);
    return number.value_or(0);
  }
  void answer(const std::string& member, Result<wire::Written> written) {
    const auto asked = open.extract(member);
    ASSERT_TRUE(asked) << member << " is not asked";
    writes.on_answer(asked.mapped().number, written, now, effects);
  }
  static wire::Written rows(std::uint64_t rows, bool over) { return {over, 1, over ? 1u : 0u, 1, rows, 100 * rows}; }
  void all_write() {
    for (const char* member : {"a", "b", "c"}) answer(member, rows(5, true));
  }
  // Unanswered questions to members.
  std::map<std::string, What> asked() const {
    std::map<std::string, What> all;
    for (const auto& [member, ask] : open) all.emplace(member, ask.what);
    return all;
  }
  Status ask_written(std::uint64_t number, TimeNs wait_ns, bool cancel = false) {
    return writes.serve(1, ++ticket, {number, wait_ns, cancel}, now, effects);
  }
  // The answer to the program's last question.
  std::optional<Result<wire::Written>> told() {
    for (const service::Effect& effect : effects) {
      if (const auto* reply = std::get_if<service::ReplyEffect>(&effect); reply != nullptr && reply->ticket == ticket)
        return std::get<wire::Written>(reply->message);
      if (const auto* failed = std::get_if<service::FailEffect>(&effect); failed != nullptr && failed->ticket == ticket)
        return tl::unexpected(failed->failure);
    }
    return std::nullopt;
  }

  TimeNs now = second_ns;
  std::uint64_t next = 1, ticket = 0;
  std::map<std::string, TrackWrites::Ask> open;
  service::Effects effects;
  TrackWrites writes{[this] { return next++; }, second_ns,
                     [this](const TrackWrites::Ask& ask, const TrackWrites::Wanted&, TimeNs, service::Effects&) {
                       open.insert_or_assign(ask.member, ask);
                     }};
};

// Members that have finished keep their files, so all others have to.
TEST_F(TrackWritesTest, AWriteWhoseMembersFinishIsNotCancelled) {
  for (const bool closes : {true, false}) {
    const std::uint64_t number = begin();
    for (int phase = 0; phase < 3; ++phase) all_write();
    ASSERT_EQ(asked().at("b"), What::finish);
    answer("a", rows(5, true));
    if (closes) {
      writes.on_closed(1, now, effects);
    } else {
      EXPECT_TRUE(ask_written(number, 0, true));
      ASSERT_TRUE(told());
      EXPECT_TRUE((*told())->over);
    }
    EXPECT_THAT(asked(), ElementsAre(std::pair("b", What::finish), std::pair("c", What::finish)));
    open.clear();
  }
}

TEST_F(TrackWritesTest, FilesHaveTheirNamesWhenAllMembersHaveWritten) {
  const std::uint64_t number = begin();
  EXPECT_THAT(asked(),
              ElementsAre(std::pair("a", What::begin), std::pair("b", What::begin), std::pair("c", What::begin)));
  answer("a", rows(2, false));
  EXPECT_EQ(open.at("a").what, What::more);
  EXPECT_TRUE(ask_written(number, 0));
  ASSERT_TRUE(told());
  EXPECT_EQ((*told())->rows, 2u);
  EXPECT_FALSE((*told())->over);
  EXPECT_TRUE(ask_written(number, never));
  all_write();
  EXPECT_THAT(asked(), ElementsAre(std::pair("a", What::more), std::pair("b", What::more), std::pair("c", What::more)));
  all_write();
  EXPECT_THAT(asked(),
              ElementsAre(std::pair("a", What::publish), std::pair("b", What::publish), std::pair("c", What::publish)));
  all_write();
  EXPECT_FALSE(told());
  EXPECT_EQ(asked().at("b"), What::finish);
  answer("a", rows(5, true));
  answer("b", fail(Error::peer_lost, "member b is gone"));
  answer("c", rows(5, true));
  ASSERT_TRUE(told());
  EXPECT_TRUE((*told())->over);
  EXPECT_EQ((*told())->rows, 15u);
  EXPECT_EQ((*told())->files, 3u);
  EXPECT_EQ((*told())->members_over, 3u);
  EXPECT_TRUE(open.empty());
  EXPECT_TRUE(ask_written(number, 0));
  EXPECT_TRUE((*told())->over) << "the first answer may have come too late";
  EXPECT_TRUE(ask_written(number, 0, true));
  EXPECT_FALSE(ask_written(number, 0)) << "it is forgotten";
}

TEST_F(TrackWritesTest, MembersThatWaitForOthersAreAskedAgainAndConfirmTheirParts) {
  begin();
  answer("a", rows(5, true));
  answer("b", rows(5, true));
  for (int i = 0; i < 5; ++i) {
    ASSERT_LE(writes.next_deadline(), now + TrackWrites::keep_ns);
    now = writes.next_deadline();
    writes.on_time(now, effects);
    EXPECT_THAT(asked(),
                ElementsAre(std::pair("a", What::more), std::pair("b", What::more), std::pair("c", What::begin)));
    answer("a", rows(5, true));
    answer("b", rows(5, true));
  }
  answer("c", rows(5, true));
  EXPECT_THAT(asked(), ElementsAre(std::pair("a", What::more), std::pair("b", What::more), std::pair("c", What::more)));
  answer("a", rows(5, true));
  answer("b", rows(5, true));
  answer("c", fail(Error::not_found, "member c: there is no write"));
  EXPECT_EQ(open.at("a").what, What::abandon) << "no file has a name";
}

TEST_F(TrackWritesTest, NoQuestionIsLeftOfWritesThatFail) {
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t number = begin();
    for (const auto& [member, ask] : std::map(open))
      writes.on_answer(ask.number, fail(Error::io, "full"), now, effects);
    EXPECT_TRUE(ask_written(number, never));
    open.clear();  // no member answers to abandon
  }
  EXPECT_EQ(writes.asks(), 0u);
}

TEST_F(TrackWritesTest, TheFirstFailureEndsAllParts) {
  const std::uint64_t number = begin();
  EXPECT_TRUE(ask_written(number, never));
  answer("b", fail(Error::peer_lost, "member b is gone"));
  ASSERT_TRUE(told());
  EXPECT_EQ(told()->error().code, Error::peer_lost);
  EXPECT_THAT(told()->error().message, HasSubstr("member b"));
  EXPECT_THAT(asked(),
              ElementsAre(std::pair("a", What::abandon), std::pair("b", What::abandon), std::pair("c", What::abandon)));
  answer("a", rows(5, true));
  answer("c", fail(Error::io, "no"));
  EXPECT_THAT(asked(), ElementsAre(std::pair("b", What::abandon))) << "nothing more is asked";
  EXPECT_NE(begin(), number) << "another one may begin";
}

TEST_F(TrackWritesTest, AFailureThatNobodyWaitsForIsToldWhenItIsAskedFor) {
  const std::uint64_t number = begin();
  answer("b", fail(Error::io, "full"));
  EXPECT_TRUE(ask_written(number, never));
  ASSERT_TRUE(told());
  EXPECT_EQ(told()->error().code, Error::io);
}

// To the program would_block means that its agent is slow, so it would ask for ever.
TEST_F(TrackWritesTest, AMemberThatIsNotReadyEndsItAsOneThatIsLate) {
  const std::uint64_t number = begin();
  answer("c", fail(Error::would_block, "agent c is still reading its kept objects"));
  ASSERT_TRUE(ask_written(number, second_ns));
  ASSERT_TRUE(told());
  EXPECT_EQ(told()->error().code, Error::timeout);
  EXPECT_THAT(told()->error().message, HasSubstr("still reading"));
}

TEST_F(TrackWritesTest, AMemberThatDiesOrStartsAnewEndsItThoughItsPartIsWritten) {
  const std::vector<std::string> all = {"a", "b", "c"}, two = {"a", "b"}, anew = {"c"};
  for (const bool restarts : {false, true}) {
    open.clear();
    effects.clear();
    const std::uint64_t number = begin();
    answer("c", rows(5, true));  // it waits for the others and is not asked for some time
    writes.on_members(all, {}, now, effects);
    ASSERT_TRUE(ask_written(number, second_ns));
    EXPECT_FALSE(told());
    if (restarts)
      writes.on_members(all, anew, now, effects);
    else
      writes.on_members(two, {}, now, effects);
    ASSERT_TRUE(told());
    EXPECT_THAT(told()->error().message, HasSubstr(restarts ? "member c was restarted" : "member c died"));
    EXPECT_EQ(asked().at("a"), What::abandon);
  }
}

TEST_F(TrackWritesTest, AMemberThatDiesWhenAllFilesHaveTheirNamesEndsNothing) {
  const std::vector<std::string> two = {"a", "b"};
  const std::uint64_t number = begin();
  for (unsigned state = 0; state < 3; ++state) all_write();  // begin, confirm, publish
  ASSERT_EQ(asked().at("c"), What::finish);
  writes.on_members(two, {}, now, effects);
  ASSERT_TRUE(ask_written(number, second_ns));
  EXPECT_FALSE(told());
  for (const char* member : {"a", "b"}) answer(member, rows(5, true));
  answer("c", fail(Error::peer_lost, "it died"));
  ASSERT_TRUE(told());
  EXPECT_TRUE(*told());
}

TEST_F(TrackWritesTest, WithoutRowsNothingIsNamed) {
  const std::uint64_t number = begin();
  EXPECT_TRUE(ask_written(number, never));
  for (const char* member : {"a", "b", "c"}) answer(member, rows(0, true));
  ASSERT_TRUE(told());
  EXPECT_EQ(told()->error().code, Error::not_found);
  EXPECT_EQ(open.at("a").what, What::abandon);
}

TEST_F(TrackWritesTest, TheDeadlineAndTheProgramsEndEndIt) {
  const std::uint64_t number = begin(now + second_ns);
  answer("a", rows(5, true));
  EXPECT_TRUE(ask_written(number, 100 * millisecond_ns));
  now = writes.next_deadline();
  writes.on_time(now, effects);
  ASSERT_TRUE(told());
  EXPECT_EQ((*told())->members_over, 1u);
  EXPECT_TRUE(ask_written(number, never));
  now = writes.next_deadline();
  writes.on_time(now, effects);
  ASSERT_TRUE(told());
  EXPECT_EQ(told()->error().code, Error::timeout);
  EXPECT_THAT(told()->error().message, HasSubstr("1 of 3 members"));
  EXPECT_EQ(writes.next_deadline(), never);

  const std::uint64_t other = begin();
  EXPECT_FALSE(writes.serve(2, 9, {other, 0, false}, now, effects)) << "it is another program's";
  writes.on_closed(1, now, effects);
  EXPECT_EQ(open.at("c").what, What::abandon);
  EXPECT_FALSE(ask_written(other, 0));
}

TEST_F(TrackWritesTest, OneOfAPoolAtATime) {
  const std::uint64_t number = begin();
  const auto second =
      writes.begin(2, {.name = "sift:/t", .text = "", .pool_user = 7, .user = 7, .directory = "/e", .deadline = never},
                   {"a"}, now, effects);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Error::exists);
  EXPECT_THAT(second.error().message, HasSubstr("/d"));
  EXPECT_TRUE(ask_written(number, never, true));
  ASSERT_TRUE(told());
  EXPECT_EQ(told()->error().code, Error::cancelled);
  EXPECT_EQ(open.at("a").what, What::abandon);
}

}  // namespace
}  // namespace offpath::sift
