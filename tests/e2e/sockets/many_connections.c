/* Very many connections of one program, with the calls that any program makes. It knows nothing of Offpath.

     many_connections server ADDRESS FIRST_PORT PORTS MANY
     many_connections client ADDRESS FIRST_PORT PORTS FEW MANY

   The server sends back what comes. It prints "listening"; then, when it has had MANY connections, what accept and
   epoll_ctl took among few and among MANY, and when all have ended, what close took. The client opens connections over
   the ports in turn, says something on each, and prints what a round trip took among FEW and among MANY; then it closes
   them when a line comes, and prints what close took. Times are medians, in nanoseconds. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SAMPLES = 500, BATCH = 128, BACKLOG = 512, EVENTS = 256, WORDS = 100 };

static void fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(1);
}

static long now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000L + time.tv_nsec;
}

static int compare(const void* a, const void* b) {
  const long one = *(const long*)a, other = *(const long*)b;
  return (one > other) - (one < other);
}

static long median(const long* from, int count) {
  long* sorted = malloc((size_t)count * sizeof *sorted);
  memcpy(sorted, from, (size_t)count * sizeof *sorted);
  qsort(sorted, (size_t)count, sizeof *sorted, compare);
  const long middle = sorted[count / 2];
  free(sorted);
  return middle;
}

/* The port is at the same place in names of both families. */
static struct sockaddr_in6 name_of(const char* address, int port) {
  struct sockaddr_in6 name;
  memset(&name, 0, sizeof name);
  name.sin6_family = strchr(address, ':') ? AF_INET6 : AF_INET;
  name.sin6_port = htons((unsigned short)port);
  void* to = name.sin6_family == AF_INET6 ? (void*)&name.sin6_addr : (void*)&((struct sockaddr_in*)&name)->sin_addr;
  if (inet_pton(name.sin6_family, address, to) != 1) fail(address);
  return name;
}

static socklen_t size_of(const struct sockaddr_in6* name) {
  return name->sin6_family == AF_INET6 ? sizeof *name : sizeof(struct sockaddr_in);
}

/* The library has as many descriptors again. */
static void allow_descriptors(int many) {
  struct rlimit limit;
  const rlim_t wanted = (rlim_t)many * 2 + 200;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) fail("getrlimit");
  if (limit.rlim_max < wanted) limit.rlim_max = wanted; /* for root alone */
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) fail("setrlimit");
}

static void serve(const char* address, int first_port, int ports, int many) {
  long* accepts = malloc((size_t)many * sizeof *accepts);
  long* adds = malloc((size_t)many * sizeof *adds);
  long* closes = malloc((size_t)many * sizeof *closes);
  int lowest = 0, accepted = 0, closed = 0, highest = 0;
  const int set = epoll_create1(EPOLL_CLOEXEC);
  for (int i = 0; i < ports; ++i) {
    const struct sockaddr_in6 name = name_of(address, first_port + i);
    const int fd = socket(name.sin6_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (bind(fd, (const struct sockaddr*)&name, size_of(&name)) != 0 || listen(fd, BACKLOG) != 0) fail("listen");
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) != 0) fail("epoll_ctl");
    lowest = fd + 1; /* listeners have the numbers below */
  }
  printf("listening\n");
  fflush(stdout);
  while (closed < many) {
    struct epoll_event events[EVENTS];
    const int ready = epoll_wait(set, events, EVENTS, -1);
    for (int i = 0; i < ready; ++i) {
      const int fd = events[i].data.fd;
      if (fd < lowest) {
        for (;;) {
          const long began = now();
          const int made = accept4(fd, NULL, NULL, SOCK_NONBLOCK);
          if (made < 0) break;
          const long between = now();
          struct epoll_event event = {.events = EPOLLIN, .data.fd = made};
          if (accepted == many || epoll_ctl(set, EPOLL_CTL_ADD, made, &event) != 0) fail("epoll_ctl");
          accepts[accepted] = between - began;
          adds[accepted] = now() - between;
          if (made > highest) highest = made;
          if (++accepted == many) {
            printf("{\"accept\": [%ld, %ld], \"add\": [%ld, %ld], \"highest\": %d}\n",
                   median(accepts + SAMPLES, SAMPLES), median(accepts + many - SAMPLES, SAMPLES),
                   median(adds + SAMPLES, SAMPLES), median(adds + many - SAMPLES, SAMPLES), highest);
            fflush(stdout);
          }
        }
        if (errno != EAGAIN) fail("accept");
        continue;
      }
      char bytes[4096];
      const ssize_t got = recv(fd, bytes, sizeof bytes, 0);
      if (got < 0 && errno == EAGAIN) continue;
      if (got > 0) {
        if (send(fd, bytes, (size_t)got, MSG_NOSIGNAL) != got) fail("send");
        continue;
      }
      const long began = now();
      close(fd);
      closes[closed++] = now() - began;
    }
  }
  printf("{\"close\": [%ld, %ld]}\n", median(closes + many - SAMPLES, SAMPLES), median(closes, SAMPLES));
}

static void say(int fd, char what) {
  char bytes[WORDS];
  memset(bytes, what, sizeof bytes);
  if (send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) != sizeof bytes) fail("send");
}

static void hear(int fd, char what) {
  char bytes[WORDS];
  for (size_t had = 0; had < sizeof bytes;) {
    const ssize_t got = recv(fd, bytes + had, sizeof bytes - had, 0);
    if (got <= 0) fail("recv");
    had += (size_t)got;
  }
  for (int i = 0; i < WORDS; ++i)
    if (bytes[i] != what) errno = EPROTO, fail("echo");
}

/* So many at a time: more than wait in any backlog, fewer than a flood. */
static void open_some(int* made, int from, int to, const char* address, int first_port, int ports) {
  for (int i = from; i < to; ++i) {
    const struct sockaddr_in6 name = name_of(address, first_port + i % ports);
    made[i] = socket(name.sin6_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (made[i] < 0) fail("socket");
    if (connect(made[i], (const struct sockaddr*)&name, size_of(&name)) != 0 && errno != EINPROGRESS) fail("connect");
  }
  for (int i = from; i < to; ++i) {
    struct pollfd wait = {made[i], POLLOUT, 0};
    int error = 0;
    socklen_t length = sizeof error;
    if (poll(&wait, 1, -1) != 1) fail("poll");
    if (getsockopt(made[i], SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0) errno = error, fail("connect");
    say(made[i], (char)i);
  }
  for (int i = from; i < to; ++i) {
    struct pollfd wait = {made[i], POLLIN, 0};
    if (poll(&wait, 1, -1) != 1) fail("poll");
    hear(made[i], (char)i);
  }
}

static long round_trip(const int* made, int count) {
  long times[SAMPLES];
  for (int i = 0; i < SAMPLES; ++i) {
    const int at = (int)((long)i * 7919 % count);
    struct pollfd wait = {made[at], POLLIN, 0};
    const long began = now();
    say(made[at], (char)i);
    if (poll(&wait, 1, -1) != 1) fail("poll");
    hear(made[at], (char)i);
    times[i] = now() - began;
  }
  return median(times, SAMPLES);
}

static void ask(const char* address, int first_port, int ports, int few, int many) {
  int* made = calloc((size_t)many, sizeof *made);
  long* closes = malloc((size_t)many * sizeof *closes);
  long among_few = 0;
  for (int count = 0; count < many;) {
    const int limit = count < few ? few : many, to = count + BATCH < limit ? count + BATCH : limit;
    open_some(made, count, to, address, first_port, ports);
    count = to;
    if (count == few) among_few = round_trip(made, count);
  }
  printf("{\"echo\": [%ld, %ld]}\n", among_few, round_trip(made, many));
  fflush(stdout);
  getchar();
  for (int i = 0; i < many; ++i) {
    const long began = now();
    close(made[i]);
    closes[i] = now() - began;
  }
  printf("{\"close\": [%ld, %ld]}\n", median(closes + many - SAMPLES, SAMPLES), median(closes, SAMPLES));
}

int main(int count, char** words) {
  if (count < 6) return 2;
  const int first_port = atoi(words[3]), ports = atoi(words[4]), last = atoi(words[count - 1]);
  if (last < 2 * SAMPLES) return 2;
  allow_descriptors(last);
  if (strcmp(words[1], "server") == 0)
    serve(words[2], first_port, ports, last);
  else
    ask(words[2], first_port, ports, atoi(words[5]), last);
  return 0;
}
