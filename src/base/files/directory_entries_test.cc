#include "base/files/directory_entries.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>

#include "base/fd.h"

namespace offpath {
namespace {

TEST(DirectoryEntries, AreAllNamesEachTime) {
  char path[] = "/tmp/offpath_entries_XXXXXX";
  ASSERT_NE(mkdtemp(path), nullptr);
  const Fd directory(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_TRUE(directory_entries(directory.get(), path).value().empty());
  const std::vector<std::string> names{".hidden", "a", "b.part"};
  for (const std::string& name : names) Fd(openat(directory.get(), name.c_str(), O_CREAT | O_CLOEXEC | O_WRONLY, 0600));
  for (int time = 0; time < 2; ++time) {
    auto found = directory_entries(directory.get(), path).value();
    std::ranges::sort(found);
    EXPECT_EQ(found, names);
  }
  for (const std::string& name : names) unlinkat(directory.get(), name.c_str(), 0);
  rmdir(path);
}

TEST(DirectoryEntries, WhatIsNoDirectoryIsNamed) {
  const auto failed = directory_entries(-1, "/the/path");
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message.find("/the/path"), std::string::npos) << failed.error().message;
}

}  // namespace
}  // namespace offpath
