// Reports of poll, select and epoll about offloaded sockets, against a fake agent.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "sockets/epoll_sets.h"
#include "testing/sockets/instructions.h"
#include "testing/sockets/offloaded.h"

namespace offpath::sockets {
namespace {

using wire::TcpError;

class Readiness : public Offloaded {
 protected:
  static constexpr short all = POLLIN | POLLOUT | POLLRDHUP;
  // The events that poll reports at once; with `wait`, as soon as it reports one of `events`.
  static int poll(int fd, short events = all, bool wait = false) {
    pollfd watched{fd, events, 0};
    const int ready = ::poll(&watched, 1, wait ? -1 : 0);
    return ready < 0 ? -errno : watched.revents;
  }
  int epoll_over(int fd, std::uint32_t events) {
    const int set = keep(::epoll_create1(EPOLL_CLOEXEC));
    EXPECT_EQ(control(set, EPOLL_CTL_ADD, fd, events), 0);
    return set;
  }
  static int control(int set, int operation, int fd, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = static_cast<std::uint64_t>(fd) << 32 | 7;
    return error_of(::epoll_ctl(set, operation, fd, &event));
  }
  // The events that a wait of `wait_ms` reports for `fd`, the only one; 0: none.
  static std::uint32_t told(int set, int fd, int wait_ms = 0) {
    epoll_event events[4];
    const int ready = ::epoll_wait(set, events, 4, wait_ms);
    EXPECT_LE(ready, 1);
    if (ready != 1) return 0;
    const std::uint64_t told_of = events[0].data.u64;  // epoll_event is packed: no references into it
    EXPECT_EQ(told_of, static_cast<std::uint64_t>(fd) << 32 | 7);
    return events[0].events;
  }
  // The next reported events, however long that takes. The library's thread may have taken in an event that the set
  // does not have yet; the kernel's sets, too, learn of a change after its sockets.
  static std::uint32_t told_next(int set, int fd) { return told(set, fd, -1); }
  // Returns the size of the ring.
  static std::size_t fill(int fd) {
    agent().acknowledge(false);
    const std::string much(1 << 20, 'x');
    ssize_t sent = 0;
    for (ssize_t more; (more = ::send(fd, much.data(), much.size(), MSG_DONTWAIT)) > 0;) sent += more;
    EXPECT_EQ(errno, EAGAIN);
    return static_cast<std::size_t>(sent);
  }
  static void drain(int fd) {
    char bytes[4096];
    while (::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {
    }
  }
  ~Readiness() override { agent().acknowledge(true); }
};

TEST_F(Readiness, PollSaysWhatCanBeDone) {
  Handle handle = 0;
  const int fd = connected(handle);
  EXPECT_EQ(poll(fd), POLLOUT);
  agent().arrive(handle, "bytes");
  EXPECT_EQ(poll(fd, POLLIN, true), POLLIN);
  EXPECT_EQ(poll(fd), POLLIN | POLLOUT);
  char some[2];
  ASSERT_EQ(::read(fd, some, sizeof some), 2);
  EXPECT_EQ(poll(fd), POLLIN | POLLOUT);  // there is more to read
  drain(fd);
  EXPECT_EQ(poll(fd), POLLOUT);
  fill(fd);
  EXPECT_EQ(poll(fd), 0);
  agent().acknowledge(true);
  EXPECT_EQ(poll(fd, POLLOUT, true), POLLOUT);
  agent().end_stream(handle);
  EXPECT_EQ(poll(fd, POLLRDHUP, true), POLLRDHUP);
  EXPECT_EQ(poll(fd), all);
  agent().fail(handle, TcpError::reset);
  EXPECT_EQ(poll(fd, 0, true) & POLLHUP, POLLHUP);
}

// As in the kernel: with less, a program that polls before it writes would block in the write, or be woken for each
// acknowledgement.
TEST_F(Readiness, AThirdOfTheBufferIsRoom) {
  Handle handle = 0;
  const int fd = connected(handle);
  const int level = epoll_over(fd, EPOLLOUT), edge = epoll_over(fd, EPOLLOUT | EPOLLET);
  EXPECT_EQ(told_next(edge, fd), std::uint32_t{EPOLLOUT});
  const std::size_t ring = fill(fd);
  const auto writable = [&] { return std::tuple(poll(fd, POLLOUT), told(level, fd)); };
  EXPECT_EQ(writable(), std::tuple(0, 0u));
  agent().acknowledge(handle, ring / 3 - 1);
  program().take_in();
  EXPECT_EQ(writable(), std::tuple(0, 0u));
  EXPECT_EQ(told(edge, fd), 0u);
  EXPECT_EQ(::send(fd, "xyz", 3, MSG_DONTWAIT), 3);  // there is room all the same
  agent().acknowledge(handle, 4);
  EXPECT_EQ(poll(fd, POLLOUT, true), POLLOUT);
  EXPECT_EQ(told_next(level, fd), std::uint32_t{EPOLLOUT});
  EXPECT_EQ(told_next(edge, fd), std::uint32_t{EPOLLOUT});
}

TEST_F(Readiness, AListenerIsReadableWhileSomebodyWaits) {
  const int fd = tcp();
  ASSERT_EQ(bind(fd, "10.9.0.2", listened_port), 0);
  ASSERT_EQ(::listen(fd, 2), 0);
  EXPECT_EQ(poll(fd, POLLIN), 0);
  const int set = epoll_over(fd, EPOLLIN);
  EXPECT_EQ(told(set, fd), 0u);
  static_cast<void>(agent().connect_to(listened_port));
  EXPECT_EQ(poll(fd, POLLIN, true), POLLIN);
  EXPECT_EQ(told_next(set, fd), std::uint32_t{EPOLLIN});
  keep(::accept(fd, nullptr, nullptr));
  EXPECT_EQ(poll(fd, POLLIN), 0);
  EXPECT_EQ(told(set, fd), 0u);
}

TEST_F(Readiness, SelectSeesKernelsAndOffloadedTogether) {
  Handle handle = 0;
  const int fd = connected(handle);
  int pipes[2];
  ASSERT_EQ(::pipe(pipes), 0);
  for (const int end : pipes) keep(end);
  const auto ready = [&](bool wait) {
    fd_set reads, writes;
    FD_ZERO(&reads);
    FD_ZERO(&writes);
    FD_SET(fd, &reads);
    FD_SET(pipes[0], &reads);
    if (!wait) FD_SET(fd, &writes);
    timeval none{};
    EXPECT_GE(::select(std::max(fd, pipes[0]) + 1, &reads, &writes, nullptr, wait ? nullptr : &none), 0);
    return std::tuple(FD_ISSET(fd, &reads) != 0, FD_ISSET(fd, &writes) != 0, FD_ISSET(pipes[0], &reads) != 0);
  };
  EXPECT_EQ(ready(false), std::tuple(false, true, false));
  ASSERT_EQ(::write(pipes[1], "x", 1), 1);
  EXPECT_EQ(ready(false), std::tuple(false, true, true));
  agent().arrive(handle, "x");
  while (!std::get<0>(ready(true))) {
  }
  EXPECT_EQ(ready(false), std::tuple(true, true, true));
}

// ---- epoll

TEST_F(Readiness, ALevelIsToldAsLongAsItLasts) {
  Handle handle = 0;
  const int fd = connected(handle), set = epoll_over(fd, EPOLLIN | EPOLLRDHUP);
  EXPECT_EQ(told(set, fd), 0u);
  agent().arrive(handle, "x");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(told_next(set, fd), std::uint32_t{EPOLLIN});
  drain(fd);
  EXPECT_EQ(told(set, fd), 0u);
  agent().end_stream(handle);
  EXPECT_EQ(told_next(set, fd), std::uint32_t{EPOLLIN | EPOLLRDHUP});
  agent().fail(handle, TcpError::reset);
  EXPECT_EQ(told_next(set, fd),
            std::uint32_t{EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR});  // the last two are always reported
  EXPECT_EQ(pending_error(fd), ECONNRESET);
  EXPECT_EQ(told_next(set, fd), std::uint32_t{EPOLLIN | EPOLLRDHUP | EPOLLHUP});
}

TEST_F(Readiness, AnEdgeIsToldOnceForWhatIsNew) {
  Handle handle = 0;
  const int fd = connected(handle), set = epoll_over(fd, EPOLLIN | EPOLLOUT | EPOLLET);
  EXPECT_EQ(told_next(set, fd), std::uint32_t{EPOLLOUT});
  EXPECT_EQ(told(set, fd), 0u);
  agent().arrive(handle, "x");
  EXPECT_EQ(told_next(set, fd), std::uint32_t{EPOLLIN | EPOLLOUT});
  EXPECT_EQ(told(set, fd), 0u);  // although it was not read
  agent().arrive(handle, "y");
  EXPECT_EQ(told_next(set, fd), std::uint32_t{EPOLLIN | EPOLLOUT});
  fill(fd);
  EXPECT_EQ(told(set, fd), 0u);
  agent().acknowledge(true);
  EXPECT_EQ(told_next(set, fd) & EPOLLOUT, std::uint32_t{EPOLLOUT});  // room again, after a send that found none
  EXPECT_EQ(told(set, fd), 0u);
}

TEST_F(Readiness, AOneShotIsToldAgainWhenItIsArmedAgain) {
  Handle handle = 0;
  const int fd = connected(handle), set = epoll_over(fd, EPOLLIN | EPOLLONESHOT);
  agent().arrive(handle, "x");
  EXPECT_EQ(told_next(set, fd), std::uint32_t{EPOLLIN});
  agent().arrive(handle, "y");
  EXPECT_EQ(told(set, fd), 0u);
  ASSERT_EQ(control(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLONESHOT), 0);
  EXPECT_EQ(told_next(set, fd), std::uint32_t{EPOLLIN});
}

TEST_F(Readiness, EpollCtlRefusesAsTheKernelDoes) {
  Handle handle = 0;
  const int fd = connected(handle), set = epoll_over(fd, EPOLLIN), copy = keep(::dup(fd));
  EXPECT_EQ(control(set, EPOLL_CTL_ADD, fd, EPOLLIN), EEXIST);
  EXPECT_EQ(control(set, EPOLL_CTL_MOD, copy, EPOLLIN), ENOENT);
  EXPECT_EQ(control(set, EPOLL_CTL_ADD, copy, EPOLLIN | EPOLLEXCLUSIVE), 0);  // another descriptor: another watch
  EXPECT_EQ(control(set, EPOLL_CTL_MOD, copy, EPOLLIN), EINVAL);
  EXPECT_EQ(control(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLEXCLUSIVE), EINVAL);
  EXPECT_EQ(error_of(::epoll_ctl(set, EPOLL_CTL_ADD, fd, nullptr)), EFAULT);
  EXPECT_EQ(control(set, EPOLL_CTL_DEL, copy, 0), 0);
  EXPECT_EQ(control(set, EPOLL_CTL_DEL, copy, 0), ENOENT);
  agent().arrive(handle, "x");
  EXPECT_EQ(told_next(set, fd), std::uint32_t{EPOLLIN});
}

TEST_F(Readiness, ASetHasKernelsMembersBesides) {
  Handle handle = 0;
  const int fd = connected(handle), set = epoll_over(fd, EPOLLIN);
  int pipes[2];
  ASSERT_EQ(::pipe(pipes), 0);
  for (const int end : pipes) keep(end);
  ASSERT_EQ(control(set, EPOLL_CTL_ADD, pipes[0], EPOLLIN), 0);
  ASSERT_EQ(::write(pipes[1], "x", 1), 1);
  EXPECT_EQ(told_next(set, pipes[0]), std::uint32_t{EPOLLIN});
  agent().arrive(handle, "x");
  epoll_event events[4];
  // The kernel is asked now and then even if offloaded sockets always have something to report.
  std::uint64_t seen[2] = {};
  while (seen[0] == 0 || seen[1] == 0) {
    const int ready = ::epoll_wait(set, events, 4, 0);
    ASSERT_GE(ready, 1);
    for (int i = 0; i < ready; ++i) ++seen[static_cast<int>(events[i].data.u64 >> 32) == fd ? 0 : 1];
  }
}

// As an event loop does whose thread waits before there is anything to wait for. The wait goes on with the socket, and
// reports nothing that the program did not add.
TEST_F(Readiness, AWaitThatBeganBeforeTheFirstOffloadedSocketReportsIt) {
  const int set = keep(::epoll_create1(EPOLL_CLOEXEC));
  Handle handle = 0;
  const int fd = connected(handle);
  std::atomic<bool> waits = false, is_told = false;
  std::thread thread([&] {
    waits = true;
    is_told = told(set, fd, 30'000) == EPOLLIN;
  });
  while (!waits) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // in the kernel by then; without, the test proves less
  EXPECT_EQ(control(set, EPOLL_CTL_ADD, fd, EPOLLIN), 0);
  agent().arrive(handle, "x");
  thread.join();
  EXPECT_TRUE(is_told);
}

TEST_F(Readiness, AWatchEndsWithTheLastDescriptor) {
  Handle handle = 0;
  const int fd = connected(handle), copy = ::dup(fd), set = epoll_over(fd, EPOLLIN);
  agent().arrive(handle, "x");
  ::close(fd);
  EXPECT_EQ(told_next(set, fd), std::uint32_t{EPOLLIN});  // like the kernel's sets, while a copy is open
  ::close(copy);
  epoll_event event;
  EXPECT_EQ(::epoll_wait(set, &event, 1, 0), 0);
}

// From then on the kernel reports its sockets.
TEST_F(Readiness, ASetThatIsWatchedItselfIsTheKernels) {
  Handle handle = 0;
  const int fd = connected(handle), set = epoll_over(fd, EPOLLIN);
  EXPECT_EQ(poll(set, POLLIN), 0);
  agent().arrive(handle, "x");
  EXPECT_EQ(poll(set, POLLIN, true), POLLIN);
  EXPECT_EQ(told_next(set, fd), std::uint32_t{EPOLLIN});
  drain(fd);
  EXPECT_EQ(poll(set, POLLIN), 0);
}

TEST_F(Readiness, AConnectionIsWritableOnceItIsDecided) {
  const int fd = tcp(SOCK_NONBLOCK), refused = tcp(SOCK_NONBLOCK);
  ASSERT_EQ(error_of(connect(fd, "10.9.0.1", 80)), EINPROGRESS);
  EXPECT_EQ(poll(fd, POLLOUT, true), POLLOUT);
  EXPECT_EQ(pending_error(fd), 0);
  agent().fail_next_connection(TcpError::refused);
  ASSERT_EQ(error_of(connect(refused, "10.9.0.1", 80)), EINPROGRESS);
  EXPECT_EQ(poll(refused, POLLOUT, true) & POLLOUT, POLLOUT);
  EXPECT_EQ(pending_error(refused), ECONNREFUSED);
}

// Adds, changes, reports and removes one watch among others, and closes a socket that is watched.
TEST_F(Readiness, TheCostOfEpollDoesNotDependOnTheNumberOfWatches) {
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit before = limit;
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  constexpr int few = 100;
  constexpr std::uint64_t most = 200'000;
  const int many = static_cast<int>(std::min<rlim_t>(10'000, limit.rlim_max / 2));
  ASSERT_GE(many, 10 * few) << "too few descriptors are allowed";
  Handle handle = 0;
  const int fd = connected(handle), watched = connected(handle);
  const auto cost_among = [&](int count) {
    const int set = keep(::epoll_create1(EPOLL_CLOEXEC));
    int one = -1;
    const auto prepare = [&] {
      int failed = control(set, EPOLL_CTL_ADD, watched, EPOLLIN);
      for (int i = 0; i < count; ++i) failed |= control(set, EPOLL_CTL_ADD, ::dup(fd), EPOLLIN);
      one = ::dup(fd);
      if (failed != 0 || one < 0 || told(set, one) != 0) ::_exit(1);
    };
    const auto calls = [&] {
      const int added = control(set, EPOLL_CTL_ADD, one, EPOLLIN), changed = control(set, EPOLL_CTL_MOD, one, EPOLLOUT);
      const std::uint32_t ready = told(set, one);
      const int removed = control(set, EPOLL_CTL_DEL, one, 0);
      ::close(watched);
      if (added != 0 || changed != 0 || ready != EPOLLOUT || removed != 0) ::_exit(1);
    };
    return instructions(most, prepare, calls);
  };
  const auto alone = cost_among(few), among_many = cost_among(many);
  ::setrlimit(RLIMIT_NOFILE, &before);
  ASSERT_TRUE(alone && among_many);
  if (*alone > most / 2) GTEST_SKIP() << "a sanitizer's instructions are too many to be counted";
  EXPECT_LT(*among_many, *alone + *alone / 2) << "instructions, with " << many << " watches instead of " << few;
}

// The spins of that many waits, which all end within a short sleep. `in_time` of a hundred end within a spin.
int spins_of(int waits, int in_time) {
  ShortWaits short_waits;
  int spins = 0;
  for (int i = 0; i < waits; ++i) {
    const bool early = i * 7 % 100 < in_time;
    if (short_waits.spins()) {
      ++spins;
      short_waits.spun(early);
      if (early) continue;
    }
    short_waits.slept(ShortWaits::short_ns - 1);
  }
  return spins;
}

TEST(ShortWaitsTest, SpinsInVainBecomeRare) {
  EXPECT_EQ(spins_of(1000, 100), 996) << "replies that come at once";
  EXPECT_GT(spins_of(1000, 90), 750);
  EXPECT_LT(spins_of(1000, 0), 50) << "a stream, whose next batch comes later";
  ShortWaits long_waits;
  for (int i = 0; i < 100; ++i) long_waits.slept(ShortWaits::short_ns);
  EXPECT_FALSE(long_waits.spins());
}

}  // namespace
}  // namespace offpath::sockets
