#include "sift/pools/foreign_definitions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace offpath::sift {
namespace {

TEST(ForeignDefinitions, TheNewestAreKept) {
  ForeignDefinitions definitions;
  for (std::size_t i = 0; i <= ForeignDefinitions::kept_max; ++i)
    definitions.add("r" + std::to_string(i), "t" + std::to_string(i));
  EXPECT_EQ(definitions.find("r0"), nullptr);
  ASSERT_NE(definitions.find("r1"), nullptr);
  EXPECT_EQ(*definitions.find("r1"), "t1");
}

TEST(ForeignDefinitions, OneMemberAtATimeIsAskedForADefinition) {
  ForeignDefinitions definitions;
  EXPECT_TRUE(definitions.want("r", 0));
  EXPECT_FALSE(definitions.want("r", 1));
  EXPECT_TRUE(definitions.want("other", 1));
  EXPECT_TRUE(definitions.want("r", ForeignDefinitions::sent_within_ns)) << "it was not sent";
  definitions.add("r", "text");
  EXPECT_TRUE(definitions.want("r", ForeignDefinitions::sent_within_ns)) << "that is over";
}

}  // namespace
}  // namespace offpath::sift
