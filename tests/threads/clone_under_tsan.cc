// The thread sanitizer takes each clone() for a fork, and the child for a copy of the process: it ends when that starts
// threads. Workers are launched by a child that has the agent's memory (src/plugin/worker_launch.cc), so the
// sanitizer's notes there apply to the agent. This calls clone() without the sanitizer.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)

extern "C" {

int __clone(int (*run)(void*), void* stack, int flags, void* argument, ...);

__attribute__((visibility("default"))) int clone(int (*run)(void*), void* stack, int flags, void* argument, ...) {
  return __clone(run, stack, flags, argument);
}
}

#endif
#endif
