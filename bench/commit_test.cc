#include "commit.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "base/status.h"

namespace offpath::bench {
namespace {

namespace fs = std::filesystem;

// A repository of one file, and a program three folders below it. Its name needs quoting.
class Commit : public testing::Test {
 protected:
  Commit() {
    char path[] = "/tmp/offpath bench's XXXXXX";
    OFP_ASSERT(mkdtemp(path) != nullptr);
    clone = path;
    program = clone / "build/release/bin/bench_move_post";
  }
  ~Commit() override { fs::remove_all(clone); }

  void write(const std::string& name, std::string_view content) {
    fs::create_directories((clone / name).parent_path());
    std::ofstream(clone / name) << content;
  }
  void git(const std::string& arguments) {
    const std::string identity = "-c user.name=t -c user.email=t@example -c commit.gpgsign=false ";
    const std::string command = "cd \"" + clone.string() + "\" && git " + identity + arguments;
    ASSERT_EQ(system(("exec >/dev/null; " + command).c_str()), 0) << command;
  }
  void make_repository(const std::string& file) {
    write(file, "first\n");
    git("init -q -b main");
    git("add .");
    git("commit -m first");
  }
  std::string head() {
    std::string name;
    git("rev-parse --short=7 HEAD >.git/short");
    std::ifstream(clone / ".git/short") >> name;
    return name;
  }

  fs::path clone, program;
};

TEST_F(Commit, IsWhatGitSaysNowNotWhatWasBuilt) {
  make_repository("include/offpath/offpath.h");
  const std::string first = head();
  EXPECT_EQ(first.size(), 7u);
  EXPECT_EQ(commit_of(program, "stale"), first);
  write("include/offpath/offpath.h", "second\n");
  EXPECT_EQ(commit_of(program, "stale"), first + "-dirty");
  git("commit -a -m second");
  EXPECT_NE(head(), first);
  EXPECT_EQ(commit_of(program, "stale"), head());
}

TEST_F(Commit, AFileGitDoesNotKnowAndATagChangeNothing) {
  make_repository("include/offpath/offpath.h");
  write("build/release/bin/bench_move_post", "a program");
  git("tag -a -m version v1");
  EXPECT_EQ(commit_of(program, "stale"), head());
}

TEST_F(Commit, WithoutASourceTreeIsTheBuiltInOne) { EXPECT_EQ(commit_of(program, "1a2b3c4"), "1a2b3c4"); }

TEST_F(Commit, OfSomebodyElsesRepositoryIsTheBuiltInOne) {
  make_repository("simulation.c");
  EXPECT_EQ(commit_of(program, "1a2b3c4"), "1a2b3c4");
}

TEST_F(Commit, OfARepositoryWithoutCommitsIsTheBuiltInOne) {
  write("include/offpath/offpath.h", "");
  git("init -q -b main");
  EXPECT_EQ(commit_of(program, "1a2b3c4"), "1a2b3c4");
}

}  // namespace
}  // namespace offpath::bench
