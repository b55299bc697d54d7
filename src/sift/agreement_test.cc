#include "sift/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace offpath::sift {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Outcome = Agreement::Outcome;

constexpr const char* of_two = "sift:/t?key=id&members=a,b";
constexpr const char* of_three = "sift:/t?key=id&members=a,b,c";
constexpr const char* first_of_two = "sift:/t?key=id&members=a,aa";

// Member "a" of a pool of "a" and "b"; "c" lives, outside of the pool.
class AgreementTest : public ::testing::Test {
 protected:
  std::vector<std::string> asked() {
    std::vector<std::string> members;
    for (const Agreement::Ask& each : std::exchange(asks_, {}))
      members.push_back(each.member + (each.tells ? "!" : "") + (each.sends ? "+" : ""));
    return members;
  }
  Outcome answer(const std::string& member, Result<std::uint64_t> answer) {
    return agreement_.on_answer(member, answer, alive_, now_, asks_);
  }
  Outcome work() { return agreement_.work(alive_, now_, asks_); }

  TimeNs now_ = 100 * second_ns;
  std::vector<std::string> alive_ = {"a", "b", "c"};
  Agreement::Asks asks_;
  Agreement agreement_{"a", of_two, {"a", "b"}};
};

TEST_F(AgreementTest, ComesWhenAllLivingMembersHaveConfirmed) {
  EXPECT_EQ(work(), Outcome::none);
  EXPECT_THAT(asked(), ElementsAre("b", "c"));
  EXPECT_EQ(answer("b", Agreement::promised), Outcome::none);
  EXPECT_FALSE(agreement_.is_agreed());
  EXPECT_EQ(answer("c", Agreement::promised), Outcome::agreed);
  EXPECT_TRUE(agreement_.is_agreed());
  EXPECT_TRUE(agreement_.may_put(now_));
}

TEST_F(AgreementTest, AConfirmationCountsForAFewSeconds) {
  EXPECT_EQ(work(), Outcome::none);
  EXPECT_EQ(answer("b", Agreement::promised), Outcome::none);
  now_ += Agreement::heard_for_ns + 1;
  EXPECT_EQ(answer("c", Agreement::promised), Outcome::none) << "the word of b is too old";
  EXPECT_EQ(answer("b", Agreement::promised), Outcome::agreed);
}

TEST_F(AgreementTest, AMemberThatDoesNotHaveTheDefinitionIsSentIt) {
  EXPECT_EQ(work(), Outcome::none);
  EXPECT_THAT(asked(), ElementsAre("b", "c"));
  EXPECT_EQ(answer("b", Agreement::wants_definition), Outcome::none);
  EXPECT_THAT(asked(), ElementsAre("b+"));
  EXPECT_EQ(answer("c", Agreement::promised), Outcome::none);
  EXPECT_FALSE(agreement_.is_agreed()) << "b has confirmed nothing";
  EXPECT_EQ(answer("b", Agreement::promised), Outcome::agreed);
}

TEST_F(AgreementTest, AMemberThatGoesOnWantingTheDefinitionIsSentItOnceEachTimeItIsAsked) {
  EXPECT_EQ(work(), Outcome::none);
  EXPECT_THAT(asked(), ElementsAre("b", "c"));
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(answer("b", Agreement::wants_definition), Outcome::none);
    EXPECT_THAT(asked(), ElementsAre("b+"));
    EXPECT_EQ(answer("b", Agreement::wants_definition), Outcome::none);
    EXPECT_EQ(work(), Outcome::none);
    EXPECT_THAT(asked(), IsEmpty()) << "before its time";
    now_ = agreement_.next_deadline();
    EXPECT_EQ(work(), Outcome::none);
    EXPECT_THAT(asked(), ElementsAre("b"));
  }
}

TEST_F(AgreementTest, AMemberThatRefusesTheDefinitionItselfIsTheAnswerToPuts) {
  for (const Error code : {Error::protocol, Error::version}) {
    Agreement agreement("a", of_two, {"a", "b"});
    EXPECT_EQ(agreement.work(alive_, now_, asks_), Outcome::none);
    EXPECT_EQ(agreement.on_answer("b", fail(code, "not in the form that members write"), alive_, now_, asks_),
              Outcome::none);
    EXPECT_EQ(agreement.on_answer("c", Agreement::promised, alive_, now_, asks_), Outcome::none);
    EXPECT_FALSE(agreement.is_agreed()) << "b has confirmed nothing";
    EXPECT_TRUE(agreement.may_put(now_));
    const TimeNs later = now_ + Agreement::refused_wait_ns;
    EXPECT_EQ(agreement.work(alive_, later, asks_), Outcome::hopeless);
    const Status refused = agreement.may_put(later);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("refused by member b: not in the form that members write"));
    agreement.on_restart("b");
    EXPECT_EQ(agreement.work(alive_, later, asks_), Outcome::none);
    EXPECT_TRUE(agreement.may_put(later)) << "a restarted member may be another version";
  }
}

TEST_F(AgreementTest, AMemberThatIsGoneIsNotWaitedFor) {
  EXPECT_EQ(work(), Outcome::none);
  EXPECT_EQ(answer("c", Agreement::promised), Outcome::none);
  alive_ = {"a", "c"};
  EXPECT_EQ(work(), Outcome::agreed);
}

TEST_F(AgreementTest, EachIsAskedOnceAtATimeAndAgainEverySecond) {
  EXPECT_EQ(work(), Outcome::none);
  EXPECT_THAT(asked(), ElementsAre("b", "c"));
  EXPECT_EQ(agreement_.next_deadline(), now_ + Agreement::ask_every_ns);
  EXPECT_EQ(answer("b", fail(Error::timeout, "no answer")), Outcome::none);
  EXPECT_EQ(work(), Outcome::none);
  EXPECT_THAT(asked(), IsEmpty()) << "before its time";
  now_ += Agreement::ask_every_ns;
  EXPECT_EQ(work(), Outcome::none);
  EXPECT_THAT(asked(), ElementsAre("b")) << "c has not answered";
}

TEST_F(AgreementTest, AMemberThatCannotTakePartHasNoOtherDefinition) {
  EXPECT_EQ(work(), Outcome::none);
  EXPECT_EQ(answer("b", fail(Error::no_memory, "full")), Outcome::none);
  EXPECT_EQ(answer("c", fail(Error::unsupported, "c is not one of its members")), Outcome::agreed);
}

TEST_F(AgreementTest, ARefusalThatLastsIsTheAnswerToPuts) {
  EXPECT_EQ(work(), Outcome::none);
  EXPECT_EQ(answer("b", fail(Error::exists, "b has it otherwise")), Outcome::none);
  EXPECT_TRUE(agreement_.may_put(now_)) << "it may still go";
  EXPECT_EQ(agreement_.confirm(false, now_), Agreement::unpromised);
  now_ += Agreement::refused_wait_ns;
  EXPECT_EQ(work(), Outcome::hopeless);
  const Status refused = agreement_.may_put(now_);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("different at member b: b has it otherwise"));
}

TEST_F(AgreementTest, AfterItMembersWithAnotherDefinitionAreTold) {
  EXPECT_EQ(agreement_.agree(now_), Outcome::agreed);
  EXPECT_EQ(agreement_.agree(now_), Outcome::none);
  EXPECT_EQ(answer("c", fail(Error::exists, "another")), Outcome::none);
  now_ = agreement_.next_deadline();
  EXPECT_EQ(work(), Outcome::none);
  EXPECT_THAT(asked(), ElementsAre("b", "c!"));
}

TEST_F(AgreementTest, AMemberThatForgotTheDefinitionItIsToldOfIsSentItAgain) {
  EXPECT_EQ(agreement_.agree(now_), Outcome::agreed);
  EXPECT_EQ(answer("c", fail(Error::exists, "another")), Outcome::none);
  now_ = agreement_.next_deadline();
  EXPECT_EQ(work(), Outcome::none);
  EXPECT_THAT(asked(), ElementsAre("b", "c!"));
  EXPECT_EQ(answer("c", fail(Error::would_block, "it does not have the definition")), Outcome::none);
  EXPECT_THAT(asked(), ElementsAre("c")) << "a question, which it can answer by a wish";
  EXPECT_EQ(answer("c", Agreement::wants_definition), Outcome::none);
  EXPECT_THAT(asked(), ElementsAre("c+"));
  EXPECT_EQ(answer("c", fail(Error::exists, "another")), Outcome::none);
  EXPECT_LE(agreement_.next_deadline() - now_, Agreement::rival_believed_ns / 2) << "while it still believes";
  now_ = agreement_.next_deadline();
  EXPECT_EQ(work(), Outcome::none);
  EXPECT_THAT(asked(), ElementsAre("c!"));
}

// Its promise to a third one still binds it.
TEST_F(AgreementTest, AMemberThatIsBoundIsAskedOnceBetweenTellings) {
  EXPECT_EQ(agreement_.agree(now_), Outcome::agreed);
  EXPECT_EQ(answer("c", fail(Error::exists, "another")), Outcome::none);
  for (int turn = 0; turn < 3; ++turn) {
    now_ = agreement_.next_deadline();
    EXPECT_EQ(work(), Outcome::none);
    EXPECT_THAT(asked(), ::testing::Contains("c!"));
    EXPECT_EQ(answer("c", fail(Error::would_block, "bound")), Outcome::none);
    EXPECT_THAT(asked(), ElementsAre("c"));
    EXPECT_EQ(answer("c", fail(Error::would_block, "bound")), Outcome::none);
    EXPECT_THAT(asked(), IsEmpty());
  }
}

TEST_F(AgreementTest, ADefinitionWithMoreMembersReplacesOneThatIsNotAgreedOn) {
  EXPECT_TRUE(agreement_.yield_to_proposed(of_three, now_));
  EXPECT_TRUE(agreement_.yield_to_proposed(first_of_two, now_)) << "as many members, and first in order";
  const Status later = agreement_.yield_to_proposed("sift:/t?key=id&members=b,c", now_);
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().code, Error::exists);
}

TEST_F(AgreementTest, AMemberThatHasPromisedTakesNoOtherForAWhile) {
  EXPECT_EQ(agreement_.confirm(false, now_), Agreement::promised);
  const Status bound = agreement_.yield_to_proposed(of_three, now_);
  ASSERT_FALSE(bound);
  EXPECT_EQ(bound.error().code, Error::would_block);
  EXPECT_EQ(agreement_.yield_to_agreed(of_three, now_).error().code, Error::would_block);
  now_ += Agreement::bound_for_ns;
  EXPECT_TRUE(agreement_.yield_to_proposed(of_three, now_));
  EXPECT_TRUE(agreement_.yield_to_agreed(of_three, now_));
}

TEST_F(AgreementTest, OfTwoThatWereAgreedOnTheOneThatLosesTakesNoMore) {
  EXPECT_EQ(agreement_.agree(now_), Outcome::agreed);
  EXPECT_EQ(agreement_.yield_to_agreed(first_of_two, now_).error().code, Error::exists);
  EXPECT_EQ(agreement_.rival(), first_of_two);
  EXPECT_THAT(agreement_.may_put(now_).error().message, HasSubstr(first_of_two));
  EXPECT_TRUE(agreement_.may_put(now_ + Agreement::rival_believed_ns)) << "nobody has spoken of it since";
}

TEST_F(AgreementTest, UnknownMembersOfADefinitionFromElsewhereAreWaitedForAtFirst) {
  alive_ = {"a"};
  EXPECT_EQ(agreement_.confirm(true, now_), Agreement::promised);
  EXPECT_THAT(agreement_.missing(alive_, now_), ElementsAre("b"));
  now_ += Agreement::meet_ns;
  EXPECT_THAT(agreement_.missing(alive_, now_), IsEmpty());
}

}  // namespace
}  // namespace offpath::sift
