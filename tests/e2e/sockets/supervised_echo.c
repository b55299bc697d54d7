// A program without shared libraries, for test_supervise.py. As a server it sends back what its peers send:
//   supervised_echo serve PORT threads|forks|epoll|uring
// As a client it sends its input to a peer, and writes what the peer sends back:
//   supervised_echo ask ADDRESS PORT blocks|polls
// Or it makes many connections and listeners until as many signals have interrupted it, and writes how many:
//   supervised_echo interrupted ADDRESS PORT COUNT
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

enum { piece = 100000, connections_max = 1024 };

static void check(long done, const char* what) {
  if (done >= 0) return;
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(1);
}

static void write_all(int fd, const char* bytes, size_t count) {
  while (count > 0) {
    const ssize_t written = write(fd, bytes, count);
    check(written, "write");
    bytes += written;
    count -= (size_t)written;
  }
}

static void* echo(void* connection) {
  const int fd = (int)(intptr_t)connection;
  char* const bytes = malloc(piece);
  for (ssize_t got; (got = read(fd, bytes, piece)) > 0;) write_all(fd, bytes, (size_t)got);
  free(bytes);
  close(fd);
  return NULL;
}

// ---- epoll, edge triggered, on non-blocking sockets

static void serve_by_epoll(int listener) {
  check(fcntl(listener, F_SETFL, O_NONBLOCK), "fcntl");
  const int set = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data = {.fd = listener}};
  check(epoll_ctl(set, EPOLL_CTL_ADD, listener, &event), "epoll_ctl");
  for (;;) {
    struct epoll_event events[64];
    const int count = epoll_wait(set, events, 64, -1);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.fd != listener) {  // it has something to read: from here on a thread blocks for it
        const int fd = events[i].data.fd;
        epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL);
        fcntl(fd, F_SETFL, 0);
        pthread_t thread;
        check(-pthread_create(&thread, NULL, echo, (void*)(intptr_t)fd), "pthread_create");
        pthread_detach(thread);
        continue;
      }
      for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
        struct epoll_event readable = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data = {.fd = fd}};
        check(epoll_ctl(set, EPOLL_CTL_ADD, fd, &readable), "epoll_ctl");
      }
      if (errno != EAGAIN) check(-1, "accept4");
    }
  }
}

// ---- io_uring: accepted by a thread, read and written by a ring

struct ring {
  int fd;
  uint32_t *head, *tail, *mask, *array, *done_head, *done_tail, *done_mask;
  struct io_uring_sqe* entries;
  struct io_uring_cqe* done;
};

static struct ring make_ring(void) {
  struct io_uring_params given = {0};
  struct ring ring = {.fd = (int)syscall(SYS_io_uring_setup, connections_max, &given)};
  check(ring.fd, "io_uring_setup");
  const size_t bytes = given.sq_off.array + given.sq_entries * sizeof(uint32_t);
  const size_t done_bytes = given.cq_off.cqes + given.cq_entries * sizeof(struct io_uring_cqe);
  const int both = PROT_READ | PROT_WRITE;
  char* const asked = mmap(NULL, bytes, both, MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_SQ_RING);
  char* const done = mmap(NULL, done_bytes, both, MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_CQ_RING);
  ring.entries = mmap(NULL, given.sq_entries * sizeof(struct io_uring_sqe), both, MAP_SHARED | MAP_POPULATE, ring.fd,
                      IORING_OFF_SQES);
  ring.tail = (uint32_t*)(asked + given.sq_off.tail);
  ring.mask = (uint32_t*)(asked + given.sq_off.ring_mask);
  ring.array = (uint32_t*)(asked + given.sq_off.array);
  ring.done_head = (uint32_t*)(done + given.cq_off.head);
  ring.done_tail = (uint32_t*)(done + given.cq_off.tail);
  ring.done_mask = (uint32_t*)(done + given.cq_off.ring_mask);
  ring.done = (struct io_uring_cqe*)(done + given.cq_off.cqes);
  return ring;
}

struct connection {
  int fd, sends;
  uint32_t at, count;
  char bytes[piece];
};

static void ask(struct ring* ring, struct connection* of) {
  const uint32_t tail = *ring->tail, index = tail & *ring->mask;
  struct io_uring_sqe* const entry = &ring->entries[index];
  memset(entry, 0, sizeof *entry);
  entry->opcode = of->sends ? IORING_OP_SEND : IORING_OP_RECV;
  entry->fd = of->fd;
  entry->addr = (uintptr_t)(of->bytes + of->at);
  entry->len = of->sends ? of->count - of->at : piece;
  entry->user_data = (uintptr_t)of;
  ring->array[index] = index;
  __atomic_store_n(ring->tail, tail + 1, __ATOMIC_RELEASE);
}

static void go_on(struct ring* ring, struct connection* of, int result) {
  if (result <= 0) {
    close(of->fd);
    free(of);
    return;
  }
  if (of->sends)
    of->at += (uint32_t)result;
  else
    of->count = (uint32_t)result;
  of->sends = !of->sends || of->at < of->count;
  if (!of->sends || of->at == of->count) of->at = 0;
  ask(ring, of);
}

static void serve_by_ring(int listener) {
  struct ring ring = make_ring();
  int pipes[2];
  check(pipe(pipes), "pipe");
  if (fcntl(listener, F_SETFL, O_NONBLOCK) != 0) check(-1, "fcntl");
  struct io_uring_sqe* entry;
  uint32_t asked = 0;
  const uint64_t listens = 1;
  for (int polls = 0;;) {
    if (!polls) {  // a listener is polled by the ring as well
      const uint32_t tail = *ring.tail, index = tail & *ring.mask;
      entry = &ring.entries[index];
      memset(entry, 0, sizeof *entry);
      entry->opcode = IORING_OP_POLL_ADD;
      entry->fd = listener;
      entry->poll32_events = POLLIN;
      entry->user_data = listens;
      ring.array[index] = index;
      __atomic_store_n(ring.tail, tail + 1, __ATOMIC_RELEASE);
      polls = 1;
    }
    const uint32_t tail = *ring.tail;
    if (syscall(SYS_io_uring_enter, ring.fd, tail - asked, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0 && errno != EINTR)
      check(-1, "io_uring_enter");
    asked = tail;
    while (*ring.done_head != __atomic_load_n(ring.done_tail, __ATOMIC_ACQUIRE)) {
      const struct io_uring_cqe done = ring.done[*ring.done_head & *ring.done_mask];
      __atomic_store_n(ring.done_head, *ring.done_head + 1, __ATOMIC_RELEASE);
      if (done.user_data != listens) {
        go_on(&ring, (struct connection*)(uintptr_t)done.user_data, done.res);
        continue;
      }
      polls = 0;
      for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0;) {
        struct connection* const made = calloc(1, sizeof *made);
        made->fd = fd;
        ask(&ring, made);
      }
    }
  }
}

// ----

// An address of either family.
struct name {
  union {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
  };
  socklen_t length;
};

static struct name name_of(const char* address, int port) {
  struct name made = {.length = sizeof made.four};
  made.any.sa_family = strchr(address, ':') == NULL ? AF_INET : AF_INET6;
  if (made.any.sa_family == AF_INET6) made.length = sizeof made.six;
  made.four.sin_port = htons((uint16_t)port);  // both have it there
  void* const to = made.any.sa_family == AF_INET ? (void*)&made.four.sin_addr : (void*)&made.six.sin6_addr;
  check(inet_pton(made.any.sa_family, address, to) - 1, "inet_pton");
  return made;
}

static int serve(int port, const char* how, const char* address) {
  const struct name at = name_of(address, port);
  const int listener = socket(at.any.sa_family, SOCK_STREAM, 0), on = 1;
  check(listener, "socket");
  check(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), "setsockopt");
  check(bind(listener, &at.any, at.length), "bind");
  check(listen(listener, 64), "listen");
  struct name bound = {.length = sizeof bound.six};
  check(getsockname(listener, &bound.any, &bound.length), "getsockname");
  printf("ready %d\n", ntohs(bound.four.sin_port));
  fflush(stdout);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGCHLD, SIG_IGN);
  if (strcmp(how, "epoll") == 0) serve_by_epoll(listener);
  if (strcmp(how, "uring") == 0) serve_by_ring(listener);
  for (;;) {
    struct name peer = {.length = sizeof peer.six};
    const int fd = accept(listener, &peer.any, &peer.length);
    check(fd, "accept");
    if (peer.any.sa_family != at.any.sa_family || peer.four.sin_port == 0 || peer.length != at.length) exit(3);
    if (strcmp(how, "forks") == 0) {
      if (fork() == 0) {
        close(listener);
        echo((void*)(intptr_t)fd);
        _exit(0);
      }
      close(fd);
      continue;
    }
    pthread_t thread;
    check(-pthread_create(&thread, NULL, echo, (void*)(intptr_t)fd), "pthread_create");
    pthread_detach(thread);
  }
}

static void* send_input(void* connection) {
  const int fd = (int)(intptr_t)connection;
  static char bytes[piece];
  for (ssize_t got; (got = read(STDIN_FILENO, bytes, piece)) > 0;) write_all(fd, bytes, (size_t)got);
  check(shutdown(fd, SHUT_WR), "shutdown");
  return NULL;
}

static int ask_peer(const char* address, int port, int polls) {
  const struct name to = name_of(address, port);
  const int fd = socket(to.any.sa_family, SOCK_STREAM | (polls ? SOCK_NONBLOCK : 0), 0), on = 1;
  check(fd, "socket");
  check(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "setsockopt");
  if (connect(fd, &to.any, to.length) != 0) {
    if (!polls || errno != EINPROGRESS) check(-1, "connect");
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    check(poll(&ready, 1, 20000), "poll");
    int code = 0;
    socklen_t length = sizeof code;
    check(getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &length), "getsockopt");
    errno = code;
    check(-code, "connect");
    fcntl(fd, F_SETFL, 0);
  }
  struct name peer = {.length = sizeof peer.six};
  check(getpeername(fd, &peer.any, &peer.length), "getpeername");
  if (peer.length != to.length || memcmp(&peer.any, &to.any, to.length) != 0) exit(3);
  pthread_t thread;
  check(-pthread_create(&thread, NULL, send_input, (void*)(intptr_t)fd), "pthread_create");
  static char bytes[piece];
  ssize_t got;
  while ((got = read(fd, bytes, piece)) > 0) write_all(STDOUT_FILENO, bytes, (size_t)got);
  check(got, "read");
  pthread_join(thread, NULL);
  return 0;
}

static volatile sig_atomic_t interruptions;
static void interrupt(int number) {
  (void)number;
  interruptions = interruptions + 1;
}

// A call that a signal has ended for good leaves its result to no other call.
static void end_calls_early(int count) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
  check(fd, "socket");
  const struct sigaction action = {.sa_handler = interrupt};
  check(sigaction(SIGALRM, &action, NULL), "sigaction");
  while (count > 0) {
    if (setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on) == 0) continue;
    if (errno != EINTR) check(-1, "setsockopt");
    --count;
    if (setsockopt(fd, SOL_SOCKET, SO_MARK, &on, sizeof on) == 0) exit(4);
  }
}

static int be_interrupted(const char* address, int port, int count) {
  const struct sigaction action = {.sa_handler = interrupt, .sa_flags = SA_RESTART};
  check(sigaction(SIGALRM, &action, NULL), "sigaction");
  const struct itimerval often = {.it_interval = {.tv_usec = 200}, .it_value = {.tv_usec = 200}};
  check(setitimer(ITIMER_REAL, &often, NULL), "setitimer");
  const struct name to = name_of(address, port);
  const char* const everywhere = to.any.sa_family == AF_INET ? "0.0.0.0" : "::";
  const struct name any = name_of(everywhere, 0), own = name_of(everywhere, 7790);
  for (int i = 0; i < count || interruptions < count; ++i) {
    const int fd = socket(to.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    check(fd, "socket");
    check(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), "setsockopt");
    check(bind(fd, &any.any, any.length), "bind");
    check(connect(fd, &to.any, to.length), "connect");
    struct name peer = {.length = sizeof peer.six};
    check(getpeername(fd, &peer.any, &peer.length), "getpeername");
    char byte = 'x';
    write_all(fd, &byte, 1);
    check(read(fd, &byte, 1) - 1, "read");
    check(close(fd), "close");
    const int listener = socket(to.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check(listener, "socket");
    check(bind(listener, &own.any, own.length), "bind of a port");
    check(listen(listener, 4), "listen");
    check(close(listener), "close");
  }
  end_calls_early(count);
  printf("%d\n", count);
  return 0;
}

int main(int count, char** words) {
  if (count == 5 && strcmp(words[1], "serve") == 0) return serve(atoi(words[2]), words[3], words[4]);
  if (count == 5 && strcmp(words[1], "ask") == 0)
    return ask_peer(words[2], atoi(words[3]), strcmp(words[4], "polls") == 0);
  if (count == 5 && strcmp(words[1], "interrupted") == 0)
    return be_interrupted(words[2], atoi(words[3]), atoi(words[4]));
  return 2;
}
