#include "sift/pools/track_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "testing/sift/service_parts.h"
#include "wire/messages/message_kinds.h"

namespace offpath::sift {
namespace {

using ::testing::HasSubstr;

class TrackRequestsTest : public testing::Test {
 protected:
  TrackRequestsTest() { parts.context.channels[1] = ServiceParts::user; }
  Status ask(const SiftPool& pool, std::vector<std::uint64_t> identifiers) {
    wire::SiftTracks asked{};
    asked.identifiers = std::move(identifiers);
    asked.last_step = INT64_MAX;
    return requests.serve(pool, 1, 7, asked, parts.now, parts.effects);
  }

  ServiceParts parts;
  TrackRequests requests{parts.context, parts.under_way};
};

TEST_F(TrackRequestsTest, IdentifiersOfOneRequestAreInOneElement) {
  const SiftPool& pool = parts.add("sift:/t?key=id&fanout=4&members=a");
  const Status none = ask(pool, {1, 5, 9});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Error::not_found) << "it was looked for, at once";
  const Status several = ask(pool, {1, 2});
  ASSERT_FALSE(several);
  EXPECT_THAT(several.error().message, HasSubstr("identifiers 1 and 2 are in elements 1 and 2"));
  EXPECT_EQ(ask(pool, {}).error().code, Error::invalid);
}

TEST_F(TrackRequestsTest, ByHashNoIdentifierIsANumber) {
  const SiftPool& pool = parts.add("sift:/t?key=id&by=hash&fanout=4&members=a");
  const Status asked = ask(pool, {1});
  ASSERT_FALSE(asked);
  EXPECT_EQ(asked.error().code, Error::unsupported);
  EXPECT_THAT(asked.error().message, HasSubstr("has by=hash"));
}

TEST_F(TrackRequestsTest, AWholeElementIsAskedForByItsNumber) {
  const SiftPool& pool = parts.add("sift:/t?key=id&fanout=4&members=a");
  wire::SiftTracks asked{};
  asked.all = true;
  asked.last_step = INT64_MAX;
  asked.element = 3;
  EXPECT_TRUE(requests.serve(pool, 1, 7, asked, parts.now, parts.effects));
  asked.element = 4;
  EXPECT_EQ(requests.serve(pool, 1, 7, asked, parts.now, parts.effects).error().code, Error::invalid);
}

TEST_F(TrackRequestsTest, TheKeeperOfAnotherElementIsAsked) {
  const SiftPool& pool = parts.add("sift:/t?key=id&fanout=2&members=a,b", {"a", "b"});
  const std::uint64_t theirs = pool.sift->geometry().elements_of(1, 2).at(0);
  EXPECT_TRUE(ask(pool, {theirs}));
  const auto asks = parts.take<service::AskEffect>();
  ASSERT_EQ(asks.size(), 1u);
  EXPECT_EQ(asks[0].member, "b");
  EXPECT_EQ(asks[0].kind, wire::EntryKind::peer_tracks);
}

}  // namespace
}  // namespace offpath::sift
