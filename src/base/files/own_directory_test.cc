#include "base/files/own_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

namespace offpath {
namespace {

using testing::HasSubstr;

class OwnDirectory : public testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(mkdtemp(above_), nullptr); }
  void TearDown() override {
    unlink(path("link").c_str());
    rmdir(path("d").c_str());
    rmdir(above_);
  }
  [[nodiscard]] std::string path(const std::string& name) const { return std::string(above_) + "/" + name; }
  static std::string why(const Result<Fd>& made) { return made ? "" : made.error().message; }

  char above_[32] = "/tmp/offpath_directory_XXXXXX";
};

TEST_F(OwnDirectory, IsMadeOnceAndOpened) {
  for (int time = 0; time < 2; ++time) ASSERT_TRUE(open_own_directory(path("d"), 0700, Links::refuse));
  struct stat status{};
  ASSERT_EQ(stat(path("d").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0700u);
}

TEST_F(OwnDirectory, ALinkIsFollowedOnlyIfItMay) {
  ASSERT_TRUE(open_own_directory(path("d"), 0700, Links::refuse));
  ASSERT_EQ(symlink(path("d").c_str(), path("link").c_str()), 0);
  EXPECT_TRUE(open_own_directory(path("link"), 0700, Links::follow));
  for (const char* const behind : {"", "/", "//"}) {
    const auto refused = open_own_directory(path("link") + behind, 0700, Links::refuse);
    ASSERT_FALSE(refused) << behind;
    EXPECT_EQ(refused.error().code, Error::denied);
    EXPECT_THAT(why(refused), HasSubstr(path("link") + " is a symbolic link or no directory"));
  }
}

TEST_F(OwnDirectory, AnotherUsersIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives a directory away";
  ASSERT_TRUE(open_own_directory(path("d"), 0700, Links::refuse));
  ASSERT_EQ(chown(path("d").c_str(), 65534, 65534), 0);
  EXPECT_THAT(why(open_own_directory(path("d"), 0700, Links::follow)), HasSubstr("belongs to user 65534"));
}

TEST_F(OwnDirectory, WhatCannotBeMadeIsNamed) {
  EXPECT_THAT(why(open_own_directory(path("absent/d"), 0700, Links::follow)),
              HasSubstr("making the directory " + path("absent/d")));
}

}  // namespace
}  // namespace offpath
