#include "supervise/filter.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace offpath::supervise {

namespace {

#if defined(__x86_64__)
constexpr std::uint32_t architecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t architecture = AUDIT_ARCH_AARCH64;
#else
#error "the supervisor supports only x86-64 and arm64"
#endif

constexpr std::array<std::uint32_t, 11> handed_over{SYS_bind,       SYS_listen,     SYS_accept,        SYS_accept4,
                                                    SYS_connect,    SYS_shutdown,   SYS_getsockname,   SYS_getpeername,
                                                    SYS_setsockopt, SYS_getsockopt, SYS_io_uring_setup};

constexpr std::uint32_t argument(unsigned index) {  // its lower half: all of an int
  return static_cast<std::uint32_t>(offsetof(seccomp_data, args) + index * sizeof(std::uint64_t));
}

class Filter {
 public:
  void load(std::uint32_t offset) { add(BPF_LD | BPF_W | BPF_ABS, offset); }
  // Continues behind the next `skipped` instructions if the value is (or is not) this one.
  void skip_if(std::uint32_t value, std::uint8_t skipped) { add(BPF_JMP | BPF_JEQ | BPF_K, value, skipped, 0); }
  void skip_unless(std::uint32_t value, std::uint8_t skipped) { add(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skipped); }
  void mask(std::uint32_t bits) { add(BPF_ALU | BPF_AND | BPF_K, bits); }
  void end(std::uint32_t action) { add(BPF_RET | BPF_K, action); }
  [[nodiscard]] sock_fprog program() {
    return {static_cast<unsigned short>(instructions_.size()), instructions_.data()};
  }

 private:
  void add(int code, std::uint32_t value, std::uint8_t if_true = 0, std::uint8_t if_false = 0) {
    instructions_.push_back({static_cast<std::uint16_t>(code), if_true, if_false, value});
  }
  std::vector<sock_filter> instructions_;
};

// Calls by another table (32-bit programs, x32) are the kernel's: their numbers are not in the list.
Filter make_filter(bool counts_all) {
  Filter filter;
  filter.load(offsetof(seccomp_data, arch));
  filter.skip_if(architecture, 1);
  filter.end(SECCOMP_RET_ALLOW);
  filter.load(offsetof(seccomp_data, nr));
  for (const std::uint32_t number : handed_over) {
    filter.skip_unless(number, 1);
    filter.end(SECCOMP_RET_USER_NOTIF);
  }
  filter.skip_if(SYS_socket, 1);
  filter.end(SECCOMP_RET_ALLOW);
  if (!counts_all) {
    constexpr std::uint32_t type_mask = 0xf;  // SOCK_NONBLOCK and SOCK_CLOEXEC are above
    filter.load(argument(0));
    filter.skip_if(AF_INET, 2);
    filter.skip_if(AF_INET6, 1);
    filter.end(SECCOMP_RET_ALLOW);
    filter.load(argument(1));
    filter.mask(type_mask);
    filter.skip_if(SOCK_STREAM, 1);
    filter.end(SECCOMP_RET_ALLOW);
  }
  filter.end(SECCOMP_RET_USER_NOTIF);
  return filter;
}

}  // namespace

// Without SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV: a thread that waits in accept or connect must see its signals.
Result<Fd> set_filter(bool counts_all) {
  Filter filter = make_filter(counts_all);
  const sock_fprog program = filter.program();
  const auto set = [&] {
    return static_cast<int>(
        ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
  };
  int listener = set();
  if (listener < 0 && errno == EACCES) {
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno(errno, "prctl(PR_SET_NO_NEW_PRIVS)");
    listener = set();
  }
  if (listener >= 0) return Fd(listener);
  if (errno == EBUSY)
    return fail(Error::unsupported,
                "this process is supervised by another seccomp listener, and the kernel allows one: start the program "
                "outside of it, or without --supervise");
  if (errno == EINVAL || errno == ENOSYS)
    return fail(Error::unsupported,
                "the kernel has no seccomp user notification (Linux 5.14 with CONFIG_SECCOMP_FILTER): start the "
                "program without --supervise");
  return fail_errno(errno, "seccomp");
}

}  // namespace offpath::supervise
