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

TEST(MemoryFile, CannotBeMadeExecutable) {
  if (!kernel_is_at_least(6, 3)) GTEST_SKIP() << "the kernel is older than Linux 6.3";
  auto file = memory_file("offpath-test");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(fchmod(file->get(), 0700), -1);
  EXPECT_EQ(errno, EPERM);
}

}  // namespace
}  // namespace offpath
