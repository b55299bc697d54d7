// Descriptors of a socket, of this library, and of a forked child, against a fake agent.
#include "sockets/descriptors.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "sockets/kernel.h"
#include "sockets/own_descriptors.h"
#include "testing/sockets/offloaded.h"

// A forked child starts the library's thread, which the thread sanitizer refuses otherwise.
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }

namespace offpath::sockets {
namespace {

using wire::TcpCommandKind;

class DescriptorsTest : public Offloaded {
 protected:
  static bool is_open(int fd) { return kernel::fcntl(fd, F_GETFD) >= 0; }
  static Socket* socket_at(int fd) {
    const Use use = descriptors().find(fd);
    return use ? &*use : nullptr;
  }
  static std::string receive(int fd) {
    char bytes[64];
    const ssize_t got = ::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    return got < 0 ? "errno " + std::to_string(errno) : std::string(bytes, static_cast<std::size_t>(got));
  }
};

TEST_F(DescriptorsTest, CopiesNameOneSocketUntilTheLastIsClosed) {
  Handle handle = 0;
  const int fd = connected(handle);
  const int copies[] = {::dup(fd), ::dup2(fd, 300), ::dup3(fd, 301, O_CLOEXEC), ::fcntl(fd, F_DUPFD, 310),
                        ::fcntl(fd, F_DUPFD_CLOEXEC, 310)};
  for (const int copy : copies) {
    ASSERT_GE(copy, 0);
    EXPECT_EQ(socket_at(copy), socket_at(fd));
  }
  EXPECT_EQ(descriptors().of(*socket_at(fd)).size(), 6u);
  ::close(fd);
  for (const int copy : copies) {
    EXPECT_FALSE(agent().has_commanded(TcpCommandKind::release, handle));
    agent().arrive(handle, "x");
    EXPECT_EQ(receive(copy), "x");
    ::close(copy);
    EXPECT_FALSE(is_offloaded(copy));
  }
  agent().await(TcpCommandKind::release, handle);
}

TEST_F(DescriptorsTest, ANumberThatIsTakenNamesTheNewOneAlone) {
  Handle first = 0, second = 0;
  const int one = connected(first), two = connected(second);
  ASSERT_EQ(::dup2(one, two), two);
  agent().await(TcpCommandKind::release, second);
  EXPECT_EQ(socket_at(two), socket_at(one));
  int pipes[2];
  ASSERT_EQ(::pipe(pipes), 0);
  for (const int fd : pipes) keep(fd);
  ASSERT_EQ(::dup2(pipes[0], one), one);
  EXPECT_FALSE(is_offloaded(one));
  EXPECT_FALSE(agent().has_commanded(TcpCommandKind::release, first));
  ASSERT_EQ(::dup2(pipes[0], two), two);
  agent().await(TcpCommandKind::release, first);
}

TEST_F(DescriptorsTest, BlockingIsTheSocketsNotTheDescriptors) {
  Handle handle = 0;
  const int fd = connected(handle), copy = keep(::dup(fd));
  ASSERT_EQ(::fcntl(copy, F_SETFL, O_NONBLOCK), 0);
  char byte;
  EXPECT_EQ(error_of(::read(fd, &byte, 1)), EAGAIN);
}

TEST_F(DescriptorsTest, AClosedRangeEndsItsSockets) {
  Handle inside = 0, outside = 0;
  const int one = connected(inside), two = connected(outside);
  ASSERT_EQ(::dup2(one, 400), 400);
  ASSERT_EQ(::dup2(two, 401), 401);
  ASSERT_EQ(::dup2(STDERR_FILENO, 402), 402);
  ::close(one);
  ASSERT_EQ(::close_range(400, 402, CLOSE_RANGE_CLOEXEC), 0);
  EXPECT_TRUE(is_offloaded(400) && is_offloaded(401));
  EXPECT_EQ(::fcntl(400, F_GETFD), FD_CLOEXEC);
  ASSERT_EQ(::close_range(400, 402, 0), 0);
  for (const int fd : {400, 401, 402}) EXPECT_FALSE(is_open(fd) || is_offloaded(fd)) << fd;
  agent().await(TcpCommandKind::release, inside);
  EXPECT_TRUE(is_offloaded(two));
  EXPECT_FALSE(agent().has_commanded(TcpCommandKind::release, outside));
}

TEST_F(DescriptorsTest, TheLibrarysOwnAreNotTheProgramsToClose) {
  Handle handle = 0;
  connected(handle);
  const int own = program().wake_fd();
  EXPECT_EQ(error_of(::close(own)), EBADF);
  EXPECT_EQ(error_of(::dup2(STDERR_FILENO, own)), EBUSY);
  // Closes all numbers around it, as programs do before they start others.
  const int before = ::fcntl(STDERR_FILENO, F_DUPFD, own - 1);
  ASSERT_EQ(::close_range(static_cast<unsigned>(own) - 1, static_cast<unsigned>(own), 0), 0);
  EXPECT_FALSE(before == own - 1 && is_open(before));
  EXPECT_TRUE(is_open(own));
  if (before != own - 1) ::close(before);
}

// The library's end of a socket's pair moves away when the program takes its number.
TEST_F(DescriptorsTest, ASocketsOtherEndMakesWay) {
  Handle handle = 0;
  const int fd = connected(handle);
  const int signal = socket_at(fd)->own().signal.load();
  ASSERT_TRUE(own_descriptors().has(signal));
  ASSERT_EQ(::dup2(STDERR_FILENO, signal), signal);
  EXPECT_FALSE(own_descriptors().has(signal));
  EXPECT_NE(socket_at(fd)->own().signal.load(), signal);
  EXPECT_TRUE(own_descriptors().has(socket_at(fd)->own().signal.load()));
  agent().arrive(handle, "x");
  pollfd watched{fd, POLLIN, 0};
  EXPECT_EQ(::poll(&watched, 1, -1), 1);  // it shows readiness from there
  ::close(signal);
}

// Until the library has closed it, the program cannot have the number: it would be the program's that is closed.
TEST(OwnDescriptorsTest, ANumberIsGivenBackOnceItIsClosed) {
  const int number = kernel::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 700);
  own_descriptors().add(number);
  std::thread other;
  std::atomic<int> taken = -1;
  own_descriptors().give_back(number, [&](int fd) {
    EXPECT_TRUE(own_descriptors().has(fd));
    EXPECT_EQ(::dup2(STDERR_FILENO, fd) < 0 ? errno : 0, EBUSY) << "as from a handler of a signal";
    EXPECT_EQ(own_descriptors().next(static_cast<unsigned>(fd)), static_cast<unsigned>(fd));
    other = std::thread([&taken, fd] {
      while ((taken = ::dup2(STDERR_FILENO, fd)) < 0 && errno == EBUSY) {
      }
    });
    kernel::close(fd);
  });
  other.join();
  EXPECT_EQ(taken, number);
  EXPECT_FALSE(own_descriptors().has(number));
  EXPECT_EQ(::close(number), 0) << "it is the program's, and still open";
}

// A thread of the program takes the number of the library's end while the socket is closed by another one.
TEST_F(DescriptorsTest, ADup2ThatTakesTheNumberOfAnEndingSocketStaysOpen) {
  std::atomic<int> number = -1;
  std::atomic<bool> over = false;
  int lost = 0;
  std::thread other([&] {
    while (!over) {
      const int to = number.load();
      if (to < 0 || own_descriptors().has(to)) continue;
      if (::dup2(STDERR_FILENO, to) != to) continue;
      number = -1;
      for (int i = 0; i < 100; ++i) std::this_thread::yield();
      if (kernel::close(to) != 0) ++lost;
    }
  });
  for (int round = 0; round < 10'000 && lost == 0; ++round) {
    Handle handle = 0;
    const int fd = connected(handle);
    number = socket_at(fd)->own().signal.load();
    ::close(fd);
    number = -1;
  }
  over = true;
  other.join();
  EXPECT_EQ(lost, 0) << "descriptors of the program that the library closed";
}

TEST(OwnDescriptorsTest, TheNextOneIsFoundInAnyWord) {
  static OwnDescriptors own{};
  EXPECT_EQ(own.next(0), static_cast<unsigned>(OwnDescriptors::numbers));
  for (const int fd : {3, 63, 64, 1000, OwnDescriptors::numbers - 1}) own.add(fd);
  own.add(-1);
  own.add(OwnDescriptors::numbers);  // beyond the limit: not counted as the library's
  EXPECT_FALSE(own.has(-1));
  EXPECT_FALSE(own.has(OwnDescriptors::numbers));
  const unsigned found[] = {own.next(0), own.next(4), own.next(64), own.next(65), own.next(1001)};
  const unsigned wanted[] = {3, 63, 64, 1000, OwnDescriptors::numbers - 1};
  EXPECT_TRUE(std::equal(std::begin(found), std::end(found), std::begin(wanted)));
  own.remove(63);
  EXPECT_FALSE(own.has(63));
  EXPECT_EQ(own.next(4), 64u);
}

// A child has its parent's sockets. A socket lasts until the last process has closed it.
TEST_F(DescriptorsTest, AForkedChildHoldsTheSocketToo) {
  Handle handle = 0;
  const int fd = connected(handle), copy = keep(::dup(fd));
  const std::size_t before = agent().processes();
  agent().arrive(handle, "child");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool counted = socket_at(fd)->own().descriptors.load() == 2 && !program().left_out();
    const bool heard = receive(fd) == "child" && ::write(copy, "hello", 5) == 5;
    ::close(fd);
    ::close(copy);
    ::_exit(counted && heard && !is_offloaded(fd) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  agent().await_processes(before + 1);
  EXPECT_EQ(agent().offered(handle), "hello");
  EXPECT_FALSE(agent().has_commanded(TcpCommandKind::release, handle));
  agent().arrive(handle, "parent");
  EXPECT_EQ(receive(fd), "parent");
  ::close(fd);
  EXPECT_FALSE(agent().has_commanded(TcpCommandKind::release, handle));
  ::close(copy);
  agent().await(TcpCommandKind::release, handle);
}

}  // namespace
}  // namespace offpath::sockets
