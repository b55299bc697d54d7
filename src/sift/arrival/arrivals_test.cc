#include "sift/arrival/arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/sift/one_sift.h"
#include "testing/sift/sift_parts.h"

namespace offpath::sift {
namespace {

using ::testing::HasSubstr;

TEST(Arrivals, APieceIsTakenOnceHoweverOftenItIsOffered) {
  OneSift agent("sift:/t?key=id&fanout=4&threshold=1MiB", {"a", "b"});
  const std::uint32_t index = agent.sift->geometry().elements_of(0, 2).at(0);
  const auto [header, frame] = offered(agent, index, 1, 100, 3);
  agent.sift->on_offer(1, header, frame->bytes, nullptr, 0, agent.effects);
  agent.sift->on_offer(2, header, frame->bytes, nullptr, 0, agent.effects);  // its answer took too long
  auto pulls = agent.take<AdmitEffect>();
  ASSERT_EQ(pulls.size(), 1u);
  EXPECT_EQ(pulls[0].token, 1u);
  agent.sift->on_pulled(1, fail(Error::peer_lost, "gone"), 0, agent.effects);
  EXPECT_EQ(agent.take<StoredEffect>().size(), 1u);
  pulls = agent.take<AdmitEffect>();
  ASSERT_EQ(pulls.size(), 1u) << "the second offer is pulled in its place";
  EXPECT_EQ(pulls[0].token, 2u);
  agent.sift->on_pulled(2, frame, 0, agent.effects);
  agent.sift->on_offer(3, header, frame->bytes, nullptr, 0, agent.effects);
  const auto answers = agent.take<StoredEffect>();
  ASSERT_EQ(answers.size(), 2u);
  for (const StoredEffect& answer : answers) EXPECT_TRUE(answer.status);
  EXPECT_EQ(agent.take<AdmitEffect>().size(), 0u);
  EXPECT_EQ(agent.sift->counters(2).rows_taken, 100u);
}

TEST(Arrivals, OffersWaitForRoomInTheirOrder) {
  OneSift agent("sift:/t?key=id&fanout=2&threshold=64KiB&budget=1MiB&age=10s", {"a", "b"});
  const std::uint32_t index = agent.sift->geometry().elements_of(0, 2).at(0);
  std::vector<std::pair<PieceHeader, FramePtr>> pieces;
  for (std::uint64_t sequence = 1; sequence <= 8; ++sequence) {
    pieces.push_back(offered(agent, index, sequence, 1500, 0));  // 58 KB, below the threshold
    agent.sift->on_offer(sequence, pieces.back().first, pieces.back().second->bytes, nullptr, 0, agent.effects);
  }
  auto pulls = agent.take<AdmitEffect>();
  ASSERT_GE(pulls.size(), 2u);
  ASSERT_LT(pulls.size(), 8u);
  EXPECT_EQ(agent.sift->counters(2).offers_waiting, 8 - pulls.size());
  std::uint64_t next = 1;
  while (!pulls.empty()) {
    for (const AdmitEffect& pull : pulls) {
      EXPECT_EQ(pull.token, next++);
      agent.sift->on_pulled(pull.token, pieces[pull.token - 1].second, 0, agent.effects);
    }
    agent.run_jobs();
    pulls = agent.take<AdmitEffect>();
  }
  EXPECT_EQ(next, 9u);
  EXPECT_LE(agent.sift->counters(2).used_bytes_peak, 1u << 20);
}

class ArrivalsAlone : public testing::Test {
 protected:
  void add(std::uint64_t token, std::uint64_t charge) {
    Arrival arrival;
    arrival.put = true;
    arrival.tokens = {token};
    arrival.charge = charge;
    parts.arrivals.add(std::move(arrival));
  }
  bool offer(std::uint64_t token, std::uint64_t sequence) {
    TakenSequences* const taken = parts.elements[to].sources["b"].life({"b", 1}).value();
    return parts.arrivals.offer(token, SiftParts::header(to, sequence, 10), 1000, 4000, nullptr, *taken, parts.effects);
  }

  SiftParts parts{"sift:/t?key=id&fanout=2&threshold=4KiB&budget=64KiB", {"a", "b"}};
  ElementId to{2, 0};
};

TEST_F(ArrivalsAlone, TheFirstWithoutRoomDelaysSmallerOnesOfItsStage) {
  add(1, 60'000);
  add(2, 60'000);
  add(3, 10);
  const auto first = parts.arrivals.admit(1, 0);
  ASSERT_TRUE(first);
  EXPECT_EQ(parts.arrivals.at(*first).tokens, std::vector<std::uint64_t>{1});
  EXPECT_FALSE(parts.arrivals.admit(1, 0));
  EXPECT_TRUE(parts.arrivals.any_waits(1));
  EXPECT_FALSE(parts.arrivals.any_waits(2));
  EXPECT_EQ(parts.budgets[1].offers_waiting, 2u);
  parts.arrivals.refuse(*first, {Error::schema, "wrong"}, parts.effects);
  EXPECT_FALSE(parts.arrivals.admit(1, 6'000)) << "what a split needs stays free";
  for (const std::uint64_t token : {2u, 3u}) {
    const auto next = parts.arrivals.admit(1, 0);
    ASSERT_TRUE(next);
    EXPECT_EQ(parts.arrivals.at(*next).tokens, std::vector<std::uint64_t>{token});
  }
  const auto answers = parts.take<StoredEffect>();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].status.error().code, Error::schema);
}

TEST_F(ArrivalsAlone, AnOfferThatIsWithdrawnLeavesNothing) {
  ASSERT_TRUE(offer(7, 1));
  EXPECT_FALSE(offer(8, 1)) << "it joins the first";
  const auto id = parts.arrivals.admit(2, 0);
  ASSERT_TRUE(id);
  parts.arrivals.pull(parts.arrivals.at(*id), parts.effects);
  EXPECT_EQ(parts.take<AdmitEffect>().at(0).token, 8u) << "the member that offered it last";
  EXPECT_EQ(parts.arrivals.end_pull(7), 0u) << "it is not pulled from there";
  EXPECT_EQ(parts.arrivals.withdraw(8, parts.effects), 0u);
  EXPECT_EQ(parts.take<AdmitEffect>().at(0).token, 7u);
  EXPECT_GT(parts.budgets[2].used_bytes, 0u);
  EXPECT_EQ(parts.arrivals.withdraw(7, parts.effects), 2u) << "the stage has room again";
  EXPECT_EQ(parts.budgets[2].used_bytes, 0u);
  EXPECT_TRUE(parts.arrivals.empty());
  EXPECT_TRUE(parts.elements[to].arriving.empty());
  EXPECT_TRUE(offer(9, 1)) << "it may come again";
}

TEST_F(ArrivalsAlone, DropAnswersEachOfferOnce) {
  add(1, 10);
  ASSERT_TRUE(offer(7, 1));
  EXPECT_FALSE(offer(8, 1));
  parts.arrivals.drop(fail(Error::cancelled, "dropped"), parts.effects);
  std::vector<std::uint64_t> tokens;
  for (const StoredEffect& answer : parts.take<StoredEffect>()) tokens.push_back(answer.token);
  EXPECT_THAT(tokens, ::testing::UnorderedElementsAre(1u, 7u, 8u));
  EXPECT_TRUE(parts.arrivals.empty());
  EXPECT_FALSE(parts.arrivals.any_waits(1));
}

}  // namespace
}  // namespace offpath::sift
