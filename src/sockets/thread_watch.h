// Notices that a thread was killed alone, as a seccomp filter does (SECCOMP_RET_KILL_THREAD). Without this library's
// thread such a process would have ended.
#pragma once

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace offpath::sockets {

class ThreadWatch {
 public:
  // Watches the calling thread, if it is the process's first. A thread that ends by itself is no longer watched.
  void begin() noexcept {
    if (::syscall(SYS_gettid) != ::getpid() || watches_.load()) return;
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&lived_, &attributes);
    pthread_mutexattr_destroy(&attributes);
    pthread_key_t at_its_end;
    if (pthread_key_create(&at_its_end,
                           [](void* mutex) { pthread_mutex_unlock(static_cast<pthread_mutex_t*>(mutex)); }))
      return;
    pthread_setspecific(at_its_end, &lived_);
    pthread_mutex_lock(&lived_);
    watches_ = true;
  }
  [[nodiscard]] bool watches() const noexcept { return watches_.load(std::memory_order_relaxed); }
  // By another thread.
  [[nodiscard]] bool was_killed() noexcept {
    if (!watches_.load()) return false;
    const int code = pthread_mutex_trylock(&lived_);
    if (code == 0) watches_ = false;
    return code == EOWNERDEAD;
  }

 private:
  pthread_mutex_t lived_{};
  std::atomic<bool> watches_ = false;
};

}  // namespace offpath::sockets
