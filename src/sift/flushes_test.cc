#include "sift/flushes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace offpath::sift {
namespace {

using ::testing::HasSubstr;

// Two members; element {2, *} of the last stage, of which this member, "a", holds some.
class FlushesTest : public ::testing::Test {
 protected:
  std::vector<FlushedEffect> end(TimeNs now = 0) {
    Effects effects;
    flushes_.end(elements_, now, effects);
    std::vector<FlushedEffect> ended;
    for (Effect& effect : effects) ended.push_back(std::move(std::get<FlushedEffect>(effect)));
    return ended;
  }
  std::vector<Element*> held() {
    std::vector<Element*> found;
    for (const std::uint32_t index : geometry_.elements_of(0, 2)) found.push_back(&elements_[{2, index}]);
    return found;
  }
  void mark(Element& element, const char* source, std::uint64_t flush) {
    PieceHeader header;
    header.source = {source, 1};
    header.flush = flush;
    flushes_.take_mark(element, header);
    flushes_.pass(element, 0);
  }

  SiftOptions options_{.settings = parse_settings("sift:/t?key=id&fanout=4").value(), .self = {"a", 1}, .memory = {}};
  Geometry geometry_ = Geometry::make(options_.settings, {"a", "b"}).value();
  StageBudgets budgets_{2, options_.settings.budget_bytes};
  Publications publications_{options_, geometry_, 0, budgets_};
  Elements elements_;
  Flushes flushes_{options_, geometry_, 0, publications_};
};

TEST_F(FlushesTest, EndsWhenEveryElementHereHasTheMarksOfAllSources) {
  EXPECT_TRUE(flushes_.begin(9, 4, 500));
  const auto elements = held();
  ASSERT_FALSE(elements.empty());
  for (Element* const each : elements) mark(*each, "a", 4);
  EXPECT_TRUE(end().empty());
  for (Element* const each : elements) {
    EXPECT_TRUE(end().empty());
    mark(*each, "b", 4);
  }
  const auto ended = end();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].token, 9u);
  EXPECT_TRUE(ended[0].status);
  EXPECT_EQ(flushes_.next_deadline(), never);
}

TEST_F(FlushesTest, PiecesTakenBeforeTheMarksAreWaitedFor) {
  EXPECT_TRUE(flushes_.begin(9, 1, 500));
  Element& first = *held().front();
  first.taken = 3;
  for (Element* const each : held())
    for (const char* source : {"a", "b"}) mark(*each, source, 1);
  EXPECT_TRUE(end().empty());
  first.gone.take(1, 3);
  flushes_.pass(first, 0);
  EXPECT_EQ(end().size(), 1u);
}

TEST_F(FlushesTest, AnElementOfTheFirstStageSendsAMarkToEachPart) {
  EXPECT_TRUE(flushes_.begin(9, 6, 500));
  EXPECT_FALSE(flushes_.begin(10, 6, 500)) << "the same flush is asked for twice and passed on once";
  Element& first = elements_[{1, 0}];
  first.flushes.push_back({6, 0});
  flushes_.pass(first, 0);
  Effects effects;
  publications_.send(1, effects);
  ASSERT_EQ(effects.size(), 4u);
  for (const Effect& effect : effects) EXPECT_EQ(std::get<PublishEffect>(effect).header.flush, 6u);
}

TEST_F(FlushesTest, TheDeadlineEndsItAndNamesTheSourceThatIsMissing) {
  EXPECT_TRUE(flushes_.begin(9, 4, 500));
  for (Element* const each : held()) mark(*each, "a", 4);
  EXPECT_EQ(flushes_.next_deadline(), 500);
  EXPECT_TRUE(end(499).empty());
  const auto ended = end(500);
  ASSERT_EQ(ended.size(), 1u);
  ASSERT_FALSE(ended[0].status);
  EXPECT_EQ(ended[0].status.error().code, Error::timeout);
  EXPECT_THAT(ended[0].status.error().message, HasSubstr("waits for 'b'"));
}

TEST_F(FlushesTest, ADropEndsAll) {
  EXPECT_TRUE(flushes_.begin(9, 4, 500));
  EXPECT_TRUE(flushes_.begin(10, 5, 400));
  Effects effects;
  flushes_.drop(fail(Error::cancelled, "dropped"), effects);
  ASSERT_EQ(effects.size(), 2u);
  EXPECT_EQ(std::get<FlushedEffect>(effects[1]).status.error().code, Error::cancelled);
  EXPECT_EQ(flushes_.next_deadline(), never);
}

}  // namespace
}  // namespace offpath::sift
