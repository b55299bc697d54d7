#include "sift/pools/under_way.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace offpath::sift {
namespace {

SiftPool pool_called(const std::string& name) {
  return SiftPool{.name = name,
                  .text = name,
                  .reference = name,
                  .settings = {},
                  .sift = nullptr,
                  .agreement = Agreement("a", name, {"a"}),
                  .flushes = FlushRounds(name, 0, 1)};
}

TEST(UnderWay, APoolIsConcernedUntilItsLastNumberIsTaken) {
  const SiftPool none = pool_called("none");
  SiftPool pool = pool_called("sift:/t");
  UnderWay under_way;
  const std::uint64_t input = under_way.add({.kind = UnderWay::Input::Kind::put, .pool = &pool, .token = 5});
  const std::uint64_t token = under_way.add({UnderWay::Work::Kind::ask, &pool, 0, "b"});
  EXPECT_EQ(service::service_of(token), service::ServiceId::sift);
  EXPECT_FALSE(under_way.concerns(none));
  EXPECT_TRUE(under_way.concerns(pool));
  EXPECT_EQ(under_way.take_input(input)->token, 5u);
  EXPECT_FALSE(under_way.take_input(input)) << "once";
  EXPECT_TRUE(under_way.concerns(pool));
  EXPECT_EQ(under_way.take_work(service::number_of(token))->member, "b");
  EXPECT_FALSE(under_way.concerns(pool));
}

TEST(UnderWay, OffersEndWithTheirChannel) {
  SiftPool pool = pool_called("sift:/t");
  UnderWay under_way;
  using Kind = UnderWay::Input::Kind;
  const auto add = [&](Kind kind, service::ChannelNumber channel) {
    return under_way.add({.kind = kind, .pool = &pool, .channel = channel});
  };
  const std::uint64_t first = add(Kind::offer, 1), second = add(Kind::offer, 1), other = add(Kind::offer, 2),
                      flush = add(Kind::flush, 1);
  std::vector<std::uint64_t> ended;
  for (const auto& [number, of] : under_way.take_offers_of(1)) ended.push_back(number);
  EXPECT_THAT(ended, ::testing::UnorderedElementsAre(first, second));
  EXPECT_EQ(under_way.input(first), nullptr);
  EXPECT_NE(under_way.input(other), nullptr);
  EXPECT_NE(under_way.input(flush), nullptr) << "its answer is lost with the channel, but the flush goes on";
}

}  // namespace
}  // namespace offpath::sift
