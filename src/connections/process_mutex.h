// A mutex in shared memory of processes, which does not stay locked when its owner dies.
#pragma once

#include <pthread.h>

#include <cerrno>

#include "base/status.h"

namespace offpath::channel {

class ProcessMutex {
 public:
  void init() noexcept {  // once, by the process that makes the memory
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&mutex_, &attributes);
    pthread_mutexattr_destroy(&attributes);
  }
  // False: the previous owner died with it, and the protected data is as it left it.
  bool take() noexcept {
    const int code = pthread_mutex_lock(&mutex_);
    OFP_ASSERT(code == 0 || code == EOWNERDEAD);
    if (code == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
    return code == 0;
  }
  void lock() noexcept { take(); }
  void unlock() noexcept { pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_;
};

}  // namespace offpath::channel
