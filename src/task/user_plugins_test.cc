#include "task/user_plugins.h"

#include <gtest/gtest.h>

namespace offpath::task {
namespace {

TEST(UserPlugins, AreRunOnlyWhereItIsPermittedAndTheUserIsKnown) {
  const auto why = [](const UserPluginOptions& options, uid_t user, std::optional<gid_t> group) {
    auto found = UserPlugins(options).find(user, group, "/srv/a/mine.so");
    return found ? std::string() : found.error().message;
  };
  const UserPluginOptions off, user{.permitted = true, .agent = 1000}, root{.permitted = true, .may_change_user = true};
  EXPECT_EQ(why(off, 0, 0), "task.user_plugins is off");
  EXPECT_NE(why(user, 1000, std::nullopt).find("Unix socket"), std::string::npos);
  EXPECT_EQ(why(user, 1000, 100), "");
  EXPECT_NE(why(user, 1001, 100).find("as user 1001"), std::string::npos);
  EXPECT_EQ(why(root, 1001, 100), "");
}

TEST(UserPlugins, OneUsersProgramsShareThemWithinTheirLimit) {
  UserPlugins plugins({.permitted = true,
                       .may_change_user = true,
                       .of_user_max = 2,
                       .workers = 3,
                       .memory_bytes = 5000,
                       .deadline_ns = 7});
  auto first = plugins.find(1000, 100, "/a.so"), again = plugins.find(1000, 100, "/a.so"),
       second = plugins.find(1000, 100, "/b.so");
  ASSERT_TRUE(first && again && second);
  EXPECT_EQ(*first, *again);
  EXPECT_EQ((*first)->user, std::optional<uid_t>(1000));
  EXPECT_EQ((*first)->group, 100u);
  EXPECT_EQ((*first)->workers, 3u);
  EXPECT_EQ((*first)->memory_bytes, 5000u);
  EXPECT_EQ((*first)->deadline_ns, 7);
  EXPECT_TRUE((*first)->own);
  EXPECT_EQ((*second)->name, "/b.so of user 1000");
  EXPECT_EQ((*plugins.find(1003, 100, "/\xC3\xA4\xFF.so"))->name, "/\\xC3\\xA4\\xFF.so of user 1003");
  EXPECT_NE(plugins.find(1000, 100, "/c.so").error().message.find("task.user_plugins_max"), std::string::npos);
  EXPECT_NE(plugins.find(1002, 100, "/b\n.so").error().message.find("control characters"), std::string::npos);
  const auto others = plugins.find(1001, 100, "/a.so");
  ASSERT_TRUE(others);
  EXPECT_NE(*others, *first);
  second = fail(Error::closed, "its session has ended");
  EXPECT_TRUE(plugins.find(1000, 100, "/c.so"));
}

}  // namespace
}  // namespace offpath::task
