// The C library's own calls, which this library replaces.
#pragma once

#include <dlfcn.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <csignal>
#include <cstddef>

#include "base/status.h"

namespace offpath::sockets::kernel {

template <class Call>
Call* next(const char* name) {
  void* const found = ::dlsym(RTLD_NEXT, name);
  OFP_ASSERT(found != nullptr);
  return reinterpret_cast<Call*>(found);
}

// One function for each name; it looks the call up once.
#define OFP_KERNEL_CALL(name, ...)                      \
  template <class... Arguments>                         \
  auto name(Arguments... arguments) {                   \
    static auto* const call = next<__VA_ARGS__>(#name); \
    return call(arguments...);                          \
  }

OFP_KERNEL_CALL(socket, int(int, int, int))
OFP_KERNEL_CALL(bind, int(int, const sockaddr*, socklen_t))
OFP_KERNEL_CALL(listen, int(int, int))
OFP_KERNEL_CALL(accept4, int(int, sockaddr*, socklen_t*, int))
OFP_KERNEL_CALL(connect, int(int, const sockaddr*, socklen_t))
OFP_KERNEL_CALL(shutdown, int(int, int))
OFP_KERNEL_CALL(close, int(int))
OFP_KERNEL_CALL(dup, int(int))
OFP_KERNEL_CALL(dup2, int(int, int))
OFP_KERNEL_CALL(dup3, int(int, int, int))
OFP_KERNEL_CALL(read, ssize_t(int, void*, size_t))
OFP_KERNEL_CALL(write, ssize_t(int, const void*, size_t))
OFP_KERNEL_CALL(readv, ssize_t(int, const iovec*, int))
OFP_KERNEL_CALL(writev, ssize_t(int, const iovec*, int))
OFP_KERNEL_CALL(recv, ssize_t(int, void*, size_t, int))
OFP_KERNEL_CALL(send, ssize_t(int, const void*, size_t, int))
OFP_KERNEL_CALL(recvfrom, ssize_t(int, void*, size_t, int, sockaddr*, socklen_t*))
OFP_KERNEL_CALL(sendto, ssize_t(int, const void*, size_t, int, const sockaddr*, socklen_t))
OFP_KERNEL_CALL(recvmsg, ssize_t(int, msghdr*, int))
OFP_KERNEL_CALL(sendmsg, ssize_t(int, const msghdr*, int))
OFP_KERNEL_CALL(recvmmsg, int(int, mmsghdr*, unsigned, int, timespec*))
OFP_KERNEL_CALL(sendmmsg, int(int, mmsghdr*, unsigned, int))
OFP_KERNEL_CALL(splice, ssize_t(int, off64_t*, int, off64_t*, size_t, unsigned))
OFP_KERNEL_CALL(sendfile, ssize_t(int, int, off_t*, size_t))
OFP_KERNEL_CALL(getsockopt, int(int, int, int, void*, socklen_t*))
OFP_KERNEL_CALL(setsockopt, int(int, int, int, const void*, socklen_t))
OFP_KERNEL_CALL(getsockname, int(int, sockaddr*, socklen_t*))
OFP_KERNEL_CALL(getpeername, int(int, sockaddr*, socklen_t*))
OFP_KERNEL_CALL(poll, int(pollfd*, nfds_t, int))
OFP_KERNEL_CALL(ppoll, int(pollfd*, nfds_t, const timespec*, const sigset_t*))
OFP_KERNEL_CALL(select, int(int, fd_set*, fd_set*, fd_set*, timeval*))
OFP_KERNEL_CALL(pselect, int(int, fd_set*, fd_set*, fd_set*, const timespec*, const sigset_t*))
OFP_KERNEL_CALL(epoll_create, int(int))
OFP_KERNEL_CALL(epoll_create1, int(int))
OFP_KERNEL_CALL(epoll_ctl, int(int, int, int, epoll_event*))
OFP_KERNEL_CALL(epoll_pwait, int(int, epoll_event*, int, int, const sigset_t*))
OFP_KERNEL_CALL(fcntl, int(int, int, ...))
OFP_KERNEL_CALL(ioctl, int(int, unsigned long, ...))

OFP_KERNEL_CALL(syscall, long(long, ...))

#undef OFP_KERNEL_CALL

// glibc has it from 2.35 on. By number it may fail with ENOSYS like the C library's, but is no cancellation point.
inline int epoll_pwait2(int epoll, epoll_event* events, int room, const timespec* limit, const sigset_t* mask) {
  using Call = int(int, epoll_event*, int, const timespec*, const sigset_t*);
  static auto* const call = reinterpret_cast<Call*>(::dlsym(RTLD_NEXT, "epoll_pwait2"));
  if (call != nullptr) return call(epoll, events, room, limit, mask);
  return static_cast<int>(syscall(SYS_epoll_pwait2, epoll, events, room, limit, mask, std::size_t{_NSIG / 8}));
}

}  // namespace offpath::sockets::kernel
