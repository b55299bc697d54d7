#include "supervise/notifications.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace offpath::supervise {

Result<Notifications> Notifications::open(Fd listener) {
  seccomp_notif_sizes sizes{};
  if (::syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes) != 0) return fail_errno(errno, "seccomp");
  // Refused for the unknown id by a kernel that knows the flag, and for the flag by an older one.
  seccomp_notif_addfd probe{};
  probe.flags = SECCOMP_ADDFD_FLAG_SEND;
  probe.srcfd = static_cast<std::uint32_t>(listener.get());
  if (::ioctl(listener.get(), SECCOMP_IOCTL_NOTIF_ADDFD, &probe) != 0 && errno != ENOENT)
    return fail(
        Error::unsupported,
        "this kernel cannot give a descriptor to a waiting program (SECCOMP_ADDFD_FLAG_SEND, Linux 5.14): start "
        "the program without --supervise");
  return Notifications(std::move(listener), std::max<std::size_t>(sizes.seccomp_notif, sizeof(seccomp_notif)));
}

std::optional<Call> Notifications::next() {
  std::ranges::fill(received_, std::byte{0});
  if (::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_RECV, received_.data()) != 0) return std::nullopt;
  seccomp_notif got{};
  std::memcpy(&got, received_.data(), sizeof got);
  Call call{.id = got.id, .thread = static_cast<pid_t>(got.pid), .number = got.data.nr, .arguments = {}};
  std::ranges::copy(got.data.args, call.arguments.begin());
  return call;
}

bool Notifications::is_open(const Call& call) const noexcept {
  std::uint64_t id = call.id;
  return ::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

bool Notifications::answer(const Call& call, std::int64_t value) noexcept {
  seccomp_notif_resp answer{};
  answer.id = call.id;
  if (value < 0)
    answer.error = static_cast<std::int32_t>(value);
  else
    answer.val = value;
  return ::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_SEND, &answer) == 0;
}

bool Notifications::let_continue(const Call& call) noexcept {
  seccomp_notif_resp answer{};
  answer.id = call.id;
  answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
  return ::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_SEND, &answer) == 0;
}

int Notifications::answer_descriptor(const Call& call, int fd, bool close_on_exec) noexcept {
  seccomp_notif_addfd add{};
  add.id = call.id;
  add.flags = SECCOMP_ADDFD_FLAG_SEND;
  add.srcfd = static_cast<std::uint32_t>(fd);
  add.newfd_flags = close_on_exec ? O_CLOEXEC : 0;
  const int number = ::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_ADDFD, &add);
  return number >= 0 ? number : -errno;
}

bool Notifications::replace(const Call& call, int fd, int number, bool close_on_exec) noexcept {
  seccomp_notif_addfd add{};
  add.id = call.id;
  add.flags = SECCOMP_ADDFD_FLAG_SETFD;
  add.srcfd = static_cast<std::uint32_t>(fd);
  add.newfd = static_cast<std::uint32_t>(number);
  add.newfd_flags = close_on_exec ? O_CLOEXEC : 0;
  return ::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_ADDFD, &add) >= 0;
}

}  // namespace offpath::supervise
