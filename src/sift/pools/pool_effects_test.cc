#include "sift/pools/pool_effects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "testing/sift/service_parts.h"

namespace offpath::sift {
namespace {

constexpr const char* alone = "sift:/t?key=id&fanout=2&threshold=4KiB&budget=1MiB&members=a";

TEST(PoolEffects, APutIsAnsweredToTheMoverAndItsJobsAreThoseOfTheService) {
  ServiceParts parts;
  SiftPool& pool = parts.add(alone);
  parts.pool_effects.put(pool, 77, "1", parts.frame(1000), parts.now, parts.effects);
  const auto stored = parts.take<service::StoredEffect>();
  ASSERT_EQ(stored.size(), 1u);
  EXPECT_EQ(stored[0].token, 77u);
  EXPECT_TRUE(stored[0].status);
  // The split, and then the sorts of its two parts, which this member publishes to itself.
  std::size_t ran = 0;
  for (auto jobs = parts.take<service::JobEffect>(); !jobs.empty(); jobs = parts.take<service::JobEffect>())
    for (const service::JobEffect& job : jobs) {
      ++ran;
      EXPECT_EQ(service::service_of(job.token), service::ServiceId::sift);
      const auto work = parts.under_way.take_work(service::number_of(job.token));
      ASSERT_TRUE(work);
      EXPECT_EQ(work->pool, &pool);
      parts.pool_effects.on_job(*work, job.run(), parts.now, parts.effects);
    }
  EXPECT_EQ(ran, 3u);
  EXPECT_EQ(pool.sift->tracks().rows(), 1000u);
  EXPECT_FALSE(parts.under_way.concerns(pool));
  EXPECT_GT(parts.carried_out, 0u);
}

TEST(PoolEffects, APieceForAnotherMemberIsARequestUntilThatAnswers) {
  ServiceParts parts;
  SiftPool& pool = parts.add("sift:/t?key=id&fanout=2&threshold=4KiB&budget=1MiB&members=a,b", {"a", "b"});
  parts.pool_effects.put(pool, 77, "1", parts.frame(1000), parts.now, parts.effects);
  for (const service::JobEffect& job : parts.take<service::JobEffect>())
    parts.pool_effects.on_job(*parts.under_way.take_work(service::number_of(job.token)), job.run(), parts.now,
                              parts.effects);
  const auto asks = parts.take<service::AskEffect>();
  ASSERT_EQ(asks.size(), 1u) << "each member holds one of the two elements";
  EXPECT_EQ(asks[0].member, "b");
  std::vector<std::byte> payload;
  asks[0].compose({}, payload);
  wire::PeerPiece piece{};
  ASSERT_TRUE(wire::decode(payload, piece));
  EXPECT_EQ(piece.pool, pool.reference);
  EXPECT_EQ(piece.object.length, asks[0].object->bytes);
  EXPECT_EQ(pool.sift->counters(1).outgoing, 1u);
  parts.pool_effects.on_published(*parts.under_way.take_work(service::number_of(asks[0].token)), {}, parts.now,
                                  parts.effects);
  EXPECT_EQ(pool.sift->counters(1).outgoing, 0u);
}

TEST(PoolEffects, TheEndOfAFlushGoesToWhoeverBeganIt) {
  ServiceParts parts;
  SiftPool& pool = parts.add(alone);
  using Input = UnderWay::Input;
  parts.pool_effects.flush(Input{.kind = Input::Kind::flush, .pool = &pool, .token = 5}, 1, never, parts.now,
                           parts.effects);
  ASSERT_EQ(parts.flushed.size(), 1u);
  EXPECT_EQ(parts.flushed[0].first, 5u);
  EXPECT_TRUE(parts.take<service::ReplyEffect>().empty());
  parts.pool_effects.flush(Input{.kind = Input::Kind::flush, .pool = &pool, .channel = 3, .ticket = 9}, 2, never,
                           parts.now, parts.effects);
  EXPECT_EQ(parts.flushed.size(), 1u);
  const auto replies = parts.take<service::ReplyEffect>();
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].channel, 3u);
  EXPECT_EQ(replies[0].ticket, 9u);
}

}  // namespace
}  // namespace offpath::sift
