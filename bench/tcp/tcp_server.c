/* The unmodified program of the TCP benchmark: one thread with epoll, a thread for each connection of the last port,
 * plain socket calls, and no code of Offpath. Started directly it uses the kernel's TCP, with `offpath sockets` the
 * agent's. A connection's port selects its role:
 *
 *   PORT      echo      returns what it receives
 *   PORT + 1  stream    receives IN and OUT, 64-bit numbers, then IN bytes; then sends OUT bytes; and again
 *   PORT + 2  timed     an echo whose first 8 bytes are the duration of the read that received it, in nanoseconds
 *   PORT + 3  posts     receives N, a 64-bit number; sends N messages of 64 bytes, each with the duration of the
 *                       previous send
 *   PORT + 4  once      returns the first message, and closes the connection
 *   PORT + 5  stamped   an echo whose first 16 bytes are the times of its read and of the start of its send
 *                       (CLOCK_MONOTONIC, ns)
 *   PORT + 6  threaded  a stream with a thread of its own, whose calls block
 *
 * `bench_tcp_server PORT [CONGESTION]` prints a line when it listens; CONGESTION is the kernel's algorithm for its
 * sends. With `spin` in its place the server looks for events without sleeping, until there was none for a millisecond.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
  roles = 7,
  backlog = 128,
  events_max = 64,
  chunk_bytes = 128 << 10,
  message_bytes = 64,
  descriptors_max = 1 << 16,
  spin_ns = 1000000
};
enum role { echo, stream, timed, posts, once, stamped, threaded };

struct connection {
  enum role role;
  int listens, waits_for_room;
  uint64_t head[2]; /* of a stream: IN and OUT */
  size_t head_bytes;
  uint64_t in, out; /* bytes left */
};

static struct connection connections[descriptors_max];
static char chunk[chunk_bytes];

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void fail(const char* what) {
  perror(what);
  exit(1);
}

static void watch(int epoll, int operation, int fd, uint32_t events) {
  struct epoll_event event = {.events = events, .data.fd = fd};
  if (epoll_ctl(epoll, operation, fd, &event) != 0) fail("epoll_ctl");
}

static int listen_at(uint16_t port, const char* congestion) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
  if (fd < 0 || fd >= descriptors_max) fail("socket");
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (congestion && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, (socklen_t)strlen(congestion)) != 0)
    fail("TCP_CONGESTION");
  if (bind(fd, (const struct sockaddr*)&at, sizeof at) != 0) fail("bind");
  if (listen(fd, backlog) != 0) fail("listen");
  return fd;
}

/* The thread of a `threaded` connection. */
static void* serve_alone(void* argument) {
  const int fd = (int)(intptr_t)argument;
  char* const own = malloc(chunk_bytes);
  uint64_t head[2];
  if (!own) fail("malloc");
  while (recv(fd, head, sizeof head, MSG_WAITALL) == (ssize_t)sizeof head) {
    ssize_t moved = 1;
    for (uint64_t in = head[0]; in > 0 && moved > 0; in -= (uint64_t)moved)
      moved = recv(fd, own, in < chunk_bytes ? (size_t)in : chunk_bytes, 0);
    for (uint64_t out = head[1]; out > 0 && moved > 0; out -= (uint64_t)moved)
      moved = send(fd, own, out < chunk_bytes ? (size_t)out : chunk_bytes, MSG_NOSIGNAL);
    if (moved <= 0) break;
  }
  free(own);
  close(fd);
  return NULL;
}

static void begin_thread(int fd) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, serve_alone, (void*)(intptr_t)fd) != 0) fail("pthread_create");
  pthread_detach(thread);
}

static void let_in(int epoll, int listener) {
  const int on = 1, alone = connections[listener].role == threaded;
  int fd;
  while ((fd = accept4(listener, NULL, NULL, alone ? 0 : SOCK_NONBLOCK)) >= 0) {
    if (fd >= descriptors_max) fail("accept4");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (alone) {
      begin_thread(fd);
      continue;
    }
    connections[fd] = (struct connection){.role = connections[listener].role};
    watch(epoll, EPOLL_CTL_ADD, fd, EPOLLIN);
  }
}

/* Sends all bytes, however long that takes: for messages smaller than a socket's buffer. 0: the connection is over. */
static int send_whole(int fd, const char* bytes, size_t length) {
  while (length > 0) {
    const ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);
    if (sent > 0) {
      bytes += sent;
      length -= (size_t)sent;
    } else if (errno == EAGAIN) {
      struct pollfd room = {.fd = fd, .events = POLLOUT};
      poll(&room, 1, -1);
    } else {
      return 0;
    }
  }
  return 1;
}

static int answer(int fd, int is_timed) {
  const uint64_t began = is_timed ? now_ns() : 0;
  const ssize_t got = recv(fd, chunk, sizeof chunk, 0);
  if (got < 0) return errno == EAGAIN;
  if (got == 0) return 0;
  if (is_timed && (size_t)got >= sizeof began) {
    const uint64_t spent = now_ns() - began;
    memcpy(chunk, &spent, sizeof spent);
  }
  return send_whole(fd, chunk, (size_t)got);
}

static int answer_stamped(int fd) {
  const ssize_t got = recv(fd, chunk, sizeof chunk, 0);
  if (got < 0) return errno == EAGAIN;
  if (got == 0) return 0;
  uint64_t stamps[2] = {now_ns(), 0};
  if ((size_t)got < sizeof stamps) return 0;
  stamps[1] = now_ns();
  memcpy(chunk, stamps, sizeof stamps);
  return send_whole(fd, chunk, (size_t)got);
}

static int post(int fd) {
  uint64_t count = 0, spent = 0;
  const ssize_t got = recv(fd, &count, sizeof count, 0);
  if (got < 0) return errno == EAGAIN;
  if (got != (ssize_t)sizeof count) return 0;
  char message[message_bytes] = {0};
  for (uint64_t i = 0; i < count; ++i) {
    memcpy(message, &spent, sizeof spent);
    const uint64_t began = now_ns();
    if (!send_whole(fd, message, sizeof message)) return 0;
    spent = now_ns() - began;
  }
  return 1;
}

/* Sends what is left; waits for room in epoll if there is none. */
static int send_stream(int epoll, int fd, struct connection* at) {
  while (at->out > 0) {
    const size_t length = at->out < sizeof chunk ? (size_t)at->out : sizeof chunk;
    const ssize_t sent = send(fd, chunk, length, MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN) {
      if (!at->waits_for_room) watch(epoll, EPOLL_CTL_MOD, fd, EPOLLOUT);
      at->waits_for_room = 1;
      return 1;
    }
    if (sent <= 0) return 0;
    at->out -= (uint64_t)sent;
  }
  if (at->waits_for_room) watch(epoll, EPOLL_CTL_MOD, fd, EPOLLIN);
  at->waits_for_room = 0;
  return 1;
}

static int go_on(int epoll, int fd, struct connection* at) {
  if (at->in == 0 && at->out == 0) {
    const ssize_t got = recv(fd, (char*)at->head + at->head_bytes, sizeof at->head - at->head_bytes, 0);
    if (got < 0) return errno == EAGAIN;
    if (got == 0) return 0;
    at->head_bytes += (size_t)got;
    if (at->head_bytes < sizeof at->head) return 1;
    at->in = at->head[0];
    at->out = at->head[1];
    at->head_bytes = 0;
  }
  if (at->in > 0) {
    const ssize_t got = recv(fd, chunk, at->in < sizeof chunk ? (size_t)at->in : sizeof chunk, 0);
    if (got < 0) return errno == EAGAIN;
    if (got == 0) return 0;
    at->in -= (uint64_t)got;
  }
  return at->in > 0 || send_stream(epoll, fd, at);
}

static int serve(int epoll, int fd) {
  switch (connections[fd].role) {
    case echo:
      return answer(fd, 0);
    case timed:
      return answer(fd, 1);
    case posts:
      return post(fd);
    case once:
      return answer(fd, 0) && 0;
    case stamped:
      return answer_stamped(fd);
    case threaded:
      return 0;
    case stream:
      return go_on(epoll, fd, &connections[fd]);
  }
  return 0;
}

int main(int argc, char** argv) {
  const int port = argc >= 2 ? atoi(argv[1]) : 0, spins = argc == 3 && strcmp(argv[2], "spin") == 0;
  if (argc > 3 || port <= 0 || port + roles > 65536) {
    fprintf(stderr, "usage: bench_tcp_server PORT [CONGESTION|spin]\n");
    return 2;
  }
  const int epoll = epoll_create1(0);
  if (epoll < 0) fail("epoll_create1");
  for (int role = 0; role < roles; ++role) {
    const int fd = listen_at((uint16_t)(port + role), argc == 3 && !spins ? argv[2] : NULL);
    connections[fd] = (struct connection){.role = (enum role)role, .listens = 1};
    watch(epoll, EPOLL_CTL_ADD, fd, EPOLLIN);
  }
  puts("listening");
  fflush(stdout);
  for (uint64_t spins_until = 0;;) {
    struct epoll_event events[events_max];
    const int sleeps = !spins || now_ns() >= spins_until;
    const int ready = epoll_wait(epoll, events, events_max, sleeps ? -1 : 0);
    if (ready < 0 && errno != EINTR) fail("epoll_wait");
    if (spins && ready > 0) spins_until = now_ns() + spin_ns;
    for (int i = 0; i < ready; ++i) {
      const int fd = events[i].data.fd;
      if (connections[fd].listens)
        let_in(epoll, fd);
      else if (!serve(epoll, fd))
        close(fd);
    }
  }
}
