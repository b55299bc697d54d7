// System calls that programs make by number. An io_uring would carry calls on descriptors past this library, as libuv
// submits epoll_ctl. So a program with an agent gets none and, as on a kernel without io_uring, makes the calls itself.
//
// And how programs set seccomp filters, which this library has to know of beforehand.
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstdarg>

#include "sockets/calls.h"
#include "sockets/kernel.h"

using namespace offpath::sockets;

namespace {

using Call = long(long, ...);

// Looked up before the program runs: the call has to work in signal handlers and in children of vfork().
Call* the_call() {
  static Call* const call = kernel::next<Call>("syscall");
  return call;
}
[[gnu::constructor]] void look_up() { static_cast<void>(the_call()); }

}  // namespace

OFP_CALL long syscall(long number, ...) noexcept {
  if (number == SYS_io_uring_setup && !program().policy().agent.empty()) return failed(ENOSYS);
  va_list arguments;
  va_start(arguments, number);
  long words[6];
  for (long& word : words) word = va_arg(arguments, long);
  va_end(arguments);
  if (number == SYS_seccomp && words[0] == SECCOMP_SET_MODE_FILTER) program().confine();
  return the_call()(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

OFP_CALL int prctl(int option, ...) noexcept {
  static auto* const call = kernel::next<int(int, ...)>("prctl");
  va_list arguments;
  va_start(arguments, option);
  unsigned long words[4];
  for (unsigned long& word : words) word = va_arg(arguments, unsigned long);
  va_end(arguments);
  if (option == PR_SET_SECCOMP && words[0] == SECCOMP_MODE_FILTER) program().confine();
  return call(option, words[0], words[1], words[2], words[3]);
}
