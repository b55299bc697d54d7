#include "sift/tracks/track_files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>

#include "sift/split/particles.h"

// The abilities of a file system. These functions replace the C library's.
static bool renames_without_replacing = true, links = true;
static std::function<void()> during_link;
extern "C" int renameat2(int from_at, const char* from, int to_at, const char* to, unsigned flags) noexcept {
  if (renames_without_replacing) return static_cast<int>(syscall(SYS_renameat2, from_at, from, to_at, to, flags));
  errno = EINVAL;
  return -1;
}
extern "C" int linkat(int from_at, const char* from, int to_at, const char* to, int flags) noexcept {
  if (during_link) during_link();
  if (links) return static_cast<int>(syscall(SYS_linkat, from_at, from, to_at, to, flags));
  errno = EPERM;
  return -1;
}

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
  TrackFiles::Target target(const std::string& member = "a", std::uint64_t number = 1) {
    return {.path = directory_, .writer = {member, 7, number}};
  }
  static Status write_all_of(TrackFiles& part) {
    while (!part.written().all) OFP_TRY(part.write_more());
    return {};
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& each : files::directory_iterator(directory_))
      if (each.path().filename() != ".offpath-write") all.push_back(each.path().filename());
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
  ASSERT_TRUE(part.publish());
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
  ASSERT_TRUE(part.publish());
  EXPECT_EQ(names().size(), part.written().files);
}

// The footer's Statistics: no nulls, then the largest and the least value. Readers leave out groups by these.
TEST_F(TrackFilesTest, IdentifiersOfAnyIntegersWidthHaveTheirBoundsInTheFile) {
  using frame::Type;
  const auto number = [](std::int64_t value, std::size_t bytes) {
    std::string text(reinterpret_cast<const char*>(&value), sizeof value);
    text.resize(bytes);  // the lowest come first
    return text;
  };
  for (const Type type :
       {Type::int8, Type::int16, Type::int32, Type::int64, Type::uint8, Type::uint16, Type::uint32, Type::uint64}) {
    SCOPED_TRACE(static_cast<int>(type));
    frame::Schema schema = particle_schema();
    schema.fields[0].type = type;
    form_ = TrackForm::make(schema, "id").value();
    directory_ += "_";
    TrackFiles part(rows(100), target(), memory_);
    ASSERT_TRUE(write_all_of(part));
    ASSERT_TRUE(part.publish());
    std::ifstream file(directory_ + "/part-a-0000.parquet", std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    const std::size_t stored = std::max(form_->rows->key_bytes(), 4u);
    const std::string length(1, static_cast<char>(stored));
    EXPECT_THAT(bytes, HasSubstr(std::string("\x36\x00\x28", 3) + length + number(99, stored) + "\x18" + length +
                                 number(0, stored) + std::string(1, 0)));
  }
}

TEST_F(TrackFilesTest, AMemberWithoutRowsHasNoFile) {
  TrackFiles none(TrackSnapshot(nullptr, 1), target(), memory_);
  ASSERT_TRUE(write_all_of(none));
  EXPECT_EQ(none.written().files, 0u);
  EXPECT_TRUE(none.publish());
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(TrackFilesTest, AWriteThatIsCancelledLeavesNothing) {
  TrackFiles part(rows(100), target(), memory_);
  ASSERT_TRUE(part.write_more());
  EXPECT_EQ(names().size(), 1u);
  EXPECT_FALSE(part.cancel()) << "no step is under way";
  part.abandon();
  const Status cancelled = part.write_more();
  ASSERT_FALSE(cancelled);
  EXPECT_EQ(cancelled.error().code, Error::cancelled);
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(TrackFilesTest, APublishedWriteThatIsAbandonedIsRemoved) {
  TrackFiles part(rows(100), target(), memory_);
  ASSERT_TRUE(write_all_of(part));
  ASSERT_TRUE(part.publish());
  EXPECT_FALSE(part.cancel());
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
  EXPECT_THAT(names(), ElementsAre("_metadata", "part-b-0000.parquet"));
}

TEST_F(TrackFilesTest, WhatAnEarlierProcessLeftIsRemovedAndNothingElse) {
  files::create_directory(directory_);
  make_file(".part-a-0000.parquet.0000000000000006.1");
  make_file(".part-a-b-0000.parquet.0000000000000006.1");
  make_file(".part-a-0003.parquet.0000000000000007.9");
  TrackFiles part(rows(5), target(), memory_);
  ASSERT_TRUE(part.write_more());
  EXPECT_THAT(names(),
              ElementsAre(".part-a-0000.parquet.0000000000000007.1", ".part-a-b-0000.parquet.0000000000000006.1"));
}

TEST_F(TrackFilesTest, ADirectoryIsOfOneWriteAtATime) {
  // Members of one write share it; another pool's has other members.
  TrackFiles first(rows(5), target("a"), memory_), with(rows(5), target("b"), memory_);
  ASSERT_TRUE(write_all_of(first));
  ASSERT_TRUE(write_all_of(with));
  {
    TrackFiles other(rows(5), target("c", 2), memory_);
    const Status exists = other.write_more();
    ASSERT_FALSE(exists);
    EXPECT_EQ(exists.error().code, Error::exists);
    EXPECT_THAT(exists.error().message, HasSubstr("another write of tracks has directory"));
  }
  ASSERT_TRUE(first.publish());
  ASSERT_TRUE(with.publish());
  ASSERT_TRUE(first.finish());
  EXPECT_THAT(names(), ElementsAre("part-a-0000.parquet", "part-b-0000.parquet"));
  EXPECT_FALSE(files::is_symlink(directory_ + "/.offpath-write"));
}

TEST_F(TrackFilesTest, AClaimThatNobodyMarksIsReplaced) {
  TrackFiles killed(rows(5), target("a"), memory_);
  ASSERT_TRUE(write_all_of(killed));
  const std::string claim = directory_ + "/.offpath-write";
  const timespec long_ago[] = {{1, 0}, {1, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, claim.c_str(), long_ago, AT_SYMLINK_NOFOLLOW), 0);
  ASSERT_TRUE(killed.confirm()) << "marks it";
  TrackFiles early(rows(5), target("b", 2), memory_);
  EXPECT_FALSE(early.write_more());
  ASSERT_EQ(utimensat(AT_FDCWD, claim.c_str(), long_ago, AT_SYMLINK_NOFOLLOW), 0);
  TrackFiles next(rows(5), target("b", 2), memory_);
  ASSERT_TRUE(write_all_of(next));
  const Status lost = killed.publish();
  ASSERT_FALSE(lost);
  EXPECT_THAT(lost.error().message, HasSubstr("no longer has directory"));
  ASSERT_TRUE(next.publish());
  EXPECT_THAT(names(), ElementsAre("part-b-0000.parquet"));
}

TEST_F(TrackFilesTest, NamesReplaceNothingOnFileSystemsThatCannotRefuseIt) {
  renames_without_replacing = false;
  TrackFiles part(rows(5), target(), memory_);
  ASSERT_TRUE(write_all_of(part));
  make_file("part-a-0000.parquet");
  const Status exists = part.publish();
  ASSERT_FALSE(exists);
  EXPECT_EQ(exists.error().code, Error::exists);
  EXPECT_EQ(files::file_size(directory_ + "/part-a-0000.parquet"), 1u)
      << "another one's is neither replaced nor removed";
  files::remove(directory_ + "/part-a-0000.parquet");
  links = false;
  TrackFiles without(rows(5), target("a", 2), memory_);
  ASSERT_TRUE(write_all_of(without));
  const Status unsupported = without.publish();
  ASSERT_FALSE(unsupported);
  EXPECT_EQ(unsupported.error().code, Error::unsupported);
  renames_without_replacing = true;
  TrackFiles renamed(rows(5), target("a", 3), memory_);
  ASSERT_TRUE(write_all_of(renamed));
  EXPECT_TRUE(renamed.publish());
  links = true;
  EXPECT_THAT(names(), ElementsAre("part-a-0000.parquet"));
}

TEST_F(TrackFilesTest, WhatIsNotPublishedGoesWithItsWriter) {
  {
    TrackFiles part(rows(5), target(), memory_);
    ASSERT_TRUE(write_all_of(part));
    EXPECT_EQ(names().size(), 1u);
  }
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(TrackFilesTest, AStepThatIsGivenUpRemovesTheFilesAlone) {
  TrackFiles part(rows(5), target(), memory_);
  ASSERT_TRUE(write_all_of(part));
  during_link = [&] {
    EXPECT_TRUE(part.cancel()) << "a thread has the files";
    part.abandon();
    EXPECT_FALSE(part.write_more()) << "no other one takes them";
    EXPECT_EQ(names().size(), 1u);
  };
  EXPECT_FALSE(part.publish());
  during_link = nullptr;
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(TrackFilesTest, NamesOfMembersBecomeNamesOfFiles) {
  TrackFiles part(rows(5), target("rack/../a:1"), memory_);
  ASSERT_TRUE(write_all_of(part));
  ASSERT_TRUE(part.publish());
  EXPECT_THAT(names(), ElementsAre("part-rack%2f..%2fa%3a1-0000.parquet"));
}

TEST_F(TrackFilesTest, WrongDirectoriesAreNamed) {
  const auto why = [&](const std::string& path) {
    TrackFiles part(rows(5), {.path = path, .writer = {"a", 7, 1}}, memory_);
    const Status status = part.write_more();
    EXPECT_FALSE(status);
    return status ? std::string() : status.error().message;
  };
  EXPECT_THAT(why("tracks"), HasSubstr("not an absolute path"));
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
  // The kernel refuses writes beyond the limit, and sends SIGXFSZ, which is ignored here.
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
