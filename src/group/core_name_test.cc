#include "group/core_name.h"

#include <gtest/gtest.h>

#include <vector>

namespace offpath::group {
namespace {

TEST(CoreName, TellsWhichMembersAreOneAgent) {
  EXPECT_EQ(core_name("node7", 0), "node7");
  EXPECT_EQ(core_name("node7", 12), "node7+12");
  for (const unsigned core : {0u, 1u, 63u}) EXPECT_EQ(agent_of(core_name("a+b", core)), "a+b");
  EXPECT_TRUE(is_later_core("node7+1"));
  EXPECT_FALSE(is_later_core("node7"));
}

TEST(CoreName, LeavesOtherNamesAlone) {
  for (const char* name : {"node7", "10.0.0.1", "node-1", "a+", "+1", "a+0", "a+01", "a+x", "a+64", "a+-1", ""})
    EXPECT_EQ(agent_of(name), name);
}

TEST(CoreName, CountsAgents) {
  EXPECT_EQ(agents_among(std::vector<std::string>{}), 0u);
  EXPECT_EQ(agents_among(std::vector<std::string>{"a", "a+1", "a+2", "b+1", "10.0.0.1", "10.0.0.2"}), 4u);
}

}  // namespace
}  // namespace offpath::group
