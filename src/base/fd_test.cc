#include "base/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace offpath {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) != -1; }
Fd open_null() { return Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

TEST(Fd, ClosesAtTheEndOfItsScope) {
  int number = -1;
  {
    Fd fd = open_null();
    ASSERT_TRUE(fd);
    number = fd.get();
    EXPECT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

TEST(Fd, EmptyHoldsNothing) {
  Fd fd;
  EXPECT_FALSE(fd);
  EXPECT_EQ(fd.get(), -1);
  fd.reset();
  EXPECT_EQ(fd.release(), -1);
}

TEST(Fd, MovingLeavesTheSourceEmpty) {
  Fd first = open_null();
  int number = first.get();
  Fd second = std::move(first);
  EXPECT_FALSE(first);
  EXPECT_EQ(second.get(), number);
  EXPECT_TRUE(is_open(number));
}

TEST(Fd, AssignmentClosesWhatItHeld) {
  Fd first = open_null();
  Fd second = open_null();
  int lost = first.get();
  int kept = second.get();
  first = std::move(second);
  EXPECT_FALSE(is_open(lost));
  EXPECT_EQ(first.get(), kept);
  EXPECT_TRUE(is_open(kept));
}

TEST(Fd, AssignmentToItselfKeepsIt) {
  Fd fd = open_null();
  int number = fd.get();
  Fd& same = fd;
  fd = std::move(same);
  EXPECT_EQ(fd.get(), number);
  EXPECT_TRUE(is_open(number));
}

TEST(Fd, ReleaseGivesItAway) {
  Fd fd = open_null();
  int number = fd.release();
  EXPECT_FALSE(fd);
  EXPECT_TRUE(is_open(number));
  ::close(number);
}

}  // namespace
}  // namespace offpath
