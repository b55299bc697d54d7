/* Socket calls that programs use, one after another, each with what came of it. The same program is run over offloaded
 * sockets and over the kernel's, and says the same. docs/guides/sockets.md lists the calls.
 *
 *   socket_calls ADDRESS PORT REFUSED OWN    an echo server is at ADDRESS:PORT, nobody at REFUSED; somebody connects to
 *                                            port OWN once "listening" was said, and sends "hello"
 *
 * To be compiled with -O2 -D_FORTIFY_SOURCE=2: sizes that the compiler does not know are then looked at by the C
 * library's checked forms. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* An address of either family: argv[1] says which. Both have their port at the same place. */
typedef struct {
  union {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
  };
  socklen_t length;
} Name;

static Name echo, nobody;
static char bytes[64];

static const char* name_of(int error) { return error == 0 ? "0" : strerrorname_np(error); }

/* A number, or the error's name. */
static void say(const char* what, long result) {
  if (result < 0)
    printf("%s: %s\n", what, name_of(errno));
  else
    printf("%s: %ld\n", what, result);
}

static void say_bytes(const char* what, long got) {
  if (got < 0)
    printf("%s: %s\n", what, name_of(errno));
  else
    printf("%s: %ld %.*s\n", what, got, (int)got, bytes);
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
  const int fd = socket(echo.any.sa_family, SOCK_STREAM, 0);
  if (fd < 0 || connect(fd, &echo.any, echo.length) != 0) {
    perror("connect");
    exit(1);
  }
  return fd;
}

static void* sends_later(void* fd) {
  usleep(50000);
  send((int)(intptr_t)fd, "both", 4, MSG_NOSIGNAL);
  return NULL;
}

static void receive_and_send(void) {
  const int fd = connected();
  Name peer;
  socklen_t length = sizeof peer.six;
  say("getpeername", getpeername(fd, &peer.any, &length));
  say("is the peer", length == echo.length && memcmp(&peer.any, &echo.any, length) == 0);
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

/* Flags that change what a call does, and parts that cannot be. */
static void flags_and_parts(void) {
  const int fd = connected();
  say("recv MSG_OOB", recv(fd, bytes, unknown(4), MSG_OOB));
  say("recv MSG_ERRQUEUE", recv(fd, bytes, unknown(4), MSG_ERRQUEUE));
  say("send", send(fd, "0123456789abcdef", 16, MSG_NOSIGNAL));
  comes(fd, 16);
  say("recv MSG_TRUNC MSG_PEEK, to nowhere", recv(fd, NULL, unknown(4), MSG_TRUNC | MSG_PEEK));
  say("recv MSG_TRUNC, to nowhere", recv(fd, NULL, unknown(4), MSG_TRUNC));
  struct iovec parts[2] = {{bytes, 2}, {bytes + 2, 3}};
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
  say_bytes("recvmsg MSG_PEEK", recvmsg(fd, &message, MSG_PEEK));
  say_bytes("recvmsg MSG_TRUNC", recvmsg(fd, &message, MSG_TRUNC)); /* none of them is copied */
  say("its flags", message.msg_flags);
  say_bytes("recv MSG_TRUNC MSG_WAITALL", recv(fd, bytes, unknown(3), MSG_TRUNC | MSG_WAITALL));
  say_bytes("the rest", recv(fd, bytes, unknown(20), 0));
  static struct iovec many[1025];
  for (int count = -1; count <= 1025; count += 1026) {
    say("readv", readv(fd, many, count));
    say("writev", writev(fd, many, count));
    message = (struct msghdr){.msg_iov = many, .msg_iovlen = (size_t)count};
    say("recvmsg", recvmsg(fd, &message, 0));
    say("sendmsg", sendmsg(fd, &message, 0));
  }
  for (int i = 0; i < 1024; ++i) many[i] = (struct iovec){i < 4 ? "wxyz" + i : NULL, i < 4};
  say("writev of as many as may be", writev(fd, many, 1024));
  comes(fd, 4);
  say_bytes("the rest", recv(fd, bytes, unknown(20), 0));
  /* One half lies there, the other comes. */
  say("send", send(fd, "half", 4, MSG_NOSIGNAL));
  comes(fd, 4);
  pthread_t later;
  say("pthread_create", pthread_create(&later, NULL, sends_later, (void*)(intptr_t)fd));
  say_bytes("recv MSG_PEEK MSG_WAITALL", recv(fd, bytes, unknown(8), MSG_PEEK | MSG_WAITALL));
  pthread_join(later, NULL);
  say_bytes("recv", recv(fd, bytes, unknown(8), 0));
  const struct timeval short_time = {0, 50000};
  say("setsockopt SO_RCVTIMEO", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &short_time, sizeof short_time));
  say("send", send(fd, "two", 3, MSG_NOSIGNAL));
  comes(fd, 3);
  say_bytes("recv MSG_PEEK MSG_WAITALL, no more", recv(fd, bytes, unknown(8), MSG_PEEK | MSG_WAITALL));
  say_bytes("recv MSG_WAITALL, no more", recv(fd, bytes, unknown(8), MSG_WAITALL));
  close(fd);
}

/* What else there is to send, to wait and to name. */
static void kin(void) {
  const int made = connected();
  say("dup2", dup2(made, 101));
  say("dup2 to itself", dup2(101, 101));
  say("dup2 of nothing", dup2(1000, 101));
  close(made);
  const int fd = 101;
  Name name = {0};
  socklen_t length = sizeof name.six;
  say("getsockname", getsockname(fd, &name.any, &length));
  say("is a name", name.any.sa_family == echo.any.sa_family && name.four.sin_port != 0 && length == echo.length);
  length = 4;
  say("getpeername, little room", getpeername(fd, &name.any, &length));
  say("its length", length);
  say("sendto", sendto(fd, "abc", 3, MSG_NOSIGNAL, NULL, 0));
  fd_set set;
  FD_ZERO(&set);
  FD_SET(fd, &set);
  struct timeval long_time = {10, 0}, no_time = {0, 0};
  say("select", select(fd + 1, &set, NULL, NULL, &long_time));
  comes(fd, 3);
  say_bytes("read", read(fd, bytes, unknown(8)));
  say("select, nothing there", select(fd + 1, &set, NULL, NULL, &no_time));
  const int epoll = epoll_create1(0);
  struct epoll_event wanted = {.events = EPOLLIN | EPOLLOUT}, got = {0};
  sigset_t none;
  sigemptyset(&none);
  say("EPOLL_CTL_ADD", epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &wanted));
  say("EPOLL_CTL_ADD once more", epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &wanted));
  say("epoll_pwait", epoll_pwait(epoll, &got, 1, 10000, &none));
  say("its events", got.events);
  say("EPOLL_CTL_DEL", epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL));
  say("EPOLL_CTL_DEL once more", epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL));
  close(epoll);
  FILE* file = tmpfile();
  fputs("of a file", file);
  fflush(file);
  off_t at = 3;
  say("sendfile", sendfile(fd, fileno(file), &at, 6));
  say("its offset", at);
  say_bytes("recv MSG_WAITALL", recv(fd, bytes, unknown(6), MSG_WAITALL));
  fclose(file);
  close(fd);
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
  const int unused = socket(echo.any.sa_family, SOCK_STREAM, 0);
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
  const int fd = socket(echo.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
  const int begun = connect(fd, &echo.any, echo.length);
  printf("connect, without waiting: %s\n", begun == 0 || errno == EINPROGRESS ? "begun" : name_of(errno));
  printf("poll: %s\n", waits(fd, POLLOUT) == POLLOUT ? "writable" : "not writable");
  int value = -1;
  socklen_t length = sizeof value;
  say("getsockopt SO_ERROR", getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &length));
  printf("its value: %s\n", name_of(value));
  connect(fd, &echo.any, echo.length); /* the first tells that it is there, or that it was */
  say("connect once more", connect(fd, &echo.any, echo.length));
  close(fd);
}

static void says_error(int fd) {
  int value = -1;
  socklen_t length = sizeof value;
  say("getsockopt SO_ERROR", getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &length));
  printf("its value: %s\n", name_of(value));
}

/* Without waiting, to the end: what the call said, and that poll did. */
static void tries(const char* what, int fd, const Name* to) {
  const int begun = connect(fd, &to->any, to->length);
  printf("%s: %s\n", what, begun == 0 || errno == EINPROGRESS ? "begun" : name_of(errno));
  printf("poll: %s\n", waits(fd, POLLOUT) & POLLOUT ? "writable" : "not writable");
}

static void echoes(int fd) {
  say("send", send(fd, "again", 5, MSG_NOSIGNAL));
  say_bytes("recv", recv(fd, bytes, unknown(5), MSG_WAITALL));
}

/* A socket whose connection failed may try again. */
static void connects_again(void) {
  int fd = socket(echo.any.sa_family, SOCK_STREAM, 0);
  const int on = 1;
  say("setsockopt SO_KEEPALIVE", setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on));
  for (int i = 0; i < 2; ++i) say("connect, nobody there", connect(fd, &nobody.any, nobody.length));
  says_error(fd);
  say("recv", recv(fd, bytes, unknown(4), MSG_DONTWAIT));
  say("send", send(fd, "x", 1, MSG_NOSIGNAL));
  const int copy = dup(fd);
  say("connect, somebody there", connect(fd, &echo.any, echo.length));
  say("connect once more", connect(fd, &echo.any, echo.length));
  int value = -1;
  socklen_t length = sizeof value;
  say("getsockopt SO_KEEPALIVE", getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &length));
  say("its value", value);
  say("close", close(fd));
  echoes(copy);
  close(copy);
  fd = socket(echo.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
  tries("connect, nobody there", fd, &nobody);
  const int set = epoll_create1(0);
  struct epoll_event wanted = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP}, got = {0};
  say("EPOLL_CTL_ADD", epoll_ctl(set, EPOLL_CTL_ADD, fd, &wanted));
  say("epoll_wait", epoll_wait(set, &got, 1, 10000));
  say("its events", got.events);
  say("the error, told by connect", connect(fd, &nobody.any, nobody.length));
  say("epoll_wait", epoll_wait(set, &got, 1, 10000));
  say("its events", got.events);
  tries("connect, nobody there", fd, &nobody);
  says_error(fd);
  say("connect, the error was told", connect(fd, &echo.any, echo.length));
  tries("connect, somebody there", fd, &echo);
  says_error(fd);
  say("epoll_wait", epoll_wait(set, &got, 1, 10000));
  say("its events", got.events);
  close(fd);
  fd = socket(echo.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
  Name hole = echo;
  uint8_t* const end =
      hole.any.sa_family == AF_INET ? (uint8_t*)(&hole.four.sin_addr + 1) : (uint8_t*)(&hole.six.sin6_addr + 1);
  end[-1] = 77;
  say("connect to no machine", connect(fd, &hole.any, hole.length));
  say("EPOLL_CTL_ADD", epoll_ctl(set, EPOLL_CTL_ADD, fd, &wanted));
  say("epoll_wait", epoll_wait(set, &got, 1, 0));
  say("shutdown, connecting", shutdown(fd, SHUT_WR));
  say("epoll_wait", epoll_wait(set, &got, 1, 10000));
  say("its events", got.events);
  says_error(fd);
  tries("connect, somebody there", fd, &echo);
  says_error(fd);
  close(fd);
  close(set);
}

/* Its error. */
static void* accepts(void* fd) { return (void*)(intptr_t)(accept((int)(intptr_t)fd, NULL, NULL) < 0 ? errno : 0); }

/* A call that waits at a listener that is shut down ends with an error, and the listener may listen again. */
static void stops_listening(int fd) {
  pthread_t waiting;
  void* error = NULL;
  say("pthread_create", pthread_create(&waiting, NULL, accepts, (void*)(intptr_t)fd));
  usleep(50000);
  say("shutdown SHUT_WR", shutdown(fd, SHUT_WR));
  say("shutdown SHUT_RD", shutdown(fd, SHUT_RD));
  pthread_join(waiting, &error);
  printf("accept that waits: %s\n", name_of((int)(intptr_t)error));
  const int set = epoll_create1(0);
  struct epoll_event wanted = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP}, got = {0};
  say("EPOLL_CTL_ADD", epoll_ctl(set, EPOLL_CTL_ADD, fd, &wanted));
  say("epoll_wait", epoll_wait(set, &got, 1, 10000));
  say("its events", got.events);
  say("poll",
      (waits(fd, POLLIN | POLLOUT) & (POLLOUT | POLLHUP))); /* docs/guides/sockets.md has what else may be said */
  close(set);
  say("accept", accept(fd, NULL, NULL));
  int value = -1;
  Name name;
  socklen_t length = sizeof value;
  say("getsockopt SO_ACCEPTCONN", getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &length));
  say("its value", value);
  length = sizeof name.six;
  say("getsockname", getsockname(fd, &name.any, &length));
  say("its port", ntohs(name.four.sin_port));
  say("listen again", listen(fd, 8));
}

static void listens(uint16_t port) {
  const int fd = socket(echo.any.sa_family, SOCK_STREAM, 0), on = 1;
  Name at = {.length = echo.length};
  at.any.sa_family = echo.any.sa_family;
  at.four.sin_port = htons(port);
  int value = 0;
  socklen_t length = sizeof value;
  say("setsockopt SO_REUSEADDR", setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
  say("setsockopt SO_REUSEPORT", setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on));
  say("getsockopt SO_REUSEPORT", getsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &value, &length));
  say("its value", value);
  say("bind", bind(fd, &at.any, at.length));
  const struct timeval timeout = {20, 0};
  say("setsockopt SO_RCVTIMEO", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout));
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
  stops_listening(fd);
  printf("listening\n");
  fflush(stdout);
  say("epoll_wait", epoll_wait(first, &got, 1, 10000));
  say("its events", got.events);
  say("accept4, unknown flags", accept4(fd, NULL, NULL, 0x100));
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  const struct rlimit none_left = {3, limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none_left);
  say("accept4, no descriptor left", accept4(fd, NULL, NULL, 0));
  setrlimit(RLIMIT_NOFILE, &limit);
  const int flow = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  say("accept4", flow >= 0);
  say("O_NONBLOCK", (fcntl(flow, F_GETFL) & O_NONBLOCK) != 0);
  say("FD_CLOEXEC", fcntl(flow, F_GETFD));
  struct timeval inherited = {0};
  length = sizeof inherited;
  say("getsockopt SO_RCVTIMEO", getsockopt(flow, SOL_SOCKET, SO_RCVTIMEO, &inherited, &length));
  say("its value", inherited.tv_sec);
  comes(flow, 5);
  say_bytes("read", read(flow, bytes, unknown(5)));
  say("shutdown SHUT_RDWR, a listener", shutdown(fd, SHUT_RDWR));
  say("shutdown, no listener any more", shutdown(fd, SHUT_RDWR));
}

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  if (inet_pton(AF_INET, argv[1], &echo.four.sin_addr) == 1) {
    echo.four.sin_family = AF_INET;
    echo.length = sizeof echo.four;
  } else if (inet_pton(AF_INET6, argv[1], &echo.six.sin6_addr) == 1) {
    echo.six.sin6_family = AF_INET6;
    echo.length = sizeof echo.six;
  } else {
    return 2;
  }
  echo.four.sin_port = htons((uint16_t)atoi(argv[2]));
  nobody = echo;
  nobody.four.sin_port = htons((uint16_t)atoi(argv[3]));
  receive_and_send();
  flags_and_parts();
  kin();
  options_and_flags();
  ends();
  connects_later();
  connects_again();
  listens((uint16_t)atoi(argv[4]));
  return 0;
}
