/* What GCC 12's C++ library and headers expect of glibc and version 2.28 does not have. tools/older_system.py adds it
 * to the part of that libc which is linked statically (libc_nonshared.a), as glibc itself does with such functions. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#pragma GCC visibility push(hidden)

enum { second_ns = 1000000000 };

/* glibc 2.32. Never true: counters of shared pointers stay atomic. */
char __libc_single_threaded = 0;

static int64_t ns_of(struct timespec time) { return (int64_t)time.tv_sec * second_ns + time.tv_nsec; }

typedef int clockwait_function(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);

/* glibc 2.30, which is used where it is there. Otherwise a condition of C++ waits by the clock of the day, and wakes
 * each second in case that was set forward. The caller compares its own clock again, as after any spurious wakeup. A
 * clock that is set back meanwhile makes one wait longer by as much. */
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* deadline) {
  clockwait_function* const of_system = (clockwait_function*)dlsym(RTLD_NEXT, "pthread_cond_clockwait");
  if (of_system != NULL) return of_system(condition, mutex, clock, deadline);
  if (clock == CLOCK_REALTIME) return pthread_cond_timedwait(condition, mutex, deadline);
  struct timespec now, day;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &day);
  const int64_t left = ns_of(*deadline) - ns_of(now);
  const int64_t wait = left < second_ns ? left : second_ns;
  const int64_t until = ns_of(day) + (wait > 0 ? wait : 0);
  const struct timespec end = {until / second_ns, until % second_ns};
  const int code = pthread_cond_timedwait(condition, mutex, &end);
  return code == ETIMEDOUT && wait < left ? 0 : code;
}

/* glibc 2.36, for std::random_device. */
uint32_t arc4random(void) {
  uint32_t word;
  if (getrandom(&word, sizeof word, 0) != sizeof word) abort();
  return word;
}
