/* Preloaded into a server of the kernel's sockets: epoll_wait looks for events without sleeping, until there was none
 * for a millisecond, as `bench_tcp_server PORT spin` does. A wait that is limited may take that millisecond longer.
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { spin_ns = 1000000 };

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

__attribute__((visibility("default"))) int epoll_wait(int epoll, struct epoll_event* events, int most, int timeout) {
  static __thread uint64_t spins_until;
  for (;;) {
    const int sleeps = now_ns() >= spins_until;
    const int ready = (int)syscall(SYS_epoll_pwait, epoll, events, most, sleeps ? timeout : 0, NULL, (size_t)0);
    if (ready > 0) spins_until = now_ns() + spin_ns;
    if (ready != 0 || sleeps || timeout == 0) return ready;
  }
}
