// Loaded before a program's own libraries (LD_PRELOAD): fails one call that takes a descriptor, a mapping or memory, as
// a machine that has run out of them does. A page shared with the test selects the call, counted from the test's start
// signal.
//
//   OFFPATH_FAILING_CALLS    the file of that page; the calls of its first process with this library fail
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

// As test_resources_run_out.py has it.
struct Page {
  std::atomic<std::uint64_t> pid;      // of the process; 0: none yet
  std::atomic<std::uint64_t> kinds;    // calls that count: sum of Kind
  std::atomic<std::uint64_t> fails;    // which of them fails; 0: none
  std::atomic<std::uint64_t> counted;  // so far
  std::atomic<std::uint64_t> failed;   // so far
};
enum Kind : std::uint64_t { system_call = 1, new_in_main_thread = 2, new_in_other_thread = 4 };

Page* page = nullptr;
thread_local bool is_reporting = false;

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

struct Code {
  std::uintptr_t begin = 0, end = 0;
};

// Arrow allocates in its own threads, in which no caller could catch an exception.
int find_arrow(dl_phdr_info* library, std::size_t, void* found) {
  if (std::strstr(library->dlpi_name, "libarrow.so") == nullptr) return 0;
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const auto& part = library->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    const std::uintptr_t begin = library->dlpi_addr + part.p_vaddr;
    *static_cast<Code*>(found) = {begin, begin + part.p_memsz};
  }
  return 1;
}

// Asked when calls count: by then earlier queries have loaded it.
bool is_in_arrow(const void* caller) {
  if (page == nullptr || page->kinds.load(std::memory_order_relaxed) == 0) return false;
  static const Code arrow = [] {
    Code found;
    dl_iterate_phdr(find_arrow, &found);
    return found;
  }();
  const auto from = reinterpret_cast<std::uintptr_t>(caller);
  return from >= arrow.begin && from < arrow.end;
}

__attribute__((constructor)) void attach() {
  const char* const path = std::getenv("OFFPATH_FAILING_CALLS");
  if (path == nullptr) return;
  const auto fd = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC));
  if (fd < 0) return;
  void* const mapped =
      reinterpret_cast<void*>(::syscall(SYS_mmap, nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0L));
  ::close(fd);
  if (mapped == MAP_FAILED) return;
  void* frame = nullptr;
  (void)backtrace(&frame, 1);  // loads its libraries
  std::uint64_t nobody = 0;
  static_cast<Page*>(mapped)->pid.compare_exchange_strong(nobody, static_cast<std::uint64_t>(getpid()));
  page = static_cast<Page*>(mapped);
}

// A child between fork and exec has the page too, and does not count.
bool has_to_fail(Kind kind, const char* name) {
  if (page == nullptr || is_reporting || (page->kinds.load(std::memory_order_relaxed) & kind) == 0) return false;
  if (page->pid.load(std::memory_order_relaxed) != static_cast<std::uint64_t>(getpid())) return false;
  if (page->counted.fetch_add(1) + 1 != page->fails.load()) return false;
  page->failed.fetch_add(1);
  is_reporting = true;
  void* frames[24];
  const int count = backtrace(frames, 24);
  dprintf(STDERR_FILENO, "failing_calls: %s, in %d\n", name, gettid());
  backtrace_symbols_fd(frames, count, STDERR_FILENO);
  is_reporting = false;
  return true;
}

template <class Result>
Result failed(int error, Result result) {
  errno = error;
  return result;
}

void* allocate(std::size_t bytes, std::size_t alignment, const void* caller) {
  const bool is_ours = !is_in_arrow(caller);
  const Kind kind = page != nullptr && gettid() == getpid() ? new_in_main_thread : new_in_other_thread;
  for (;;) {
    void* const memory = is_ours && has_to_fail(kind, "operator new") ? nullptr
                         : alignment == 0
                             ? std::malloc(bytes == 0 ? 1 : bytes)
                             : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (memory != nullptr) return memory;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes, 0, __builtin_return_address(0)); }
void* operator new[](std::size_t bytes) { return allocate(bytes, 0, __builtin_return_address(0)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

// Each fails with the error of its kind, or is the next library's.
#define FAILING(result, name, parameters, arguments, error, fallen)                          \
  extern "C" __attribute__((visibility("default"))) result name parameters {                 \
    static auto* const real = next<result parameters>(#name);                                \
    return has_to_fail(system_call, #name) ? failed<result>(error, fallen) : real arguments; \
  }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wredundant-decls"
#undef mmap
#undef mmap64
#undef ftruncate
#undef ftruncate64
#undef fallocate
#undef fallocate64

FAILING(void*, mmap, (void* at, std::size_t bytes, int access, int flags, int fd, off_t offset) noexcept,
        (at, bytes, access, flags, fd, offset), ENOMEM, MAP_FAILED)
FAILING(void*, mmap64, (void* at, std::size_t bytes, int access, int flags, int fd, off64_t offset) noexcept,
        (at, bytes, access, flags, fd, offset), ENOMEM, MAP_FAILED)
FAILING(int, memfd_create, (const char* name, unsigned flags) noexcept, (name, flags), EMFILE, -1)
FAILING(int, ftruncate, (int fd, off_t bytes) noexcept, (fd, bytes), ENOSPC, -1)
FAILING(int, ftruncate64, (int fd, off64_t bytes) noexcept, (fd, bytes), ENOSPC, -1)
FAILING(int, fallocate, (int fd, int mode, off_t at, off_t bytes), (fd, mode, at, bytes), ENOSPC, -1)
FAILING(int, fallocate64, (int fd, int mode, off64_t at, off64_t bytes), (fd, mode, at, bytes), ENOSPC, -1)
FAILING(int, epoll_create1, (int flags) noexcept, (flags), EMFILE, -1)
FAILING(int, eventfd, (unsigned value, int flags) noexcept, (value, flags), EMFILE, -1)
FAILING(int, timerfd_create, (int clock, int flags) noexcept, (clock, flags), EMFILE, -1)
FAILING(int, accept, (int fd, sockaddr* from, socklen_t* bytes), (fd, from, bytes), EMFILE, -1)
FAILING(int, accept4, (int fd, sockaddr* from, socklen_t* bytes, int flags), (fd, from, bytes, flags), EMFILE, -1)
FAILING(int, dup, (int fd) noexcept, (fd), EMFILE, -1)
FAILING(int, dup3, (int fd, int as, int flags) noexcept, (fd, as, flags), EMFILE, -1)
FAILING(int, socket, (int domain, int type, int protocol) noexcept, (domain, type, protocol), EMFILE, -1)
FAILING(int, socketpair, (int domain, int type, int protocol, int* ends) noexcept, (domain, type, protocol, ends),
        EMFILE, -1)
FAILING(int, pipe2, (int* ends, int flags) noexcept, (ends, flags), EMFILE, -1)
FAILING(pid_t, fork, () noexcept, (), EAGAIN, -1)
FAILING(int, pthread_create,
        (pthread_t * thread, const pthread_attr_t* attributes, void* (*begin)(void*), void* argument) noexcept,
        (thread, attributes, begin, argument), EAGAIN, EAGAIN)

// A descriptor that has to be watched takes memory of the kernel's; one that is taken off takes none.
extern "C" __attribute__((visibility("default"))) int epoll_ctl(int set, int what, int fd,
                                                                epoll_event* event) noexcept {
  static auto* const real = next<int(int, int, int, epoll_event*)>("epoll_ctl");
  return what == EPOLL_CTL_ADD && has_to_fail(system_call, "epoll_ctl") ? failed(ENOSPC, -1)
                                                                        : real(set, what, fd, event);
}

// Beyond the limit the kernel omits descriptors, and sets a flag.
extern "C" __attribute__((visibility("default"))) ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static auto* const real = next<ssize_t(int, msghdr*, int)>("recvmsg");
  const ssize_t got = real(fd, message, flags);
  if (got < 0 || message->msg_controllen == 0) return got;
  for (cmsghdr* each = CMSG_FIRSTHDR(message); each != nullptr; each = CMSG_NXTHDR(message, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS || !has_to_fail(system_call, "recvmsg"))
      continue;
    const std::size_t count = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    const int* const fds = reinterpret_cast<const int*>(CMSG_DATA(each));
    for (std::size_t i = 0; i < count; ++i) ::close(fds[i]);
    message->msg_controllen = 0;
    message->msg_flags |= MSG_CTRUNC;
    break;
  }
  return got;
}

extern "C" __attribute__((visibility("default"))) int fcntl(int fd, int what, ...) {
  static auto* const real = next<int(int, int, ...)>("fcntl");
  va_list rest;
  va_start(rest, what);
  void* const argument = va_arg(rest, void*);
  va_end(rest);
  return (what == F_DUPFD || what == F_DUPFD_CLOEXEC) && has_to_fail(system_call, "fcntl") ? failed(EMFILE, -1)
                                                                                           : real(fd, what, argument);
}

#define FAILING_OPEN(name)                                                                       \
  extern "C" __attribute__((visibility("default"))) int name(const char* path, int flags, ...) { \
    static auto* const real = next<int(const char*, int, ...)>(#name);                           \
    va_list rest;                                                                                \
    va_start(rest, flags);                                                                       \
    const auto mode = static_cast<mode_t>(va_arg(rest, int));                                    \
    va_end(rest);                                                                                \
    return has_to_fail(system_call, #name) ? failed(EMFILE, -1) : real(path, flags, mode);       \
  }
FAILING_OPEN(open)
FAILING_OPEN(open64)
#define FAILING_OPENAT(name)                                                                                 \
  extern "C" __attribute__((visibility("default"))) int name(int folder, const char* path, int flags, ...) { \
    static auto* const real = next<int(int, const char*, int, ...)>(#name);                                  \
    va_list rest;                                                                                            \
    va_start(rest, flags);                                                                                   \
    const auto mode = static_cast<mode_t>(va_arg(rest, int));                                                \
    va_end(rest);                                                                                            \
    return has_to_fail(system_call, #name) ? failed(EMFILE, -1) : real(folder, path, flags, mode);           \
  }
FAILING_OPENAT(openat)
FAILING_OPENAT(openat64)

extern "C" __attribute__((visibility("default"))) long syscall(long number, ...) noexcept {
  static auto* const real = next<long(long, ...)>("syscall");
  va_list rest;
  va_start(rest, number);
  long arguments[6];
  for (long& each : arguments) each = va_arg(rest, long);
  va_end(rest);
  if (number == SYS_pidfd_open && has_to_fail(system_call, "pidfd_open")) return failed(EMFILE, -1L);
  return real(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}
#pragma GCC diagnostic pop
