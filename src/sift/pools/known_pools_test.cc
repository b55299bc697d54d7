#include "sift/pools/known_pools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "testing/sift/service_parts.h"

namespace offpath::sift {
namespace {

constexpr const char* known_pool = "sift:/t?key=id&members=a,b";

TEST(KnownPools, APoolIsFoundByItsNameItsDefinitionAndTheReferenceToIt) {
  ServiceParts parts;
  SiftPool& pool = parts.add(known_pool, {"a", "b"});
  for (const std::string& each : {std::string("sift:/t"), std::string(known_pool), reference_to(known_pool)})
    EXPECT_EQ(parts.known.find(each).value(), &pool) << each;
  EXPECT_EQ(parts.known.find("sift:/u?key=id").value(), nullptr);
  EXPECT_EQ(parts.known.find("sift:/t?key=other").error().code, Error::exists);
  const std::string other = "sift:/t?key=id&members=a,b,c";
  EXPECT_EQ(parts.known.find(reference_to(other)).error().code, Error::would_block) << "it was not sent";
  parts.known.foreign().add(reference_to(other), other);
  EXPECT_EQ(parts.known.find(reference_to(other)).error().code, Error::exists);
  EXPECT_EQ(parts.known.resolve(reference_to(other)).value(), other);
}

TEST(KnownPools, ADroppedPoolStaysUntilNothingUnderWayRefersToIt) {
  ServiceParts parts;
  SiftPool& pool = parts.add(known_pool, {"a", "b"});
  const std::uint64_t changes = parts.known.changes();
  const std::uint64_t token = parts.under_way.add(UnderWay::Work{UnderWay::Work::Kind::ask, &pool, 0, "b"});
  std::weak_ptr<int> alive;
  {
    const auto there = std::make_shared<int>(0);
    alive = there;
    pool.deferred.add([there](TimeNs, service::Effects&) {});
  }
  parts.known.drop(pool);
  EXPECT_FALSE(parts.known.has(pool));
  EXPECT_EQ(parts.known.named("sift:/t"), nullptr);
  EXPECT_GT(parts.known.changes(), changes);
  parts.known.forget_dropped();
  EXPECT_FALSE(alive.expired());
  (void)parts.under_way.take_work(service::number_of(token));
  parts.known.forget_later();
  EXPECT_EQ(parts.known.next_deadline(), 0);
  parts.known.on_time_done();
  EXPECT_TRUE(alive.expired());
  EXPECT_EQ(parts.known.next_deadline(), never);
}

TEST(KnownPools, ADroppedPoolHasNoDeadline) {
  ServiceParts parts;
  SiftPool& pool = parts.add(known_pool, {"a", "b"});
  parts.known.note_deadline(pool);
  EXPECT_EQ(parts.known.next_deadline(), pool.next_deadline());
  ASSERT_NE(pool.next_deadline(), never);
  EXPECT_EQ(parts.known.take_due(pool.next_deadline()), std::vector<std::string>{"sift:/t"});
  parts.known.note_deadline(pool);
  const std::uint64_t token = parts.under_way.add(UnderWay::Work{UnderWay::Work::Kind::ask, &pool, 0, "b"});
  parts.known.drop(pool);
  parts.known.note_deadline(pool);
  EXPECT_EQ(parts.known.next_deadline(), never);
  (void)parts.under_way.take_work(service::number_of(token));
}

}  // namespace
}  // namespace offpath::sift
