// Names and options of supervised sockets.
#include <linux/capability.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "sockets/kernel_terms.h"
#include "supervise/calls.h"
#include "supervise/options.h"

namespace offpath::supervise {

namespace {

using Is = Supervised::Is;
constexpr std::size_t option_bytes_max = 512;
constexpr int free_priority_max = 6;
constexpr Option address_form{IPPROTO_IPV6, IPV6_ADDRFORM}, congestion_control{IPPROTO_TCP, TCP_CONGESTION};

// The kernel would look at the rights of the supervisor, which sets the option. `now`: a socket of the kernel.
bool needs_rights(const Option& option, int now, Bytes bytes) {
  int value = 0;
  if (bytes.size() < sizeof value) return false;
  std::memcpy(&value, bytes.data(), sizeof value);
  if (option == Option{SOL_SOCKET, SO_PRIORITY}) return value < 0 || value > free_priority_max;
  return option == Option{SOL_SOCKET, SO_BUSY_POLL} && value > number_of(now, option);
}

}  // namespace

int Calls::options_of(Supervised& socket) {
  if (socket.kernels && !socket.shares_options) return socket.kernels->get();
  Fd made = socket.kernels ? copy_of_options(socket.kernels->get(), socket.family)
                           : Fd(::socket(socket.family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!made) return -1;
  socket.kernels = std::make_shared<Fd>(std::move(made));
  socket.shares_options = false;
  return socket.kernels->get();
}

// As much as fits. `whole_length`: the program is told the length of all of it, as for addresses. False: it was not
// written, as when the call has ended.
bool Calls::give_bytes(const Call& call, const Caller& caller, Supervised& socket, std::uint64_t to,
                       std::uint64_t length_at, Bytes bytes, bool whole_length) {
  const auto refuse = [&](int code) {
    answer(socket, call, -code);
    return false;
  };
  socklen_t room = 0;
  if (!caller.read(length_at, std::as_writable_bytes(std::span(&room, 1)))) return refuse(EFAULT);
  if (static_cast<int>(room) < 0) return refuse(EINVAL);
  const Bytes given = bytes.first(std::min<std::size_t>(room, bytes.size()));
  const auto length = static_cast<socklen_t>(whole_length ? bytes.size() : given.size());
  if (!caller.write(to, given) || !caller.write(length_at, std::as_bytes(std::span(&length, 1)))) return refuse(EFAULT);
  answer(socket, call, 0);
  return true;
}

void Calls::get_name(const Call& call, const Caller& caller, Supervised& socket, bool peer) {
  std::optional<SocketArea::Endpoint> name;
  if (peer) {
    if (socket.is != Is::connected) return answer(socket, call, -ENOTCONN);
    name = socket.remote;
  } else if (socket.is == Is::connected || socket.is == Is::ended) {
    name = socket.local;
  } else if (socket.is == Is::connecting) {
    if (const auto look = relay_.area().look(*socket.handle)) name = look->local;
  } else if (socket.bound) {
    name = *socket.bound;
  }
  if (name) {
    const auto address = sockets::kernel_address(*name, socket.family);
    give_bytes(call, caller, socket, call.arguments[1], call.arguments[2],
               Bytes(reinterpret_cast<const std::byte*>(&address.storage), address.length), true);
    return;
  }
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(options_of(socket), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return answer(socket, call, -errno);
  give_bytes(call, caller, socket, call.arguments[1], call.arguments[2],
             Bytes(reinterpret_cast<const std::byte*>(&address), length), true);
}

void Calls::get_option(const Call& call, const Caller& caller, Supervised& socket) {
  const Option option{call.integer(1), call.integer(2)};
  const auto give = [&](Bytes bytes) {
    return give_bytes(call, caller, socket, call.arguments[3], call.arguments[4], bytes, false);
  };
  const auto give_number = [&](int value) { return give(std::as_bytes(std::span(&value, 1))); };
  if (option == Option{SOL_SOCKET, SO_ERROR}) {
    // The program's end of a closed pair has an error of its own, which the kernel forgets when it is read.
    if (socket.is == Is::ended) {
      const Fd programs = caller.copy_of(call.integer(0), socket.inode);
      if (programs) static_cast<void>(number_of(programs.get(), option));
    }
    if (give_number(socket.error)) socket.error = 0;
    return;
  }
  if (option == Option{SOL_SOCKET, SO_ACCEPTCONN}) {
    give_number(socket.is == Is::listening && !socket.stopped);
    return;
  }
  if (option == Option{IPPROTO_TCP, TCP_INFO} || option == Option{IPPROTO_TCP, TCP_MAXSEG}) {
    const auto look = socket.handle && relay_.open() != nullptr ? relay_.area().look(*socket.handle)
                                                                : fail(Error::closed, "no connection");
    const auto role = socket.is == Is::listening                                  ? sockets::Role::listener
                      : socket.is == Is::connected || socket.is == Is::connecting ? sockets::Role::connection
                                                                                  : sockets::Role::unconnected;
    const tcp_info info = sockets::info_of(role, look ? &*look : nullptr);
    if (option.name == TCP_MAXSEG)
      give_number(static_cast<int>(info.tcpi_snd_mss));
    else
      give(std::as_bytes(std::span(&info, 1)));
    return;
  }
  if (option == address_form && socket.family == AF_INET6) {
    if (socket.is != Is::connected) return answer(socket, call, -ENOTCONN);
    give_number(socket.family);
    return;
  }
  if (option == congestion_control && socket.handle && relay_.open() != nullptr) {
    const auto name = sockets::congestion_name(socket.congestion, relay_.area());
    give(std::as_bytes(std::span(name)));
    return;
  }
  if (!is_readable(option, socket.family))
    return answer(socket, call, -sockets::unknown_option(option.level, socket.family));
  std::array<std::byte, option_bytes_max> value;
  socklen_t length = 0;
  if (!caller.read(call.arguments[4], std::as_writable_bytes(std::span(&length, 1))))
    return answer(socket, call, -EFAULT);
  if (static_cast<int>(length) < 0) return answer(socket, call, -EINVAL);
  length = std::min<socklen_t>(length, value.size());
  if (::getsockopt(options_of(socket), option.level, option.name, value.data(), &length) != 0)
    return answer(socket, call, -errno);
  give(Bytes(value).first(length));
}

// A connection of IPv4 becomes a socket of IPv4.
void Calls::become_ipv4(const Call& call, Supervised& socket, Bytes bytes) {
  int value = 0;
  if (bytes.size() < sizeof value) return answer(socket, call, -EINVAL);
  std::memcpy(&value, bytes.data(), sizeof value);
  if (value != AF_INET) return answer(socket, call, -EINVAL);
  if (socket.is != Is::connected) return answer(socket, call, -ENOTCONN);
  if (is_ipv6_only(socket) || !socket.remote.address.is_v4()) return answer(socket, call, -EADDRNOTAVAIL);
  Fd options = copy_of_options(options_of(socket), AF_INET);
  if (!options) return answer(socket, call, -ENFILE);
  socket.kernels = std::make_shared<Fd>(std::move(options));
  socket.shares_options = false;
  socket.family = AF_INET;
  answer(socket, call, 0);
}

// A listener's connections get its settings when they are accepted.
void Calls::tell_settings(Supervised& socket) {
  if (socket.handle && socket.is != Is::listening && relay_.open() != nullptr)
    relay_.area().set_flow_settings(*socket.handle, flow_settings_of(options_of(socket), socket.congestion));
}

// For a connection that is to begin, or for those of a listener.
channel::FlowSettings Calls::settings_of(Supervised& socket) {
  const int options = options_of(socket);
  if (std::exchange(socket.chose_congestion, false))
    socket.congestion = sockets::congestion_choice(congestion_of(options), relay_.area(), socket.chose_by).congestion;
  return flow_settings_of(options, socket.congestion);
}

void Calls::choose_congestion(const Call& call, Supervised& socket, std::string_view name, AgentWords::Rights rights) {
  const auto choice = sockets::congestion_choice(name, relay_.area(), rights);
  if (choice.error != 0) return answer(socket, call, -choice.error);
  socket.chose_congestion = false;
  socket.congestion = choice.congestion;
  tell_settings(socket);
  answer(socket, call, 0);
}

void Calls::set_option(const Call& call, const Caller& caller, Supervised& socket) {
  const Option option{call.integer(1), call.integer(2)};
  const bool is_form = option == address_form && socket.family == AF_INET6;
  if (!is_form && !is_settable(option, socket.family)) return answer(socket, call, -ENOPROTOOPT);
  const bool decided = socket.is != Is::undecided || socket.bound;
  if (option == Option{IPPROTO_IPV6, IPV6_V6ONLY} && decided) return answer(socket, call, -EINVAL);
  std::array<std::byte, option_bytes_max> value;
  const auto length = static_cast<socklen_t>(call.arguments[4]);
  if (static_cast<int>(length) < 0) return answer(socket, call, -EINVAL);
  const MutableBytes bytes = MutableBytes(value).first(std::min<std::size_t>(length, value.size()));
  if (!caller.read(call.arguments[3], bytes)) return answer(socket, call, -EFAULT);
  if (is_form) return become_ipv4(call, socket, bytes);
  if (option == congestion_control) {
    if (bytes.empty()) return answer(socket, call, -EINVAL);
    const std::string_view name(reinterpret_cast<const char*>(bytes.data()),
                                std::min(bytes.size(), sizeof(sockets::CongestionName) - 1));
    const bool may_any = caller.has_right(CAP_NET_ADMIN);
    const auto rights = may_any ? AgentWords::Rights::of_program : AgentWords::Rights::of_everybody;
    if (socket.handle && relay_.open() != nullptr) return choose_congestion(call, socket, name, rights);
    if (const int error = may_any ? 0 : congestion_error(options_of(socket), name)) return answer(socket, call, -error);
    socket.chose_by = rights;
  }
  const int options = options_of(socket);
  if (needs_rights(option, options, bytes) && !caller.has_right(CAP_NET_ADMIN)) return answer(socket, call, -EPERM);
  if (options < 0 ||
      ::setsockopt(options, option.level, option.name, bytes.data(), static_cast<socklen_t>(bytes.size())) != 0)
    return answer(socket, call, -errno);
  if (option == congestion_control) socket.chose_congestion = true;
  tell_settings(socket);
  if (concerns_pair(option)) {
    calls_.let_continue(call);
    return;
  }
  answer(socket, call, 0);
}

}  // namespace offpath::supervise
