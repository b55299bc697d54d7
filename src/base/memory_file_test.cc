#include "base/memory_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include <cerrno>
#include <cstdio>

namespace offpath {
namespace {

bool kernel_is_at_least(int major, int minor) {
  utsname system{};
  int have_major = 0, have_minor = 0;
  if (uname(&system) != 0 || std::sscanf(system.release, "%d.%d", &have_major, &have_minor) != 2) return false;
  return have_major != major ? have_major > major : have_minor >= minor;
}

// Without F_SEAL_EXEC, which newer kernels add.
constexpr int all_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;

TEST(MemoryFile, IsEmptyAndClosedOnExec) {
  auto file = memory_file("offpath-test");
  ASSERT_TRUE(file) << file.error().message;
  struct stat status{};
  ASSERT_EQ(fstat(file->get(), &status), 0);
  EXPECT_EQ(status.st_size, 0);
  EXPECT_EQ(fcntl(file->get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST(MemoryFile, CanBeSealed) {
  auto file = memory_file("offpath-test");
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(ftruncate(file->get(), 4096), 0);
  ASSERT_EQ(fcntl(file->get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_EQ(ftruncate(file->get(), 8192), -1);
  EXPECT_EQ(errno, EPERM);
}

TEST(MemoryFile, ASealedOneTakesNoMoreSeals) {
  const Fd file = memory_file("offpath-test").value();
  ASSERT_TRUE(add_seals(file.get(), F_SEAL_GROW, "a test"));
  EXPECT_EQ(fcntl(file.get(), F_GET_SEALS) & all_seals, F_SEAL_GROW | F_SEAL_SEAL);
  const Status again = add_seals(file.get(), F_SEAL_SHRINK, "a test");
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().message.find("sealing a test"), std::string::npos) << again.error().message;
}

TEST(MemoryFile, ASealedCopyCannotBeChanged) {
  const Fd copy = sealed_copy("offpath-test", bytes_of("abc")).value();
  char text[4] = "";
  EXPECT_EQ(pread(copy.get(), text, sizeof text, 0), 3);
  EXPECT_STREQ(text, "abc");
  EXPECT_EQ(pwrite(copy.get(), "x", 1, 0), -1);
  EXPECT_EQ(ftruncate(copy.get(), 2), -1);
}

TEST(MemoryFile, SealsOfAnotherProcessAreChecked) {
  const Fd file = memory_file("offpath-test").value();
  ASSERT_EQ(fcntl(file.get(), F_ADD_SEALS, F_SEAL_GROW), 0);
  EXPECT_EQ(check_seals(file.get(), F_SEAL_GROW, Error::denied, "a test").value() & all_seals, F_SEAL_GROW);
  const auto wrong = check_seals(file.get(), F_SEAL_SHRINK | F_SEAL_GROW, Error::denied, "a test");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, Error::denied);
  EXPECT_EQ(wrong.error().message, "a test: the memfd has the seals GROW, it needs SHRINK, GROW");
  const Fd other(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const auto no_memory = check_seals(other.get(), 0, Error::protocol, "a test");
  ASSERT_FALSE(no_memory);
  EXPECT_EQ(no_memory.error().message, "a test: the descriptor cannot be sealed, a memfd is needed");
}

TEST(MemoryFile, CannotBeMadeExecutable) {
  if (!kernel_is_at_least(6, 3)) GTEST_SKIP() << "the kernel is older than Linux 6.3";
  auto file = memory_file("offpath-test");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(fchmod(file->get(), 0700), -1);
  EXPECT_EQ(errno, EPERM);
}

}  // namespace
}  // namespace offpath
