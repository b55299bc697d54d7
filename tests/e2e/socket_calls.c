/* Socket calls that programs use, one after another, each with what came of it. The same program is run over offloaded sockets and over the
 * kernel's, and says the same.
 *
 *   socket_calls ADDRESS PORT REFUSED OWN    an echo server is at ADDRESS:PORT, nobody at REFUSED; somebody connects to port OWN once
 *                                            "listening" was said, and sends "hello"
 *
 * To be compiled with -O2 -D_FORTIFY_SOURCE=2: sizes that the compiler does not know are then looked at by the C library's checked forms. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static struct sockaddr_in echo, nobody;
static char bytes[64];

static const char *name_of(int error) { return error == 0 ? "0" : strerrorname_np(error); }

/* A number, or the error's name. */
static void say(const char *what, long result) {
  if (result < 0) printf("%s: %s\n", what, name_of(errno));
  else printf("%s: %ld\n", what, result);
}

static void say_bytes(const char *what, long got) {
  if (got < 0) printf("%s: %s\n", what, name_of(errno));
  else printf("%s: %ld %.*s\n", what, got, (int)got, bytes);
  memset(bytes, 0, sizeof bytes);
}

static size_t unknown(size_t size) {
  volatile size_t kept = size;
  return kept;
}

static int waits(int fd, short events) {
  struct pollfd one = {.fd = fd, .events = events};
  return poll(&one, unknown(1), 10000) == 1 ? one.revents : 0;
}

/* Until so many bytes lie there. */
static void comes(int fd, int count) {
  for (int there = 0; waits(fd, POLLIN) && ioctl(fd, FIONREAD, &there) == 0 && there < count;) usleep(1000);
}

static int connected(void) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&echo, sizeof echo) != 0) {
    perror("connect");
    exit(1);
  }
  return fd;
}

static void receive_and_send(void) {
  const int fd = connected();
  struct sockaddr_in peer;
  socklen_t length = sizeof peer;
  say("getpeername", getpeername(fd, (struct sockaddr *)&peer, &length));
  say("is the peer", peer.sin_port == echo.sin_port && peer.sin_addr.s_addr == echo.sin_addr.s_addr && length == sizeof peer);
  say("recv MSG_DONTWAIT, nothing there", recv(fd, bytes, unknown(4), MSG_DONTWAIT));
  say("send", send(fd, "0123456789", 10, MSG_NOSIGNAL));
  comes(fd, 10);
  int there = 0;
  say("ioctl FIONREAD", ioctl(fd, FIONREAD, &there));
  say("bytes there", there);
  say_bytes("recv MSG_PEEK", recv(fd, bytes, unknown(4), MSG_PEEK));
  say_bytes("recv", recv(fd, bytes, unknown(4), 0));
  say_bytes("read", read(fd, bytes, unknown(2)));
  say_bytes("recvfrom", recvfrom(fd, bytes, unknown(2), 0, NULL, NULL));
  say("write", write(fd, "ab", 2));
  say_bytes("recv MSG_WAITALL", recv(fd, bytes, unknown(4), MSG_WAITALL));
  struct iovec parts[2] = {{"abc", 3}, {"defg", 4}};
  say("writev", writev(fd, parts, 2));
  comes(fd, 7);
  struct iovec to[2] = {{bytes, 5}, {bytes + 5, 20}};
  say_bytes("readv", readv(fd, to, 2));
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
  say("sendmsg", sendmsg(fd, &message, 0));
  struct msghdr got = {.msg_iov = to, .msg_iovlen = 1};
  comes(fd, 7);
  say_bytes("recvmsg", recvmsg(fd, &got, 0));
  say("its flags", got.msg_flags);
  say_bytes("the rest", recv(fd, bytes, unknown(20), 0));
  say("close", close(fd));
  say("recv, closed", recv(fd, bytes, unknown(4), 0));
}

static void options_and_flags(void) {
  const int fd = connected(), on = 1;
  int value = -1;
  socklen_t length = sizeof value;
  say("getsockopt SO_ERROR", getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &length));
  say("its value", value);
  say("getsockopt SO_TYPE", getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &length));
  say("its value", value);
  say("ioctl FIONBIO", ioctl(fd, FIONBIO, &on));
  say("O_NONBLOCK", (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
  say("recv, nothing there", recv(fd, bytes, unknown(4), 0));
  say("fcntl F_SETFL", fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK));
  say("dup3 to itself", dup3(fd, fd, O_CLOEXEC));
  say("dup3", dup3(fd, 100, O_CLOEXEC));
  say("FD_CLOEXEC", fcntl(100, F_GETFD));
  say("dup", dup(fd) >= 0);
  say("close", close(fd));
  say("write by the copy", write(100, "xyz", 3));
  fd_set set;
  FD_ZERO(&set);
  FD_SET(100, &set);
  struct timespec long_time = {10, 0}, short_time = {0, 1000000};
  sigset_t none;
  sigemptyset(&none);
  say("pselect", pselect(101, &set, NULL, NULL, &long_time, &none));
  comes(100, 3);
  say_bytes("read by the copy", read(100, bytes, unknown(8)));
  FD_ZERO(&set);
  FD_SET(100, &set);
  say("pselect, nothing there", pselect(101, &set, NULL, NULL, &short_time, &none));
  struct pollfd one = {.fd = 100, .events = POLLIN | POLLOUT};
  say("ppoll", ppoll(&one, unknown(1), &long_time, &none));
  say("its events", one.revents);
  say("close_range", close_range(100, 100, 0));
  say("write, closed", write(100, "x", 1));
}

static void ends(void) {
  const int unused = socket(AF_INET, SOCK_STREAM, 0);
  say("shutdown, not connected", shutdown(unused, SHUT_RDWR));
  close(unused);
  int fd = connected();
  say("shutdown SHUT_RD", shutdown(fd, SHUT_RD));
  say("recv", recv(fd, bytes, unknown(4), 0));
  say("send", send(fd, "x", 1, MSG_NOSIGNAL));
  close(fd);
  fd = connected();
  say("send", send(fd, "last", 4, MSG_NOSIGNAL));
  say("shutdown SHUT_WR", shutdown(fd, SHUT_WR));
  say("send, shut", send(fd, "x", 1, MSG_NOSIGNAL));
  say_bytes("recv MSG_WAITALL, to the end", recv(fd, bytes, unknown(20), MSG_WAITALL));
  say("recv, at the end", recv(fd, bytes, unknown(4), 0));
  close(fd);
  fd = connected();
  say("shutdown SHUT_RDWR", shutdown(fd, SHUT_RDWR));
  say("send, shut", send(fd, "x", 1, MSG_NOSIGNAL));
  close(fd);
}

static void connects_later(void) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  const int begun = connect(fd, (struct sockaddr *)&echo, sizeof echo);
  printf("connect, without waiting: %s\n", begun == 0 || errno == EINPROGRESS ? "begun" : name_of(errno));
  printf("poll: %s\n", waits(fd, POLLOUT) == POLLOUT ? "writable" : "not writable");
  int value = -1;
  socklen_t length = sizeof value;
  say("getsockopt SO_ERROR", getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &length));
  printf("its value: %s\n", name_of(value));
  connect(fd, (struct sockaddr *)&echo, sizeof echo); /* the first tells that it is there, or that it was */
  say("connect once more", connect(fd, (struct sockaddr *)&echo, sizeof echo));
  close(fd);
  const int refused = socket(AF_INET, SOCK_STREAM, 0);
  say("connect, nobody there", connect(refused, (struct sockaddr *)&nobody, sizeof nobody));
  close(refused);
}

static void listens(uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
  int value = 0;
  socklen_t length = sizeof value;
  say("setsockopt SO_REUSEADDR", setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
  say("setsockopt SO_REUSEPORT", setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on));
  say("getsockopt SO_REUSEPORT", getsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &value, &length));
  say("its value", value);
  say("bind", bind(fd, (struct sockaddr *)&at, sizeof at));
  say("listen", listen(fd, 8));
  const int first = epoll_create1(0), second = epoll_create1(0);
  struct epoll_event wanted = {.events = EPOLLIN | EPOLLEXCLUSIVE, .data.fd = fd}, got = {0};
  say("EPOLL_CTL_ADD EPOLLEXCLUSIVE", epoll_ctl(first, EPOLL_CTL_ADD, fd, &wanted));
  say("the same in another set", epoll_ctl(second, EPOLL_CTL_ADD, fd, &wanted));
  say("EPOLL_CTL_MOD EPOLLEXCLUSIVE", epoll_ctl(first, EPOLL_CTL_MOD, fd, &wanted));
  wanted.events = EPOLLIN;
  say("EPOLL_CTL_MOD of an exclusive one", epoll_ctl(first, EPOLL_CTL_MOD, fd, &wanted));
  const int third = epoll_create1(0);
  wanted.events = EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT;
  say("EPOLL_CTL_ADD EPOLLEXCLUSIVE and EPOLLONESHOT", epoll_ctl(third, EPOLL_CTL_ADD, fd, &wanted));
  printf("listening\n");
  fflush(stdout);
  say("epoll_wait", epoll_wait(first, &got, 1, 10000));
  say("its events", got.events);
  const int flow = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  say("accept4", flow >= 0);
  say("O_NONBLOCK", (fcntl(flow, F_GETFL) & O_NONBLOCK) != 0);
  say("FD_CLOEXEC", fcntl(flow, F_GETFD));
  comes(flow, 5);
  say_bytes("read", read(flow, bytes, unknown(5)));
}

int main(int argc, char **argv) {
  if (argc != 5) return 2;
  echo = nobody = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2])), .sin_addr.s_addr = inet_addr(argv[1])};
  nobody.sin_port = htons((uint16_t)atoi(argv[3]));
  receive_and_send();
  options_and_flags();
  ends();
  connects_later();
  listens((uint16_t)atoi(argv[4]));
  return 0;
}
