// System calls that programs make by number: libuv, for example, closes descriptors so. Those on descriptors become the
// calls of this library. An io_uring would bypass the library, as with the epoll_ctl that libuv submits. So a program
// with an agent gets no io_uring and, as on a kernel without one, makes the calls itself.
//
// And how programs set seccomp filters, which this library has to know of beforehand.
#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdarg>
#include <optional>
#include <type_traits>
#include <utility>

#include "sockets/calls.h"
#include "sockets/kernel.h"

using namespace offpath::sockets;

namespace {

using Call = long(long, ...);
using Words = std::array<long, 6>;

// Looked up before the program runs: the call has to work in signal handlers and in children of vfork().
Call* the_call() {
  static Call* const call = kernel::next<Call>("syscall");
  return call;
}
[[gnu::constructor]] void look_up() { static_cast<void>(the_call()); }

template <class To>
To as(long word) noexcept {
  if constexpr (std::is_pointer_v<To>)
    return reinterpret_cast<To>(word);
  else
    return static_cast<To>(word);
}

template <class Result, class... Parameters, std::size_t... places>
long give(Result (*call)(Parameters...), const Words& words, std::index_sequence<places...>) {
  return static_cast<long>(call(as<Parameters>(words[places])...));
}
template <class Result, class... Parameters>
long give(Result (*call)(Parameters...), const Words& words) {
  return give(call, words, std::index_sequence_for<Parameters...>());
}

// nullopt: this library does not handle the call.
std::optional<long> by_name(long number, const Words& words) {
  const auto fd = static_cast<int>(words[0]);
  switch (number) {
    case SYS_close:
      return give(::close, words);
    case SYS_close_range:
      return give(::close_range, words);
    case SYS_dup:
      return give(::dup, words);
    case SYS_dup3:
      return give(::dup3, words);
    case SYS_fcntl:
      return ::fcntl(fd, static_cast<int>(words[1]), as<void*>(words[2]));
    case SYS_ioctl:
      return ::ioctl(fd, static_cast<unsigned long>(words[1]), as<void*>(words[2]));
    case SYS_socket:
      return give(::socket, words);
    case SYS_bind:
      return give(::bind, words);
    case SYS_listen:
      return give(::listen, words);
    case SYS_accept:
      return give(::accept, words);
    case SYS_accept4:
      return give(::accept4, words);
    case SYS_connect:
      return give(::connect, words);
    case SYS_shutdown:
      return give(::shutdown, words);
    case SYS_getsockname:
      return give(::getsockname, words);
    case SYS_getpeername:
      return give(::getpeername, words);
    case SYS_getsockopt:
      return give(::getsockopt, words);
    case SYS_setsockopt:
      return give(::setsockopt, words);
    case SYS_read:
      return give(::read, words);
    case SYS_write:
      return give(::write, words);
    case SYS_readv:
      return give(::readv, words);
    case SYS_writev:
      return give(::writev, words);
    case SYS_recvfrom:
      return give(::recvfrom, words);
    case SYS_sendto:
      return give(::sendto, words);
    case SYS_recvmsg:
      return give(::recvmsg, words);
    case SYS_sendmsg:
      return give(::sendmsg, words);
    case SYS_recvmmsg:
      return give(::recvmmsg, words);
    case SYS_sendmmsg:
      return give(::sendmmsg, words);
    case SYS_splice:
      return give(::splice, words);
    case SYS_sendfile:
      return give(::sendfile, words);
    case SYS_epoll_create1:
      return give(::epoll_create1, words);
    case SYS_epoll_ctl:
      return give(::epoll_ctl, words);
    case SYS_epoll_pwait:  // the mask's size is the kernel's
      return give(::epoll_pwait, words);
    case SYS_epoll_pwait2:
      return give(::epoll_pwait2, words);
    case SYS_ppoll:
      return give(::ppoll, words);
    case SYS_pselect6: {
      const auto* const mask = as<const sigset_t* const*>(words[5]);  // and its size
      return ::pselect(fd, as<fd_set*>(words[1]), as<fd_set*>(words[2]), as<fd_set*>(words[3]),
                       as<const timespec*>(words[4]), mask == nullptr ? nullptr : *mask);
    }
#ifdef SYS_dup2
    case SYS_dup2:
      return give(::dup2, words);
    case SYS_epoll_create:
      return give(::epoll_create, words);
    case SYS_epoll_wait:
      return give(::epoll_wait, words);
    case SYS_poll:
      return give(::poll, words);
    case SYS_select:
      return give(::select, words);
#endif
    default:
      return std::nullopt;
  }
}

// Allocators make calls by number while they set themselves up: jemalloc opens, reads and closes a file under its
// lock, before the constructors of this library. Making the Program would allocate, and wait for that lock forever.
// Only these calls need it: others concern descriptors, none of which is offloaded yet.
bool makes_the_program(long number) {
  return number == SYS_socket || number == SYS_epoll_create1 || number == SYS_io_uring_setup || number == SYS_seccomp ||
         number == SYS_prctl;
}

void note_filter(bool sets_one) {
  if (sets_one) program().confine();
}

}  // namespace

// Callers pass as many words as the call has; the others are undefined, as with the C library's.
OFP_CALL __attribute__((no_sanitize("address"))) long syscall(long number, ...) noexcept {
  va_list arguments;
  va_start(arguments, number);
  Words words;
  for (long& word : words) word = va_arg(arguments, long);
  va_end(arguments);
  if ((program_is_made() || makes_the_program(number)) && !program().policy().agent.empty()) {
    if (number == SYS_io_uring_setup) return failed(ENOSYS);
    if (const auto done = by_name(number, words)) return *done;
    note_filter((number == SYS_seccomp && words[0] == SECCOMP_SET_MODE_FILTER) ||
                (number == SYS_prctl && words[0] == PR_SET_SECCOMP && words[1] == SECCOMP_MODE_FILTER));
  }
  return the_call()(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

OFP_CALL int prctl(int option, ...) noexcept {
  static auto* const call = kernel::next<int(int, ...)>("prctl");
  va_list arguments;
  va_start(arguments, option);
  unsigned long words[4];
  for (unsigned long& word : words) word = va_arg(arguments, unsigned long);
  va_end(arguments);
  note_filter(option == PR_SET_SECCOMP && words[0] == SECCOMP_MODE_FILTER);
  return call(option, words[0], words[1], words[2], words[3]);
}
