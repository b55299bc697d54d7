// Socket options of a supervised program. They live on a socket of the kernel, which checks and keeps them; a few are
// the connection's own.
#pragma once

#include <string>
#include <string_view>

#include "base/fd.h"
#include "connections/socket_area.h"

namespace offpath::supervise {

struct Option {
  int level, name;
  friend bool operator==(const Option&, const Option&) noexcept = default;
};

// Whether a program may set, or read, this one. Others are refused: they would have no effect, or need rights that the
// supervisor may have and the program not.
[[nodiscard]] bool is_settable(const Option& option, int family) noexcept;
[[nodiscard]] bool is_readable(const Option& option, int family) noexcept;
// Whether the pair needs it as well: time limits of reads and writes.
[[nodiscard]] bool concerns_pair(const Option& option) noexcept;

// A socket of the kernel with the options of another one, and without its port. Not open: see errno.
[[nodiscard]] Fd copy_of_options(int fd, int family) noexcept;

[[nodiscard]] int number_of(int fd, const Option& option) noexcept;
[[nodiscard]] channel::FlowSettings flow_settings_of(int fd, wire::TcpCongestion congestion) noexcept;
[[nodiscard]] std::string congestion_of(int fd);  // the kernel's name
// Why a process without CAP_NET_ADMIN may not choose this value of TCP_CONGESTION for a socket of the kernel, which
// would go by the supervisor's rights, and load modules. 0: it may; ENOENT, EPERM.
[[nodiscard]] int congestion_error(int fd, std::string_view value);
// `allowed`, `available`: names between blanks, as the kernel lists them. `present`: the name that it has.
[[nodiscard]] int congestion_error(std::string_view value, std::string_view present, std::string_view allowed,
                                   std::string_view available) noexcept;
[[nodiscard]] std::uint16_t reuse_flags_of(int fd) noexcept;  // wire::tcp_reuse_address, tcp_reuse_port
[[nodiscard]] TimeNs limit_of(int fd, int name) noexcept;     // SO_RCVTIMEO or SO_SNDTIMEO; never: none
[[nodiscard]] bool resets_at_close(int fd) noexcept;          // SO_LINGER with time 0

}  // namespace offpath::supervise
