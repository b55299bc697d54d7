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
 *   PORT + 7  costs     returns four 64-bit numbers for each message: the medians, in nanoseconds, of waits that
 *                       returned one event, of waits that returned several for each event, of an echo's receive and of
 *                       its send, since it was last asked
 *
 * `bench_tcp_server PORT [CONGESTION]` prints a line when it listens; CONGESTION is the kernel's algorithm for its
 * sends. With `spin` in its place the server looks for events without sleeping, until there was none for a millisecond.
 * With `measure` it does so, too, and takes the time of its calls, which `costs` tells of.
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
  roles = 8,
  backlog = 128,
  events_max = 64,
  chunk_bytes = 128 << 10,
  message_bytes = 64,
  descriptors_max = 1 << 16,
  spin_ns = 1000000,
  several = 8, /* events of a wait whose time is divided between them */
  durations_max = 4096,
  duration_step_ns = 4
};
enum role { echo, stream, timed, posts, once, stamped, threaded, costs };
/* What the server takes the time of; the last one is the reading of the clock itself. */
enum timed_call { waits_for_one, waits_for_several, receives, sends, readings, timed_calls };

struct connection {
  enum role role;
  int listens, waits_for_room;
  uint64_t head[2]; /* of a stream: IN and OUT */
  size_t head_bytes;
  uint64_t in, out; /* bytes left */
};

static struct connection connections[descriptors_max];
static char chunk[chunk_bytes];
static int measures;
static uint32_t durations[timed_calls][durations_max]; /* how many took so many steps */

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void note(enum timed_call call, uint64_t ns) {
  const uint64_t step = ns / duration_step_ns;
  ++durations[call][step < durations_max ? step : durations_max - 1];
}

/* Forgets them. 0: there were none. */
static uint64_t median_ns(enum timed_call call) {
  uint64_t count = 0, below = 0, step = 0;
  for (int i = 0; i < durations_max; ++i) count += durations[call][i];
  while (count > 0 && (below += durations[call][step]) * 2 < count) ++step;
  memset(durations[call], 0, sizeof durations[call]);
  return step * duration_step_ns + (count > 0 ? duration_step_ns / 2 : 0);
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

static int answer_measured(int fd) {
  const uint64_t began = now_ns();
  const uint64_t read = now_ns();
  const ssize_t got = recv(fd, chunk, sizeof chunk, 0);
  const uint64_t received = now_ns();
  if (got < 0) return errno == EAGAIN;
  if (got == 0) return 0;
  const int sent = send_whole(fd, chunk, (size_t)got);
  note(sends, now_ns() - received);
  note(receives, received - read);
  note(readings, read - began);
  return sent;
}

static int answer_costs(int fd) {
  uint64_t medians[readings];
  if (recv(fd, chunk, message_bytes, 0) <= 0) return errno == EAGAIN;
  const uint64_t reading = median_ns(readings);
  for (int call = 0; call < readings; ++call) {
    const uint64_t ns = median_ns((enum timed_call)call);
    const uint64_t clocks = call == waits_for_several ? reading / several : reading;
    medians[call] = ns > clocks ? ns - clocks : 0;
  }
  return send_whole(fd, (const char*)medians, sizeof medians);
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
      return measures ? answer_measured(fd) : answer(fd, 0);
    case timed:
      return answer(fd, 1);
    case posts:
      return post(fd);
    case once:
      return answer(fd, 0) && 0;
    case stamped:
      return answer_stamped(fd);
    case costs:
      return answer_costs(fd);
    case threaded:
      return 0;
    case stream:
      return go_on(epoll, fd, &connections[fd]);
  }
  return 0;
}

int main(int argc, char** argv) {
  const char* const how = argc == 3 ? argv[2] : "";
  measures = strcmp(how, "measure") == 0;
  const int port = argc >= 2 ? atoi(argv[1]) : 0, spins = measures || strcmp(how, "spin") == 0;
  if (argc > 3 || port <= 0 || port + roles > 65536) {
    fprintf(stderr, "usage: bench_tcp_server PORT [CONGESTION|spin|measure]\n");
    return 2;
  }
  const int epoll = epoll_create1(0);
  if (epoll < 0) fail("epoll_create1");
  for (int role = 0; role < roles; ++role) {
    const int fd = listen_at((uint16_t)(port + role), argc == 3 && !spins ? how : NULL);
    connections[fd] = (struct connection){.role = (enum role)role, .listens = 1};
    watch(epoll, EPOLL_CTL_ADD, fd, EPOLLIN);
  }
  puts("listening");
  fflush(stdout);
  for (uint64_t spins_until = 0;;) {
    struct epoll_event events[events_max];
    const uint64_t began = spins ? now_ns() : 0;
    const int sleeps = !spins || began >= spins_until;
    const int ready = epoll_wait(epoll, events, events_max, sleeps ? -1 : 0);
    if (ready < 0 && errno != EINTR) fail("epoll_wait");
    if (spins && ready > 0) {
      const uint64_t returned = now_ns();
      spins_until = returned + spin_ns;
      if (!sleeps && ready == 1) note(waits_for_one, returned - began);
      if (!sleeps && ready >= several) note(waits_for_several, (returned - began) / (uint64_t)ready);
    }
    for (int i = 0; i < ready; ++i) {
      const int fd = events[i].data.fd;
      if (connections[fd].listens)
        let_in(epoll, fd);
      else if (!serve(epoll, fd))
        close(fd);
    }
  }
}
