#include "plugin/plugin_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace offpath::plugin {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class PluginFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::canonical(fs::temp_directory_path()) / "offpath-plugin-file-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    home = name;
    write("mine.so", "mine");
  }
  void TearDown() override { fs::remove_all(home); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(home / name) << text;
    ASSERT_EQ(chmod((home / name).c_str(), 0644), 0);
  }
  // The contents of the opened file, or the error.
  [[nodiscard]] std::string open(const fs::path& path) const {
    return text_of(open_plugin_file(path.string(), geteuid()));
  }
  static std::string text_of(const Result<Fd>& file) {
    if (!file) return file.error().message;
    std::string text(4096, '\0');
    const ssize_t got = pread(file->get(), text.data(), text.size(), 0);
    return got < 0 ? "cannot be read" : text.substr(0, static_cast<std::size_t>(got));
  }
  fs::path home;
};

TEST_F(PluginFile, IsOpenedThroughFoldersAndLinksOfItsUser) {
  fs::create_directory(home / "folder");
  write("folder/deep.so", "deep");
  fs::create_symlink("mine.so", home / "relative.so");
  fs::create_symlink(home / "folder", home / "elsewhere");
  fs::create_symlink("../relative.so", home / "folder/up.so");
  EXPECT_EQ(open(home / "mine.so"), "mine");
  EXPECT_EQ(open(home.string() + "//folder/../mine.so"), "mine");
  EXPECT_EQ(open(home / "relative.so"), "mine");
  EXPECT_EQ(open(home / "elsewhere/deep.so"), "deep");
  EXPECT_EQ(open(home / "elsewhere/up.so"), "mine");
}

TEST_F(PluginFile, WhatIsNoFileIsRefusedWithoutWaitingForIt) {
  ASSERT_EQ(mkfifo((home / "fifo").c_str(), 0600), 0);
  fs::create_symlink("round", home / "round");
  fs::create_symlink("nowhere", home / "dangling");
  EXPECT_THAT(open("mine.so"), HasSubstr("not an absolute path"));
  EXPECT_THAT(open("/"), HasSubstr("is not a file"));
  EXPECT_THAT(open(home), HasSubstr("is not a file"));
  EXPECT_THAT(open(home / "fifo"), HasSubstr("is not a file"));
  EXPECT_THAT(open("/dev/null"), HasSubstr("is not a file"));
  EXPECT_THAT(open(home / "mine.so/deeper"), HasSubstr("is not a folder"));
  EXPECT_THAT(open(home / "round"), HasSubstr("more than 40 symbolic links"));
  EXPECT_THAT(open(home / "dangling"), HasSubstr("No such file"));
}

TEST_F(PluginFile, WhatOthersMayWriteToIsRefused) {
  fs::create_directory(home / "open");
  write("open/mine.so", "mine");
  fs::create_symlink("open/mine.so", home / "link.so");
  ASSERT_EQ(chmod((home / "open").c_str(), 0777), 0);
  EXPECT_THAT(open(home / "open/mine.so"), HasSubstr("open has the mode 0777: others may write to it"));
  EXPECT_THAT(open(home / "link.so"), HasSubstr("open has the mode 0777"));
  ASSERT_EQ(chmod((home / "open").c_str(), 01777), 0);
  EXPECT_EQ(open(home / "open/mine.so"), "mine") << "nobody renames the files of others in these";
  ASSERT_EQ(chmod((home / "open/mine.so").c_str(), 0664), 0);
  EXPECT_THAT(open(home / "open/mine.so"), HasSubstr("mine.so has the mode 0664"));
}

TEST_F(PluginFile, WhatBelongsToSomebodyElseIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "gives files away, which needs root";
  constexpr uid_t user = 54321, other = 54322;
  const auto opened = [&](const std::string& name) { return text_of(open_plugin_file(home / name, user)); };
  const auto belongs_to_other = HasSubstr("belongs to user 54322: only files of root and of user 54321 are loaded");
  fs::create_symlink("mine.so", home / "link.so");
  EXPECT_EQ(opened("link.so"), "mine") << "all is root's";
  ASSERT_EQ(lchown((home / "link.so").c_str(), other, other), 0);
  EXPECT_THAT(opened("link.so"), belongs_to_other);
  ASSERT_EQ(chown((home / "mine.so").c_str(), other, other), 0);
  EXPECT_THAT(opened("mine.so"), belongs_to_other);
  ASSERT_EQ(chown((home / "mine.so").c_str(), user, user), 0);
  EXPECT_EQ(opened("mine.so"), "mine");
  ASSERT_EQ(chown(home.c_str(), other, other), 0);
  EXPECT_THAT(opened("mine.so"), belongs_to_other);
}

TEST_F(PluginFile, StaysWhatWasOpenedWhateverTakesItsPlace) {
  const Result<Fd> file = open_plugin_file((home / "mine.so").string(), geteuid());
  write("other.so", "other");
  fs::rename(home / "other.so", home / "mine.so");
  EXPECT_EQ(text_of(file), "mine");
  EXPECT_EQ(open(home / "mine.so"), "other");
}

}  // namespace
}  // namespace offpath::plugin
