#include "pool/table/spill_directory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

namespace offpath::pool {
namespace {

namespace fs = std::filesystem;

class SpillDirectoryTest : public ::testing::Test {
 protected:
  SpillDirectoryTest() {
    std::string name = (fs::temp_directory_path() / "offpath-spill-XXXXXX").string();
    root_ = mkdtemp(name.data());
    path_ = root_ / "spill";
  }
  ~SpillDirectoryTest() override {
    if (mounted_) umount(path_.c_str());
    fs::remove_all(root_);
  }
  SpillDirectory& open() {
    directory_.reset();
    auto opened = SpillDirectory::open(path_.string());
    if (!opened) throw std::runtime_error(opened.error().message);
    directory_ = std::move(*opened);
    return *directory_;
  }
  static std::vector<std::byte> object(std::size_t bytes, int seed = 1) {
    std::vector<std::byte> made(bytes);
    for (std::size_t i = 0; i < bytes; ++i)
      made[i] = static_cast<std::byte>((i * 7 + static_cast<std::size_t>(seed)) >> 3);
    return made;
  }
  static ObjectRecord record(std::uint64_t number, std::uint64_t bytes, bool hidden = false) {
    ObjectRecord made;
    made.number = number;
    made.bytes = bytes;
    made.hidden = hidden;
    made.pool = "local:/p?spill=on";
    made.row = "../\n\x01 row";
    return made;
  }
  RecordPtr put(std::uint64_t number, std::size_t bytes, bool lasting = true, bool hidden = false) {
    return directory_->write(record(number, bytes, hidden), object(bytes, static_cast<int>(number)), lasting).value();
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(path_))
      if (entry.path().filename() != "lock") all.push_back(entry.path().filename().string());
    std::ranges::sort(all);
    return all;
  }
  void change(const std::string& name, std::streamoff at) {
    std::fstream file(path_ / name, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const auto before = static_cast<char>(file.get());
    file.seekp(at);
    file.put(static_cast<char>(before ^ 1));
  }

  fs::path root_, path_;
  bool mounted_ = false;
  std::unique_ptr<SpillDirectory> directory_;
};

using Names = std::vector<std::string>;

TEST_F(SpillDirectoryTest, WhatIsWrittenIsReadBackAfterANewStart) {
  open();
  for (const std::size_t bytes : {0u, 1u, 8u, 5000u, 3'000'000u}) put(bytes + 1, bytes, bytes % 2 == 0);
  const auto all = open().scan().value();
  ASSERT_EQ(all.size(), 5u);
  for (const RecordPtr& each : all) {
    std::vector<std::byte> back(each->bytes);
    const Status done = directory_->read(*each, back);
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(back, object(each->bytes, static_cast<int>(each->number)));
    EXPECT_EQ(each->row, record(0, 0).row);
  }
}

TEST_F(SpillDirectoryTest, NobodyElseMayReadItsFiles) {
  open();
  put(1, 10);
  struct stat status{};
  for (const auto& path : {path_, path_ / "0000000000000001.bytes", path_ / "lock"}) {
    ASSERT_EQ(stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 077, 0u) << path;
  }
}

TEST_F(SpillDirectoryTest, AHiddenObjectIsShownByItsName) {
  open();
  const RecordPtr hidden = put(5, 100, true, true);
  EXPECT_EQ(names(), Names{"0000000000000005.hidden.bytes"});
  EXPECT_TRUE(directory_->scan().value().front()->hidden);
  EXPECT_TRUE(directory_->show(*hidden));
  EXPECT_EQ(names(), Names{"0000000000000005.bytes"});
  EXPECT_FALSE(directory_->scan().value().front()->hidden);
  std::vector<std::byte> back(100);
  EXPECT_TRUE(directory_->read(*hidden, back)) << "whichever of its names the reader knows";
  EXPECT_TRUE(directory_->remove(*hidden));
  EXPECT_TRUE(directory_->remove(*hidden));
  EXPECT_EQ(names(), Names{});
}

TEST_F(SpillDirectoryTest, AChangedByteIsFoundAndTheFileSetAside) {
  open();
  const RecordPtr kept = put(1, 3'000'000);
  change("0000000000000001.bytes", 2'999'999);
  std::vector<std::byte> back(kept->bytes);
  const Status done = directory_->read(*kept, back);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Error::protocol);
  EXPECT_NE(done.error().message.find("0000000000000001.bytes is corrupt: the checksum"), std::string::npos)
      << done.error().message;
  EXPECT_EQ(names(), Names{"0000000000000001.bytes.corrupt"});
  EXPECT_EQ(directory_->read(*kept, back).error().code, Error::protocol) << "it is gone";
}

TEST_F(SpillDirectoryTest, AFileThatWasCutOffIsFoundWhenItIsRead) {
  open();
  const RecordPtr kept = put(1, 5000);
  fs::resize_file(path_ / "0000000000000001.bytes", 4000);
  std::vector<std::byte> back(kept->bytes);
  const Status done = directory_->read(*kept, back);
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message.find("it ends at byte 4000"), std::string::npos) << done.error().message;
}

TEST_F(SpillDirectoryTest, AtStartWhatIsNoObjectIsSetAsideAndTheRestGoesOn) {
  open();
  for (std::uint64_t number = 1; number <= 5; ++number) put(number, 100);
  fs::resize_file(path_ / "0000000000000001.bytes", 120);
  change("0000000000000002.bytes", 130);  // in its record
  fs::rename(path_ / "0000000000000003.bytes", path_ / "0000000000000033.bytes");
  fs::remove(path_ / "0000000000000004.bytes");
  fs::create_directory(path_ / "0000000000000004.bytes");
  std::ofstream(path_ / "0000000000000006.bytes.part") << "half";
  std::ofstream(path_ / "notes.txt") << "somebody's";
  const auto all = open().scan().value();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all.front()->number, 5u);
  EXPECT_EQ(names(),
            (Names{"0000000000000001.bytes.corrupt", "0000000000000002.bytes.corrupt", "0000000000000004.bytes.corrupt",
                   "0000000000000005.bytes", "0000000000000033.bytes.corrupt", "notes.txt"}));
}

TEST_F(SpillDirectoryTest, ASymbolicLinkInAFilesPlaceIsNotFollowed) {
  open();
  const RecordPtr kept = put(1, 100);
  fs::rename(path_ / "0000000000000001.bytes", root_ / "elsewhere");
  fs::create_symlink(root_ / "elsewhere", path_ / "0000000000000001.bytes");
  std::vector<std::byte> back(100);
  EXPECT_FALSE(directory_->read(*kept, back));
}

TEST_F(SpillDirectoryTest, OneAgentAtATime) {
  open();
  const auto second = SpillDirectory::open(path_.string());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Error::exists);
}

TEST_F(SpillDirectoryTest, DirectoriesThatOthersCouldUseAreRefused) {
  const auto refused = [&] {
    const auto opened = SpillDirectory::open(path_.string());
    return opened ? std::string("it was opened") : opened.error().message;
  };
  fs::create_directory(root_ / "real");
  fs::permissions(root_ / "real", fs::perms::owner_all);
  fs::create_directory_symlink(root_ / "real", path_);
  EXPECT_NE(refused().find("symbolic link"), std::string::npos) << refused();
  fs::remove(path_);
  std::ofstream(path_.string()) << "a file";
  EXPECT_NE(refused().find("no directory"), std::string::npos) << refused();
  fs::remove(path_);
  fs::create_directory(path_);
  fs::permissions(path_, fs::perms::owner_all | fs::perms::group_exec);
  EXPECT_NE(refused().find("chmod 700"), std::string::npos) << refused();
  fs::permissions(path_, fs::perms::owner_all);
  if (geteuid() != 0) return;  // only root can give a directory away
  ASSERT_EQ(chown(path_.c_str(), 12345, 12345), 0);
  EXPECT_NE(refused().find("belongs to user 12345"), std::string::npos) << refused();
}

TEST_F(SpillDirectoryTest, AFullDiskKeepsNothingHalf) {
  fs::create_directory(path_);
  if (mount("tmpfs", path_.c_str(), "tmpfs", 0, "size=1m,mode=0700") != 0)
    GTEST_SKIP() << "mounting a small tmpfs: " << std::strerror(errno);
  mounted_ = true;
  open();
  put(1, 400'000);
  const auto full = directory_->write(record(2, 800'000), object(800'000), true);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, Error::no_space) << full.error().message;
  EXPECT_EQ(names(), Names{"0000000000000001.bytes"});
  std::vector<std::byte> back(400'000);
  EXPECT_TRUE(directory_->read(*directory_->scan().value().front(), back));
  EXPECT_EQ(back, object(400'000, 1));
  ASSERT_TRUE(directory_->remove(record(1, 0)));
  EXPECT_TRUE(directory_->write(record(2, 800'000), object(800'000), true)) << "there is room again";
  directory_.reset();
}

// The result of `body` if each pread fails with EIO; runs in a child, because the fault cannot be undone.
int while_reads_fail(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    std::array<sock_filter, 4> program{{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_pread64, 0, 1),
                                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
                                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
    const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
      _exit(100);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(SpillDirectoryTest, WhatCannotBeReadStaysWhereItIs) {
  if (while_reads_fail([] { return 0; }) == 100) GTEST_SKIP() << "an emulator of another processor has no seccomp";
  open();
  const RecordPtr kept = put(7, 100'000);
  const std::vector<std::string> before = names();
  EXPECT_EQ(while_reads_fail([&] {
              std::vector<std::byte> into(100'000);
              const Status read = directory_->read(*kept, into);
              return read ? 1 : read.error().code != Error::io ? 2 : 0;
            }),
            0);
  EXPECT_EQ(names(), before);
  EXPECT_EQ(while_reads_fail([&] {
              const auto all = directory_->scan();
              // Its number stays known, and is not used again.
              return !all ? 1 : !all->empty() ? 2 : directory_->largest_number() != 7 ? 3 : 0;
            }),
            0);
  EXPECT_EQ(names(), before);
  std::vector<std::byte> into(100'000);
  ASSERT_TRUE(directory_->read(*kept, into));
  EXPECT_EQ(into, object(100'000, 7));
  EXPECT_EQ(directory_->scan()->size(), 1u);
}

}  // namespace
}  // namespace offpath::pool
