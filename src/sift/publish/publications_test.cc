#include "sift/publish/publications.h"

#include <gtest/gtest.h>

#include "sift/split/particles.h"

namespace offpath::sift {
namespace {

constexpr ElementId from{1, 0}, to{2, 0};

class PublicationsTest : public ::testing::Test {
 protected:
  explicit PublicationsTest(const char* text = "sift:/t?key=id&fanout=2&threshold=4KiB&budget=1MiB&credit=200kB",
                            bool kept = false)
      : options_{.settings = parse_settings(text).value(), .self = {"a", 1}, .memory = memory_, .kept = kept} {}

  void publish(std::uint64_t rows, std::uint64_t split = 0, std::uint64_t sequence = 0) {
    const std::vector<std::uint64_t> ids(rows);
    publications_.publish(from, to,
                          {.runs = {{0, rows}},
                           .frame = particle_frame(*form_, ids, 0, memory_),
                           .overhead_bytes = form_->overhead_bytes(),
                           .split = split,
                           .sequence = sequence});
  }
  std::vector<PublishEffect> send() {
    Effects effects;
    publications_.send(1, effects);
    std::vector<PublishEffect> sent;
    for (Effect& effect : effects) sent.push_back(std::move(std::get<PublishEffect>(effect)));
    return sent;
  }

  FrameMemory memory_{BufferCache::make({.huge_pages = false}), 7};
  std::shared_ptr<const RowForm> form_ = RowForm::make(particle_schema(), "id").value();
  SiftOptions options_;
  Geometry geometry_ = Geometry::make(options_.settings, {"a", "b"}).value();
  StageBudgets budgets_{options_.settings.track_stage(), options_.settings.budget_bytes};
  Publications publications_{options_, geometry_, 0, budgets_};
};

TEST_F(PublicationsTest, APieceIsChargedUntilItIsAnswered) {
  publish(10);
  const std::uint64_t charged = budgets_[1].used_bytes;
  EXPECT_GT(charged, 0u);
  EXPECT_EQ(budgets_[1].outgoing, 1u);
  const auto sent = send();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(budgets_[1].used_bytes, charged);
  const auto outcome = publications_.on_published(sent[0].token, {}, 0);
  EXPECT_EQ(outcome.stage, 1u);
  ASSERT_TRUE(outcome.answered);
  EXPECT_EQ(outcome.answered->from, from);
  EXPECT_TRUE(outcome.answered->has_rows);
  EXPECT_EQ(budgets_[1].used_bytes, 0u);
  EXPECT_EQ(budgets_[1].outgoing, 0u);
  EXPECT_TRUE(publications_.empty());
}

TEST_F(PublicationsTest, AFailedOfferIsRepeatedUnderItsSequenceAfterAPauseThatDoubles) {
  publish(10);
  TimeNs now = 0, pause = 0;
  std::uint64_t sequence = 0;
  for (int attempt = 0; attempt < 20; ++attempt) {
    const auto sent = send();
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(sent[0].header.sequence, attempt > 0 ? sequence : 1);
    sequence = sent[0].header.sequence;
    EXPECT_FALSE(publications_.on_published(sent[0].token, fail(Error::peer_lost, "away"), now).answered);
    EXPECT_EQ(publications_.next_retry() - now, std::clamp(2 * pause, options_.retry_min_ns, options_.retry_max_ns));
    pause = publications_.next_retry() - now;
    EXPECT_TRUE(publications_.retry(now + pause - 1).empty());
    EXPECT_TRUE(send().empty());
    EXPECT_EQ(publications_.retry(now += pause), std::set<std::uint32_t>{1});
  }
  EXPECT_EQ(budgets_[1].published_again, 19u);
  EXPECT_EQ(publications_.next_retry(), never);
}

TEST_F(PublicationsTest, AsManyBytesAsTheCreditAreUnderWay) {
  publish(1000);
  const std::uint64_t fit = options_.settings.credit_bytes / budgets_[1].outgoing_bytes;
  ASSERT_GE(fit, 1u);
  for (std::uint64_t i = 0; i <= fit; ++i) publish(1000);
  const auto first = send();
  ASSERT_EQ(first.size(), fit);
  EXPECT_TRUE(send().empty());
  EXPECT_TRUE(publications_.on_published(first[0].token, {}, 0).answered);
  EXPECT_EQ(send().size(), 1u);
}

TEST_F(PublicationsTest, AMarkLeavesWhenAllPiecesBeforeItWereAnswered) {
  publish(10);
  publications_.publish_mark(from, to, 7, 0);
  publish(10);
  const auto pieces = send();
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].header.sequence, 1u);
  EXPECT_EQ(pieces[1].header.sequence, 2u) << "the mark has the number of the piece behind it";
  EXPECT_TRUE(publications_.on_published(pieces[1].token, {}, 0).answered);
  EXPECT_TRUE(send().empty());
  EXPECT_TRUE(publications_.on_published(pieces[0].token, {}, 0).answered);
  const auto marks = send();
  ASSERT_EQ(marks.size(), 1u);
  EXPECT_EQ(marks[0].header.flush, 7u);
  EXPECT_EQ(marks[0].header.sequence, 2u);
  EXPECT_FALSE(publications_.on_published(marks[0].token, {}, 0).answered->has_rows);
}

TEST_F(PublicationsTest, AnAnswerToAPieceOfADroppedPoolIsIgnored) {
  publish(10);
  const auto sent = send();
  publications_.clear();
  EXPECT_EQ(publications_.on_published(sent[0].token, {}, 0).stage, 0u);
  EXPECT_EQ(publications_.next_retry(), never);
}

class KeptPublicationsTest : public PublicationsTest {
 protected:
  KeptPublicationsTest() : PublicationsTest("sift:/t?key=id&fanout=2&threshold=4KiB&budget=1MiB&spill=durable", true) {}
};

TEST_F(KeptPublicationsTest, TheSplitIsChargedAndNamesTheSequences) {
  publications_.set_next_sequence(to, 5);
  publications_.await_answer(to, 4);
  publish(10, 3, 4);
  publish(10, 3);
  EXPECT_EQ(budgets_[1].used_bytes, 0u);
  const auto sent = send();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].header.sequence, 4u);
  EXPECT_EQ(sent[1].header.sequence, 5u);
  EXPECT_EQ(sent[1].header.answered_below, 4u);
  EXPECT_EQ(publications_.next_sequence(to), 6u);
  EXPECT_EQ(publications_.on_published(sent[0].token, {}, 0).answered->split, 3u);
}

}  // namespace
}  // namespace offpath::sift
