#include "pool/flight/flight_span.h"

#include <gtest/gtest.h>

namespace offpath::pool {
namespace {

constexpr std::string_view whole = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(TraceContext, OfTheHeader) {
  const auto found = TraceContext::parse(whole);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->trace, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(found->span, "b7ad6b7169203331");
  EXPECT_TRUE(found->sampled);
  for (const auto& [flags, sampled] : {std::pair("00", false), {"02", false}, {"ff", true}, {"0a", false}}) {
    const auto other = TraceContext::parse(std::string(whole.substr(0, 53)) + flags);
    ASSERT_TRUE(other) << flags;
    EXPECT_EQ(other->sampled, sampled) << flags;
  }
}

TEST(TraceContext, OfLaterVersions) {
  const std::string later = "01" + std::string(whole.substr(2));
  EXPECT_TRUE(TraceContext::parse(later));
  EXPECT_TRUE(TraceContext::parse(later + "-more"));
  EXPECT_FALSE(TraceContext::parse(later + "more"));
  EXPECT_FALSE(TraceContext::parse("ff" + std::string(whole.substr(2))));
  EXPECT_FALSE(TraceContext::parse(std::string(whole) + "-more"));
}

TEST(TraceContext, OfAnythingElseIsNone) {
  for (std::size_t length = 0; length < whole.size(); ++length)
    EXPECT_FALSE(TraceContext::parse(whole.substr(0, length))) << length;
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (const char other : {'G', 'A', ' ', '\0', '\xff'}) {
      std::string wrong(whole);
      wrong[at] = other;
      EXPECT_FALSE(TraceContext::parse(wrong)) << wrong;
    }
  EXPECT_FALSE(TraceContext::parse("00-00000000000000000000000000000000-b7ad6b7169203331-01"));
  EXPECT_FALSE(TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"));
}

}  // namespace
}  // namespace offpath::pool
