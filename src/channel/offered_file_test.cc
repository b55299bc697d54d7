#include "channel/offered_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <memory>

#include "base/fd.h"

namespace offpath::channel {
namespace {

std::string refusal(int fd) {
  const Status checked = check_offered_file(fd);
  if (checked) return "may be written";
  return checked.error().code == Error::unsupported ? checked.error().message
                                                    : "another failure: " + checked.error().message;
}

TEST(OfferedFile, OfThisMachinesFileSystemsMayBeWritten) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::tmpfile(), std::fclose);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(refusal(fileno(file.get())), "may be written");
  const Fd memory(memfd_create("offered", MFD_CLOEXEC));
  EXPECT_EQ(refusal(memory.get()), "may be written");
}

TEST(OfferedFile, ThatMayWaitForAnotherProcessIsTheProgramsToWrite) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const Fd reading(ends[0]), writing(ends[1]);
  EXPECT_NE(refusal(writing.get()).find("not a regular file"), std::string::npos) << refusal(writing.get());
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const Fd one(ends[0]), other(ends[1]);
  EXPECT_NE(refusal(one.get()).find("not a regular file"), std::string::npos) << refusal(one.get());
  const Fd device(open("/dev/null", O_WRONLY | O_CLOEXEC));
  EXPECT_NE(refusal(device.get()).find("not a regular file"), std::string::npos) << refusal(device.get());
  // Regular by its mode, but served by code that may do anything.
  const Fd served(open("/proc/self/comm", O_WRONLY | O_CLOEXEC));
  EXPECT_NE(refusal(served.get()).find("file system that may wait for another process (\"proc\")"), std::string::npos)
      << refusal(served.get());
}

}  // namespace
}  // namespace offpath::channel
