#include "sift/tracks/track_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "sift/split/particles.h"

namespace offpath::sift {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace files = std::filesystem;

class TrackFilesTest : public ::testing::Test {
 protected:
  TrackFilesTest() {
    std::string name = files::temp_directory_path() / "track_files_XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    directory_ = root_ + "/tracks";
  }
  ~TrackFilesTest() override { files::remove_all(root_); }

  // Identifiers 0, 1, ... with a row of each of two steps.
  TrackSnapshot rows(std::uint64_t identifiers) {
    TrackSnapshot snapshot(form_, 1);
    std::vector<std::shared_ptr<const TrackRun>> runs;
    for (const std::int64_t step : {3, 4}) {
      std::vector<std::uint64_t> ids(identifiers);
      std::iota(ids.begin(), ids.end(), 0);
      FramePtr frame = particle_frame(*form_->rows, ids, step, memory_);
      RowsView view = form_->rows->view({frame->buffer.data(), frame->bytes}).value();
      std::vector<Piece> pieces;
      pieces.push_back({std::move(frame), std::move(view), {{step, identifiers}}});
      runs.push_back(TrackRun::sort(form_->rows, pieces, memory_).value());
    }
    snapshot.add(0, runs);
    return snapshot;
  }
  TrackFiles::Target target(const std::string& member = "a", bool replace = false, std::uint64_t process = 7) {
    return {.path = directory_, .writer = {member, process, 1}, .replace = replace};
  }
  static Status write_all_of(TrackFiles& part) {
    while (!part.written().all) OFP_TRY(part.write_more());
    return {};
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& each : files::directory_iterator(directory_)) all.push_back(each.path().filename());
    std::ranges::sort(all);
    return all;
  }
  void make_file(const std::string& name) const { std::ofstream(directory_ + "/" + name) << "x"; }

  std::string root_, directory_;
  FrameMemory memory_{BufferCache::make({.huge_pages = false}), 7};
  std::shared_ptr<const TrackForm> form_ = TrackForm::make(particle_schema(), "id").value();
};

TEST_F(TrackFilesTest, FilesHaveTheirNamesWhenTheyArePublished) {
  TrackFiles part(rows(100), target(), memory_);
  ASSERT_TRUE(write_all_of(part));
  EXPECT_EQ(part.written().rows, 200u);
  EXPECT_EQ(part.written().files, 1u);
  EXPECT_THAT(names(), ElementsAre(".part-a-0000.parquet.0000000000000007.1"));
  ASSERT_TRUE(part.publish(false));
  EXPECT_THAT(names(), ElementsAre("part-a-0000.parquet"));
  EXPECT_EQ(files::file_size(directory_ + "/part-a-0000.parquet"), part.written().bytes);
}

TEST_F(TrackFilesTest, AFileThatIsLargeEnoughEndsWithItsIdentifier) {
  TrackFiles::Target small = target();
  small.file_bytes_max = 1;
  small.step_bytes = 7 * form_->answers->row_bytes();  // an odd number, so that steps end within an identifier
  TrackFiles part(rows(50), small, memory_);
  ASSERT_TRUE(write_all_of(part));
  EXPECT_EQ(part.written().rows, 100u);
  // Each file begins with a whole identifier; 7 rows at a time, and a file is full after its first: 7 + 1 rows or 6.
  EXPECT_GT(part.written().files, 10u);
  ASSERT_TRUE(part.publish(false));
  EXPECT_EQ(names().size(), part.written().files);
}

TEST_F(TrackFilesTest, AMemberWithoutRowsHasNoFile) {
  TrackFiles none(TrackSnapshot(nullptr, 1), target(), memory_);
  ASSERT_TRUE(write_all_of(none));
  EXPECT_EQ(none.written().files, 0u);
  EXPECT_TRUE(none.publish(false));
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(TrackFilesTest, AWriteThatIsCancelledLeavesNothing) {
  TrackFiles part(rows(100), target(), memory_);
  ASSERT_TRUE(part.write_more());
  EXPECT_EQ(names().size(), 1u);
  part.cancel();
  const Status cancelled = part.write_more();
  ASSERT_FALSE(cancelled);
  EXPECT_EQ(cancelled.error().code, Error::cancelled);
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(TrackFilesTest, APublishedWriteThatIsAbandonedIsRemoved) {
  TrackFiles part(rows(100), target(), memory_);
  ASSERT_TRUE(write_all_of(part));
  ASSERT_TRUE(part.publish(false));
  part.abandon();
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(TrackFilesTest, ADirectoryWithFilesIsRefused) {
  files::create_directory(directory_);
  make_file("part-b-0000.parquet");
  make_file("_metadata");
  TrackFiles refused(rows(5), target(), memory_);
  const Status exists = refused.write_more();
  ASSERT_FALSE(exists);
  EXPECT_EQ(exists.error().code, Error::exists);
  EXPECT_THAT(exists.error().message, HasSubstr("part-b-0000.parquet"));

  TrackFiles part(rows(5), target("a", true), memory_);
  ASSERT_TRUE(write_all_of(part));
  ASSERT_TRUE(part.publish(true));
  EXPECT_THAT(names(), ElementsAre("_metadata", "part-a-0000.parquet"));

  make_file("notes.txt");
  TrackFiles foreign(rows(5), target("a", true), memory_);
  const Status others = foreign.write_more();
  ASSERT_FALSE(others);
  EXPECT_EQ(others.error().code, Error::exists);
  EXPECT_THAT(others.error().message, HasSubstr("notes.txt"));
}

TEST_F(TrackFilesTest, WhatAnEarlierProcessLeftIsRemovedAndNothingElse) {
  files::create_directory(directory_);
  make_file(".part-a-0000.parquet.0000000000000006.1");
  make_file(".part-a-b-0000.parquet.0000000000000006.1");
  make_file(".part-a-0003.parquet.0000000000000007.9");
  TrackFiles part(rows(5), target(), memory_);
  ASSERT_TRUE(part.write_more());
  EXPECT_THAT(names(), ElementsAre(".part-a-0000.parquet.0000000000000007.1", ".part-a-0003.parquet.0000000000000007.9",
                                   ".part-a-b-0000.parquet.0000000000000006.1"));
}

TEST_F(TrackFilesTest, OfTwoWritesAtOnceOneFails) {
  TrackFiles first(rows(5), target(), memory_), second(rows(5), {.path = directory_, .writer = {"a", 7, 2}}, memory_);
  ASSERT_TRUE(write_all_of(first));
  ASSERT_TRUE(write_all_of(second));
  ASSERT_TRUE(first.publish(false));
  const Status exists = second.publish(false);
  ASSERT_FALSE(exists);
  EXPECT_EQ(exists.error().code, Error::exists);
  EXPECT_THAT(names(), ElementsAre("part-a-0000.parquet"));
}

TEST_F(TrackFilesTest, NamesOfMembersBecomeNamesOfFiles) {
  TrackFiles part(rows(5), target("rack/../a:1"), memory_);
  ASSERT_TRUE(write_all_of(part));
  ASSERT_TRUE(part.publish(false));
  EXPECT_THAT(names(), ElementsAre("part-rack%2f..%2fa%3a1-0000.parquet"));
}

TEST_F(TrackFilesTest, WrongDirectoriesAreNamed) {
  const auto why = [&](const std::string& path) {
    TrackFiles part(rows(5), {.path = path, .writer = {"a", 7, 1}}, memory_);
    const Status status = part.write_more();
    EXPECT_FALSE(status);
    return status ? std::string() : status.error().message;
  };
  EXPECT_THAT(why("tracks"), HasSubstr("no absolute path"));
  EXPECT_THAT(why(root_ + "/none/tracks"), HasSubstr(root_ + "/none/tracks"));
  EXPECT_THAT(why("/dev/null"), HasSubstr("/dev/null"));
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  files::create_directory(directory_);
  ASSERT_EQ(chown(directory_.c_str(), 65534, 65534), 0);
  EXPECT_THAT(why(directory_), HasSubstr("belongs to user 65534"));
}

TEST_F(TrackFilesTest, AFileThatCannotBeWrittenIsNamedAndRemoved) {
  TrackFiles::Target small = target();
  small.step_bytes = 20 * form_->answers->row_bytes();
  TrackFiles part(rows(100), small, memory_);
  ASSERT_TRUE(part.write_more());  // the buffer that it read into is used again
  // The kernel refuses what would make the file larger, and sends SIGXFSZ, which is ignored here.
  struct rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto former = signal(SIGXFSZ, SIG_IGN);
  const rlimit few{100, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &few), 0);
  const Status failed = part.write_more();
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, former);
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr(directory_));
  EXPECT_THAT(names(), IsEmpty());
}

}  // namespace
}  // namespace offpath::sift
