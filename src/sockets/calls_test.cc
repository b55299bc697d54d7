// The choice of offloaded sockets, and the results of their calls, against a fake agent.
#include "sockets/calls.h"
#include "sockets/kernel_terms.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "sockets/left_to_kernel.h"
#include "testing/sockets/offloaded.h"

namespace offpath::sockets {

using wire::TcpCommandKind;
using wire::TcpError;

namespace {

[[gnu::constructor(101)]] void set_policy() { set_policy_of_tests(); }

class Calls : public Offloaded {
 protected:
  int listener(Handle* handle = nullptr) {
    const int fd = tcp();
    EXPECT_EQ(bind(fd, "10.9.0.2", listened_port), 0);
    EXPECT_EQ(::listen(fd, 4), 0) << errno;
    if (handle != nullptr) *handle = descriptors().find(fd)->handle;
    return fd;
  }
  static std::string read_from(int fd, std::size_t most = 100) {
    std::string bytes(most, '\0');
    const ssize_t got = ::read(fd, bytes.data(), most);
    return got < 0 ? "errno " + std::to_string(errno) : bytes.substr(0, static_cast<std::size_t>(got));
  }
  static int option(int fd, int level, int name) {
    int value = -1;
    socklen_t length = sizeof value;
    EXPECT_EQ(::getsockopt(fd, level, name, &value, &length), 0) << name;
    return value;
  }
  static int set(int fd, int level, int name, int value) { return ::setsockopt(fd, level, name, &value, sizeof value); }
};

// ---- which sockets are offloaded

TEST_F(Calls, AListenerAtANamedPortIsOffloaded) {
  const int named = listener(), other = tcp();
  EXPECT_TRUE(is_offloaded(named));
  ASSERT_EQ(bind(other, "10.9.0.2", listened_port + 1), 0);
  ASSERT_EQ(::listen(other, 4), 0);
  EXPECT_FALSE(is_offloaded(other));
  EXPECT_EQ(option(named, SOL_SOCKET, SO_ACCEPTCONN), 1);
}

TEST_F(Calls, AConnectionToANamedNetworkIsOffloaded) {
  const int named = tcp(), elsewhere = tcp(SOCK_NONBLOCK);
  EXPECT_EQ(connect(named, "10.9.0.1", 80), 0);
  EXPECT_TRUE(is_offloaded(named));
  static_cast<void>(connect(elsewhere, "10.8.0.1", 80));
  EXPECT_FALSE(is_offloaded(elsewhere));
}

TEST_F(Calls, WhatIsNotTcpIsTheKernels) {
  const int datagrams = keep(::socket(AF_INET, SOCK_DGRAM, 0));
  static_cast<void>(connect(datagrams, "10.9.0.1", 80));
  EXPECT_FALSE(is_offloaded(datagrams));
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  for (const int fd : ends) EXPECT_FALSE(is_offloaded(keep(fd)));
  keep(::socket(AF_UNIX, SOCK_STREAM, 0));
  EXPECT_NE(report().find("left to the kernel (datagrams)"), std::string::npos) << report();
  EXPECT_NE(report().find("left to the kernel (Unix)"), std::string::npos) << report();
}

TEST_F(Calls, ACallByNumberIsTheCallByName) {
  Handle handle = 0;
  const int fd = connected(handle);
  const int copy = keep(static_cast<int>(::syscall(SYS_dup, fd)));
  EXPECT_TRUE(is_offloaded(copy));
  EXPECT_EQ(::syscall(SYS_write, fd, "hello", 5), 5);
  EXPECT_EQ(::syscall(SYS_read, fd, nullptr, 0), 0);
  EXPECT_EQ(::syscall(SYS_close, fd), 0);
  EXPECT_FALSE(is_offloaded(fd));
  EXPECT_TRUE(is_offloaded(copy));
  EXPECT_EQ(error_of(::syscall(SYS_io_uring_setup, 8, nullptr)), ENOSYS);
}

TEST_F(Calls, LoopbackIsTheKernelsAndWorks) {
  const int server = tcp(), client = tcp();
  ASSERT_EQ(bind(server, "127.0.0.1", 0), 0);
  ASSERT_EQ(::listen(server, 1), 0);
  sockaddr_in name{};
  socklen_t length = sizeof name;
  ASSERT_EQ(::getsockname(server, reinterpret_cast<sockaddr*>(&name), &length), 0);
  ASSERT_EQ(::connect(client, reinterpret_cast<sockaddr*>(&name), length), 0);
  const int accepted = keep(::accept(server, nullptr, nullptr));
  ASSERT_EQ(::write(client, "hello", 5), 5);
  EXPECT_EQ(read_from(accepted), "hello");
  for (const int fd : {server, client, accepted}) EXPECT_FALSE(is_offloaded(fd));
}

// ---- errors of the agent, as a program sees them

TEST(Errors, OfTheAgentHaveTheKernelsNumbers) {
  const std::pair<TcpError, int> known[] = {{TcpError::none, 0},
                                            {TcpError::refused, ECONNREFUSED},
                                            {TcpError::reset, ECONNRESET},
                                            {TcpError::timed_out, ETIMEDOUT},
                                            {TcpError::unreachable, EHOSTUNREACH},
                                            {TcpError::address_in_use, EADDRINUSE},
                                            {TcpError::no_room, ENOBUFS},
                                            {TcpError::denied, EACCES}};
  for (const auto& [error, code] : known) EXPECT_EQ(errno_of(error), code) << static_cast<int>(error);
  EXPECT_EQ(errno_of(static_cast<TcpError>(99)), EIO);
}

TEST_F(Calls, AConnectionThatFailsSaysWhyAndMayBeginAgain) {
  for (const auto& [error, code] : {std::pair{TcpError::refused, ECONNREFUSED},
                                    {TcpError::timed_out, ETIMEDOUT},
                                    {TcpError::unreachable, EHOSTUNREACH},
                                    {TcpError::no_room, ENOBUFS}}) {
    const int fd = tcp();
    agent().fail_next_connection(error);
    EXPECT_EQ(error_of(connect(fd, "10.9.0.1", 80)), code);
    EXPECT_EQ(pending_error(fd), 0);  // it was returned before
    EXPECT_EQ(connect(fd, "10.9.0.1", 80), 0);
    EXPECT_EQ(error_of(connect(fd, "10.9.0.1", 80)), EISCONN);
  }
}

TEST_F(Calls, AConnectionThatDoesNotWaitTellsItsErrorOnce) {
  const int fd = tcp(SOCK_NONBLOCK);
  agent().fail_next_connection(TcpError::refused);
  EXPECT_EQ(error_of(connect(fd, "10.9.0.1", 80)), EINPROGRESS);
  static_cast<void>(agent().last_connected());  // waits until the agent has answered
  EXPECT_EQ(pending_error(fd), ECONNREFUSED);
  EXPECT_EQ(pending_error(fd), 0);
}

TEST_F(Calls, AResetIsToldOnceThenTheStreamHasEnded) {
  Handle handle = 0;
  const int fd = connected(handle);
  agent().arrive(handle, "last");
  agent().fail(handle, TcpError::reset);
  EXPECT_EQ(read_from(fd), "last");
  EXPECT_EQ(read_from(fd), "errno " + std::to_string(ECONNRESET));
  EXPECT_EQ(read_from(fd), "");
  EXPECT_EQ(error_of(::send(fd, "x", 1, MSG_NOSIGNAL)), EPIPE);
}

TEST_F(Calls, WhatASocketIsNotIsRefused) {
  Handle handle = 0;
  const int connection = connected(handle), listening = listener();
  sockaddr_in name{};
  socklen_t length = sizeof name;
  auto* const to = reinterpret_cast<sockaddr*>(&name);
  EXPECT_EQ(error_of(::accept(connection, nullptr, nullptr)), EINVAL);
  EXPECT_EQ(error_of(::listen(connection, 1)), EINVAL);
  EXPECT_EQ(error_of(::getpeername(listening, to, &length)), ENOTCONN);
  EXPECT_EQ(read_from(listening), "errno " + std::to_string(ENOTCONN));
  EXPECT_EQ(error_of(::send(connection, "x", 1, MSG_OOB)), EOPNOTSUPP);
  EXPECT_EQ(error_of(set(connection, SOL_SOCKET, SO_MARK, 1)), ENOPROTOOPT);
  EXPECT_EQ(error_of(set(connection, IPPROTO_IP, IP_TTL, 1)), ENOPROTOOPT);
  EXPECT_EQ(error_of(set(connection, IPPROTO_TCP, TCP_KEEPCNT, 0)), EINVAL);
  EXPECT_EQ(error_of(::shutdown(connection, 17)), EINVAL);
}

// ---- bytes

TEST_F(Calls, BytesGoBothWays) {
  Handle handle = 0;
  const int fd = connected(handle, O_NONBLOCK);
  EXPECT_EQ(read_from(fd), "errno " + std::to_string(EAGAIN));
  iovec parts[] = {{const_cast<char*>("one "), 4}, {nullptr, 0}, {const_cast<char*>("two"), 3}};
  EXPECT_EQ(::writev(fd, parts, 3), 7);
  EXPECT_EQ(agent().offered(handle), "one two");
  agent().arrive(handle, "three four");
  int unread = 0;
  EXPECT_EQ(::read(fd, nullptr, 0), 0);
  static_cast<void>(::recv(fd, &unread, 1, MSG_PEEK));
  EXPECT_EQ(::ioctl(fd, FIONREAD, &unread), 0);
  EXPECT_EQ(unread, 10);
  char peeked[5];
  EXPECT_EQ(::recv(fd, peeked, sizeof peeked, MSG_PEEK), 5);
  EXPECT_EQ(std::string(peeked, 5), "three");
  EXPECT_EQ(read_from(fd, 6), "three ");
  agent().end_stream(handle);
  EXPECT_EQ(read_from(fd), "four");
  EXPECT_EQ(read_from(fd), "");
  EXPECT_EQ(read_from(fd), "");  // every time
}

TEST_F(Calls, ASendTakesWhatThereIsRoomFor) {
  Handle handle = 0;
  const int fd = connected(handle, O_NONBLOCK);
  agent().acknowledge(false);
  const std::string much(3 << 20, 'x');
  const ssize_t first = ::write(fd, much.data(), much.size());
  EXPECT_GT(first, 0);
  EXPECT_LT(first, static_cast<ssize_t>(much.size()));
  EXPECT_EQ(error_of(::write(fd, "x", 1)), EAGAIN);
  agent().acknowledge(true);
  EXPECT_EQ(::write(fd, "y", 1), 1);
  EXPECT_EQ(agent().offered(handle).size(), static_cast<std::size_t>(first) + 1);
}

TEST_F(Calls, ShutdownEndsOneWayAtATime) {
  Handle handle = 0;
  const int fd = connected(handle);
  ASSERT_EQ(::shutdown(fd, SHUT_WR), 0);
  agent().await(TcpCommandKind::finish, handle);
  EXPECT_EQ(error_of(::send(fd, "x", 1, MSG_NOSIGNAL)), EPIPE);
  agent().arrive(handle, "still");
  EXPECT_EQ(read_from(fd), "still");
  ASSERT_EQ(::shutdown(fd, SHUT_RD), 0);
  EXPECT_EQ(read_from(fd), "");
}

// ---- ends

TEST_F(Calls, ACloseReleasesOrResets) {
  Handle released = 0, unread = 0, lingers = 0;
  ::close(connected(released));
  agent().await(TcpCommandKind::release, released);
  const int with_bytes = connected(unread);
  agent().arrive(unread, "x");
  while (::recv(with_bytes, nullptr, 0, MSG_PEEK) != 0) {
  }
  char byte;
  ASSERT_EQ(::recv(with_bytes, &byte, 1, MSG_PEEK), 1);
  ::close(with_bytes);
  agent().await(TcpCommandKind::abort, unread);  // the peer has to learn that it was not read
  const int resets = connected(lingers);
  const linger none{1, 0};
  ASSERT_EQ(::setsockopt(resets, SOL_SOCKET, SO_LINGER, &none, sizeof none), 0);
  ::close(resets);
  agent().await(TcpCommandKind::abort, lingers);
}

// ---- listeners

TEST_F(Calls, AcceptNamesThePeerAndGivesTheListenersSettings) {
  Handle listening = 0;
  const int fd = listener(&listening);
  ASSERT_EQ(set(fd, IPPROTO_TCP, TCP_NODELAY, 1), 0);
  set_non_blocking(fd);
  EXPECT_EQ(error_of(::accept(fd, nullptr, nullptr)), EAGAIN);
  const Handle handle = agent().connect_to(listened_port);
  sockaddr_in peer{}, own{};
  socklen_t length = sizeof peer;
  const int made = keep(::accept4(fd, reinterpret_cast<sockaddr*>(&peer), &length, SOCK_CLOEXEC));
  ASSERT_GE(made, 0) << errno;
  EXPECT_TRUE(is_offloaded(made));
  EXPECT_EQ(::fcntl(made, F_GETFD), FD_CLOEXEC);
  EXPECT_EQ(::fcntl(made, F_GETFL) & O_NONBLOCK, 0);  // not inherited from the listener
  EXPECT_EQ(ntohl(peer.sin_addr.s_addr), 0x0a090001u);
  EXPECT_EQ(option(made, IPPROTO_TCP, TCP_NODELAY), 1);
  length = sizeof own;
  ASSERT_EQ(::getsockname(made, reinterpret_cast<sockaddr*>(&own), &length), 0);
  EXPECT_EQ(ntohl(own.sin_addr.s_addr), FakeAreaAgent::address);
  EXPECT_EQ(ntohs(own.sin_port), listened_port);
  agent().arrive(handle, "hello");
  EXPECT_EQ(read_from(made), "hello");
  ::close(fd);
  agent().await(TcpCommandKind::release, listening);
}

TEST_F(Calls, BindSaysThatTheAgentRefusesThePort) {
  const int fd = tcp();
  agent().fail_next_connection(TcpError::address_in_use);
  EXPECT_EQ(error_of(bind(fd, "10.9.0.2", listened_port)), EADDRINUSE);
  EXPECT_EQ(bind(fd, "10.9.0.2", listened_port), 0);
  EXPECT_EQ(error_of(bind(fd, "10.9.0.2", listened_port)), EINVAL);
  const int copy = keep(::dup(fd));
  ::close(fd);
  EXPECT_EQ(::listen(copy, 1), 0);
  EXPECT_TRUE(is_offloaded(copy));
}

TEST_F(Calls, AnyPortOfTheAgentsAddressIsTheAgents) {
  const int fd = tcp();
  ASSERT_EQ(bind(fd, "10.9.0.2", 0), 0);
  EXPECT_FALSE(is_offloaded(fd));
  sockaddr_in own{};
  socklen_t length = sizeof own;
  ASSERT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length), 0);
  EXPECT_EQ(ntohs(own.sin_port), FakeAreaAgent::chosen_port);
  ASSERT_EQ(::listen(fd, 1), 0);
  EXPECT_TRUE(is_offloaded(fd));
}

TEST_F(Calls, OptionsThatOnlyHintAreAccepted) {
  const int before = tcp();
  ASSERT_EQ(set(before, IPPROTO_IP, IP_TOS, 0x10), 0);
  ASSERT_EQ(connect(before, "10.9.0.1", 80), 0);
  EXPECT_EQ(option(before, IPPROTO_IP, IP_TOS), 0x10);
  EXPECT_EQ(set(before, SOL_SOCKET, SO_PRIORITY, 3), 0);
  EXPECT_EQ(option(before, SOL_SOCKET, SO_PRIORITY), 3);
  const unsigned char low_delay = 0x08;
  EXPECT_EQ(::setsockopt(before, IPPROTO_IP, IP_TOS, &low_delay, 1), 0);
  EXPECT_EQ(option(before, IPPROTO_IP, IP_TOS), 0x08);
}

TEST_F(Calls, SettingsAreKeptFromBeforeTheSocketWasOffloaded) {
  const int fd = tcp();
  ASSERT_EQ(set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 77), 0);
  ASSERT_EQ(set(fd, SOL_SOCKET, SO_KEEPALIVE, 1), 0);
  ASSERT_EQ(set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 9000), 0);
  ASSERT_EQ(connect(fd, "10.9.0.1", 80), 0);
  EXPECT_EQ(option(fd, IPPROTO_TCP, TCP_KEEPIDLE), 77);
  EXPECT_EQ(option(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
  const wire::TcpCommand began = agent().connect_command(agent().last_connected());
  EXPECT_EQ(began.keepalive_idle_s, 77);
  EXPECT_NE(began.flags & wire::tcp_keepalive, 0);
  EXPECT_EQ(began.user_timeout_ms, 9000u);
  // Nothing is told twice; later changes are told when they happen.
  EXPECT_FALSE(agent().has_commanded(TcpCommandKind::options, agent().last_connected()));
  ASSERT_EQ(set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 78), 0);
  agent().await(TcpCommandKind::options, agent().last_connected());
}

}  // namespace
}  // namespace offpath::sockets
