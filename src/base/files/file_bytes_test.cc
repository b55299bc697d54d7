#include "base/files/file_bytes.h"

#include <gtest/gtest.h>

#include <sys/resource.h>

#include <array>
#include <csignal>
#include <cstring>

#include "base/memory_file.h"

namespace offpath {
namespace {

TEST(FileBytes, AreReadWhereTheyWereWritten) {
  const Fd file = memory_file("offpath-test").value();
  ASSERT_TRUE(write_all(file.get(), bytes_of("abc"), 10));
  std::array<std::byte, 3> read{};
  ASSERT_TRUE(read_all(file.get(), read, 10));
  EXPECT_EQ(std::memcmp(read.data(), "abc", 3), 0);
}

TEST(FileBytes, AFileThatEndsBeforeIsAnErrorThatSaysWhere) {
  const Fd file = memory_file("offpath-test").value();
  ASSERT_TRUE(write_all(file.get(), bytes_of("abc"), 0));
  std::array<std::byte, 4> read{};
  const Status failed = read_all(file.get(), read, 0);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Error::protocol);
  EXPECT_EQ(failed.error().message, "it ends at byte 3");
}

// A write that the kernel cuts short is continued, and the rest fails.
TEST(FileBytes, AWriteThatTheKernelCutsShortIsContinued) {
  const Fd file = memory_file("offpath-test").value();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{2, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status failed = write_all(file.get(), bytes_of("abc"), 0);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(failed);
  std::array<std::byte, 2> read{};
  ASSERT_TRUE(read_all(file.get(), read, 0));
  EXPECT_EQ(std::memcmp(read.data(), "ab", 2), 0);
}

}  // namespace
}  // namespace offpath
