#include "agent/connections/owed_notices.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace offpath::agent {
namespace {

std::vector<std::pair<std::uint32_t, bool>> drain(OwedNotices& owed) {
  std::vector<std::pair<std::uint32_t, bool>> all;
  for (; !owed.empty(); owed.pop()) all.emplace_back(owed.first().process, owed.first().joins != 0);
  return all;
}

TEST(OwedNoticesTest, AreToldInTheirOrder) {
  OwedNotices owed;
  ASSERT_TRUE(owed.joins(3));
  ASSERT_TRUE(owed.joins(1));
  owed.ends(3);
  owed.ends(0);
  EXPECT_EQ(drain(owed), (std::vector<std::pair<std::uint32_t, bool>>{{3, true}, {1, true}, {3, false}, {0, false}}));
}

TEST(OwedNoticesTest, ANumberIsNotFreeBeforeTheEndOfItsProcessWasTold) {
  OwedNotices owed;
  ASSERT_TRUE(owed.joins(3));
  owed.ends(3);
  ASSERT_TRUE(owed.joins(4));
  const Status joined = owed.joins(3);
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code, Error::protocol);
  owed.pop();
  EXPECT_FALSE(owed.joins(3));
  owed.pop();
  EXPECT_TRUE(owed.joins(3));
}

// As a program can that lets processes join and end without a pause.
TEST(OwedNoticesTest, AreBoundedWhileTheOtherAgentTakesNothing) {
  OwedNotices owed;
  for (int round = 0; round < 100; ++round)
    for (std::uint32_t process = 0; process < wire::tcp_processes_max; ++process)
      if (owed.joins(process)) owed.ends(process);
  EXPECT_EQ(owed.size(), OwedNotices::most);
}

}  // namespace
}  // namespace offpath::agent
