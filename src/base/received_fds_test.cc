#include "base/received_fds.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "base/sent_fds.h"

namespace offpath {
namespace {

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) != -1; }

template <class There>
bool comes(There there) {
  for (const TimeNs until = monotonic_ns() + 60 * second_ns; monotonic_ns() < until; std::this_thread::yield())
    if (there()) return true;
  return false;
}

// A socket whose last close waits for ten minutes, until its peer goes.
struct Lingering {
  Fd peer, socket;
  Lingering() {
    const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(listener.get(), 1), 0);
    EXPECT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    socket = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(socket.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    peer = Fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    static const std::array<char, 65536> bytes{};
    while (send(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
    set(socket, 600);
    set(peer, 0);  // it resets
  }
  static void set(const Fd& of, int seconds) {
    const linger lingers{1, seconds};
    EXPECT_EQ(setsockopt(of.get(), SOL_SOCKET, SO_LINGER, &lingers, sizeof lingers), 0);
  }
};

Fd memory(std::size_t bytes) {
  Fd made(memfd_create("tested", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(fallocate(made.get(), 0, 0, static_cast<off_t>(bytes)), 0);
  return made;
}

TEST(ReceivedFds, MemoryOfAFewPagesIsClosedAtOnce) {
  const auto all = std::make_shared<ReceivedFds>();
  const auto user = all->of(7);
  Fd small = user->own(memory(4096));
  const int number = small.get();
  EXPECT_EQ(user->descriptors(), 1u);
  small.reset();
  EXPECT_FALSE(is_open(number));
  EXPECT_EQ(user->descriptors(), 0u);
  EXPECT_EQ(all->of(7), user);
}

TEST(ReceivedFds, ACloseThatWaitsHoldsUpItsUserAlone) {
  const auto all = std::make_shared<ReceivedFds>(ReceivedLimits{100, 2, 100, 100});
  Lingering one, other;
  {
    const auto user = all->of(1);
    Fd first = user->own(std::move(one.socket)), second = user->own(std::move(other.socket));
    EXPECT_EQ(user->may_take().error().code, Error::too_large);
    EXPECT_FALSE(user->overdrawn());
  }
  EXPECT_EQ(all->of(1)->descriptors(), 2u) << "they are not closed yet";
  EXPECT_EQ(all->waiting(), 2u);
  EXPECT_EQ(all->of(1)->may_take().error().code, Error::too_large);

  const auto beside = all->of(2);
  EXPECT_TRUE(beside->may_take());
  Fd large = beside->own(memory(16 << 20));
  large.reset();
  EXPECT_TRUE(comes([&] { return beside->descriptors() == 0; }));
  EXPECT_EQ(all->waiting(), 2u) << "the others still wait";

  one.peer.reset();
  other.peer.reset();
  EXPECT_TRUE(comes([&] { return all->waiting() == 0 && all->of(1)->descriptors() == 0; }));
  EXPECT_TRUE(all->of(1)->may_take());
}

TEST(ReceivedFds, MoreUsersThanThreadsWaitForTheirTurn) {
  const auto all = std::make_shared<ReceivedFds>();
  std::vector<Lingering> stuck(ReceivedFds::threads_max);
  for (uid_t user = 0; user < stuck.size(); ++user) (void)all->of(user)->own(std::move(stuck[user].socket));
  const Fd pipe = [&] {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    (void)all->of(1000)->own(ends[1]);
    return Fd(ends[0]);
  }();
  pollfd look{pipe.get(), 0, 0};
  EXPECT_EQ(poll(&look, 1, 50), 0) << "no thread is free";
  stuck.clear();
  EXPECT_EQ(poll(&look, 1, 60'000), 1);
  EXPECT_TRUE(comes([&] { return all->waiting() == 0; }));
}

TEST(ReceivedFds, MappingsAreCountedUntilTheyAreGone) {
  const auto all = std::make_shared<ReceivedFds>(ReceivedLimits{100, 100, 3, 2});
  const auto user = all->of(1), other = all->of(2);
  const std::size_t small = 4096, large = 16 << 20;
  const auto map = [](std::size_t bytes) {
    return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  };
  ASSERT_TRUE(user->take_mapping());
  ASSERT_TRUE(user->take_mapping());
  EXPECT_NE(user->take_mapping().error().message.find("limits.user_mappings_max"), std::string::npos);
  ASSERT_TRUE(other->take_mapping());
  EXPECT_NE(other->take_mapping().error().message.find("max_map_count"), std::string::npos);
  user->unmap(map(small), small);
  EXPECT_EQ(user->mappings(), 1u);
  user->unmap(map(large), large);
  EXPECT_TRUE(comes([&] { return user->mappings() == 0 && all->mappings() == 1; }));
}

TEST(ReceivedFds, AllDescriptorsOfAMessageAreTaken) {
  const auto all = std::make_shared<ReceivedFds>(ReceivedLimits{1000, 100, 1, 1});
  const auto user = all->of(1);
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const Fd ours(ends[0]), theirs(ends[1]);
  const Fd given = memory(4096);
  constexpr std::size_t count = message_descriptors_max;
  char byte = 0;
  const iovec piece{&byte, 1};
  const std::vector<int> given_often(count, given.get());
  ASSERT_EQ(send_with_descriptors(theirs.get(), {&piece, 1}, given_often, 0), 1);
  std::vector<Fd> descriptors;
  int said = 0;
  EXPECT_EQ(receive_with_descriptors(ours.get(), {&piece, 1}, MSG_DONTWAIT, user, descriptors, said), 1);
  EXPECT_EQ(said & MSG_CTRUNC, 0);
  EXPECT_EQ(descriptors.size(), count);
  EXPECT_EQ(user->descriptors(), count) << "what has come is counted, beyond the limit too";
  EXPECT_FALSE(user->may_take());
  descriptors.clear();
  EXPECT_EQ(user->descriptors(), 0u);
}

TEST(ReceivedFds, WhatIsReleasedIsCountedNoMore) {
  const auto all = std::make_shared<ReceivedFds>();
  const auto user = all->of(1);
  Fd kept = user->own(memory(4096));
  kept = Fd(kept.release());
  EXPECT_TRUE(is_open(kept.get()));
  EXPECT_EQ(user->descriptors(), 0u);
}

}  // namespace
}  // namespace offpath
