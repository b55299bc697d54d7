#include "channel/host/fork_mark.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

namespace offpath::channel {
namespace {

bool child_knows(const ForkMark& mark) {
  const pid_t child = fork();
  if (child == 0) _exit(mark.in_child() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(ForkMark, TellsAChildFromItsParentWithAndWithoutAMappingOfItsOwn) {
  const ForkMark usual;
  EXPECT_FALSE(usual.in_child());
  EXPECT_TRUE(child_knows(usual));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit none = before;
  none.rlim_cur = 1 << 20;
  std::optional<ForkMark> without;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &none), 0);
  without.emplace();
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_FALSE(without->in_child());
  EXPECT_TRUE(child_knows(*without));
}

}  // namespace
}  // namespace offpath::channel
