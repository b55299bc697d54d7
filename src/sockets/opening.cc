// How sockets begin: bind, listen, accept, connect. A socket is the kernel's until listen or connect decides whether it
// is offloaded.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "sockets/calls.h"
#include "sockets/epoll_sets.h"
#include "sockets/kernel.h"
#include "sockets/left_to_kernel.h"

namespace offpath::sockets {

namespace {

template <class Value>
Value option_of(int fd, int level, int name) {
  Value value{};
  socklen_t length = sizeof value;
  kernel::getsockopt(fd, level, name, static_cast<void*>(&value), &length);
  return value;
}

// AF_INET or AF_INET6, if it is a socket of TCP that an agent may serve.
[[nodiscard]] std::optional<int> family_of(int fd) {
  if (program().policy().agent.empty()) return std::nullopt;
  const int family = option_of<int>(fd, SOL_SOCKET, SO_DOMAIN);
  const bool is_ip = family == AF_INET || family == AF_INET6;
  return is_ip && option_of<int>(fd, SOL_SOCKET, SO_TYPE) == SOCK_STREAM ? std::optional(family) : std::nullopt;
}

// The address that a call names for such a socket. nullopt: the kernel does the call, and has the errors.
[[nodiscard]] std::optional<SocketArea::Endpoint> address_for(int fd, const sockaddr* address, socklen_t length) {
  const auto family = family_of(fd);
  const auto given = family ? read_address(*family, address, length) : std::nullopt;
  const bool is_mapped = given && *family == AF_INET6 && given->address.is_v4();
  return is_mapped && option_of<int>(fd, IPPROTO_IPV6, IPV6_V6ONLY) != 0 ? std::nullopt : given;
}

// The address of such a socket of the kernel. nullopt: it is another one.
[[nodiscard]] std::optional<SocketArea::Endpoint> name_of(int fd) {
  const auto family = family_of(fd);
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  if (!family || kernel::getsockname(fd, reinterpret_cast<sockaddr*>(&name), &length) != 0) return std::nullopt;
  return read_address(*family, reinterpret_cast<const sockaddr*>(&name), length);
}

// Options that were set before, on the kernel's socket or on the offloaded one that is replaced.
Settings settings_of(int fd, const SocketArea& area) {
  if (const Use before = descriptors().find(fd)) return *before;
  Settings socket;
  socket.family = option_of<int>(fd, SOL_SOCKET, SO_DOMAIN);
  if (socket.family == AF_INET6) socket.ipv6_only = option_of<int>(fd, IPPROTO_IPV6, IPV6_V6ONLY);
  socket.hints = hints_of(fd, socket.family);
  if (descriptors().chose_congestion(fd)) {
    const auto name = option_of<CongestionName>(fd, IPPROTO_TCP, TCP_CONGESTION);
    socket.congestion = congestion_choice({name.data(), name.size()}, area).congestion;
  }
  socket.no_delay = option_of<int>(fd, IPPROTO_TCP, TCP_NODELAY);
  socket.cork = option_of<int>(fd, IPPROTO_TCP, TCP_CORK);
  socket.keepalive_idle_s = std::min(option_of<int>(fd, IPPROTO_TCP, TCP_KEEPIDLE), keepalive_s_max);
  socket.keepalive_interval_s = std::min(option_of<int>(fd, IPPROTO_TCP, TCP_KEEPINTVL), keepalive_s_max);
  socket.keepalive_probes = option_of<int>(fd, IPPROTO_TCP, TCP_KEEPCNT);
  socket.user_timeout_ms = option_of<int>(fd, IPPROTO_TCP, TCP_USER_TIMEOUT);
  socket.keepalive = option_of<int>(fd, SOL_SOCKET, SO_KEEPALIVE);
  socket.reuse_address = option_of<int>(fd, SOL_SOCKET, SO_REUSEADDR);
  socket.reuse_port = option_of<int>(fd, SOL_SOCKET, SO_REUSEPORT);
  socket.lingers = option_of<linger>(fd, SOL_SOCKET, SO_LINGER);
  socket.receive_low_water = option_of<int>(fd, SOL_SOCKET, SO_RCVLOWAT);
  socket.receive_timeout = option_of<timeval>(fd, SOL_SOCKET, SO_RCVTIMEO);
  socket.send_timeout = option_of<timeval>(fd, SOL_SOCKET, SO_SNDTIMEO);
  return socket;
}

void take(Socket& socket, const Settings& settings) {
  static_cast<Settings&>(socket) = settings;
  socket.set_receive_low_water(settings.receive_low_water);
}

[[nodiscard]] int flags_of(int fd) {
  return ((kernel::fcntl(fd, F_GETFL) & O_NONBLOCK) != 0 ? SOCK_NONBLOCK : 0) |
         ((kernel::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0 ? SOCK_CLOEXEC : 0);
}

// Whether a socket that the policy names is left to the kernel because there is no agent. Never for a socket bound to
// the agent's address, or one that the agent served before.
[[nodiscard]] bool falls_back(int fd) {
  if (!program().policy().falls_back || descriptors().bound(fd) || descriptors().find(fd)) return false;
  count_left(Left::no_agent);
  return true;
}

// The descriptor names `socket` from now on. If it named another offloaded socket, all descriptors of that one follow,
// and its watches watch `socket`.
void put(int fd, Use socket) {
  if (const Use before = descriptors().find(fd)) {
    epoll_sets().move(*before, *socket);
    for (const int copy : descriptors().of(*before)) {
      if (copy == fd || kernel::dup3(fd, copy, (kernel::fcntl(copy, F_GETFD) & FD_CLOEXEC) != 0 ? O_CLOEXEC : 0) < 0)
        continue;
      descriptors().put(copy, Use::of(*socket));
    }
  }
  program().show(*socket);
  descriptors().put(fd, std::move(socket));
  count_offloaded();
}

// The flags of a port at this address: the families that the agent has of it, and the options that decide which sockets
// share it.
std::uint16_t port_flags_of(int fd, const wire::IpAddress& address, const SocketArea& area) {
  Settings settings;
  if (const Use socket = descriptors().find(fd)) {
    settings = *socket;
  } else {
    settings.reuse_address = option_of<int>(fd, SOL_SOCKET, SO_REUSEADDR);
    settings.reuse_port = option_of<int>(fd, SOL_SOCKET, SO_REUSEPORT);
    if (!address.is_v4()) settings.ipv6_only = option_of<int>(fd, IPPROTO_IPV6, IPV6_V6ONLY);
  }
  return static_cast<std::uint16_t>((families_of(address, settings.ipv6_only != 0) & area.agent().families()) |
                                    (settings.reuse_address != 0 ? wire::tcp_reuse_address : 0) |
                                    (settings.reuse_port != 0 ? wire::tcp_reuse_port : 0));
}

// The socket has the agent's address. As in the kernel, one of IPv6 alone is IPv6 only.
void note_own(int fd, const SocketArea::Endpoint& at) {
  const int only = 1;
  if (!at.address.is_v4())
    kernel::setsockopt(fd, int{IPPROTO_IPV6}, int{IPV6_V6ONLY}, static_cast<const void*>(&only),
                       static_cast<socklen_t>(sizeof only));
  descriptors().note_bound(fd, at);
}

// Asks the agent for the port, so that a conflict shows at bind. Without an agent listen and connect fail.
int bind_at_agent(int fd, SocketArea::Endpoint at, const sockaddr* address, socklen_t length) {
  const bool own = !at.address.is_unspecified();
  if (descriptors().port_of(fd)) return failed(EINVAL);
  SocketArea* const area = program().open();
  const std::uint16_t flags = area != nullptr ? port_flags_of(fd, at.address, *area) : std::uint16_t{0};
  const bool is_served = (flags & wire::tcp_families) != 0;
  if (area != nullptr && !is_served && own) return failed(EADDRNOTAVAIL);
  Use port;
  if (is_served) {
    const auto handle = area->bind(at.port, flags);
    if (!handle) return failed(errno_of(handle.error()));
    port = program().make(*handle, true);
    const auto look = program().decided(*handle);
    if (look.closed) return failed(errno_of(look.error));
    at.port = look.local.port;
    port->bound = at;
  }
  if (own)
    note_own(fd, at);
  else if (kernel::bind(fd, address, length) != 0)
    return -1;
  if (port) descriptors().keep_port(fd, std::move(port));
  return 0;
}

int offload_listener(int fd, SocketArea::Endpoint at, int backlog) {
  SocketArea* const area = program().open();
  if (area == nullptr) return falls_back(fd) ? kernel::listen(fd, backlog) : failed(ENETDOWN);
  const std::uint16_t flags = port_flags_of(fd, at.address, *area);
  if ((flags & wire::tcp_families) == 0) {
    if (descriptors().bound(fd)) return failed(EADDRNOTAVAIL);
    count_left(left_without(at.address.family()));
    return kernel::listen(fd, backlog);
  }
  const Use port = descriptors().port_of(fd);
  const Settings settings = settings_of(fd, *area);
  const channel::FlowSettings of_flows = settings.flow_settings();
  const auto handle =
      area->listen(at.port, static_cast<std::uint32_t>(std::clamp(backlog, 1, program().policy().backlog_max())), flags,
                   port ? port->handle : wire::tcp_no_handle, &of_flows);
  if (!handle) return failed(errno_of(handle.error()));
  Use socket = program().make(*handle, true);
  const auto look = program().decided(*handle);
  if (look.closed) return failed(errno_of(look.error));
  take(*socket, settings);
  socket->bound = at;
  if (socket->take_place(fd, flags_of(fd)) < 0) return -1;
  put(fd, std::move(socket));
  return 0;
}

// How a connection attempt ended. After a failure the next connect begins anew.
int outcome(Socket& socket, int otherwise) {
  const int code = take_error(socket, otherwise);
  if (code == 0) return 0;
  socket.unconnected = true;
  return failed(code);
}

int begin_connection(int fd, SocketArea::Endpoint to, const sockaddr* address, socklen_t length) {
  SocketArea* const area = program().open();
  if (area == nullptr) return falls_back(fd) ? kernel::connect(fd, address, length) : failed(ENETDOWN);
  const Use port = descriptors().port_of(fd);
  const auto own = descriptors().bound(fd);
  const Use before = descriptors().find(fd);  // an attempt that failed
  const SocketArea::Endpoint bound = port ? port->bound : before ? before->bound : own.value_or(SocketArea::Endpoint{});
  if ((area->agent().families() & wire::tcp_for(to.address.family())) == 0) {
    if (own || before) return failed(ENETUNREACH);
    count_left(left_without(to.address.family()));
    return kernel::connect(fd, address, length);
  }
  const auto name = port || own || before ? std::nullopt : name_of(fd);
  if (const int code = mismatch_of(name ? name->address : bound.address, to.address)) return failed(code);
  const Settings settings = settings_of(fd, *area);
  const channel::FlowSettings of_flow = settings.flow_settings();
  const auto handle = area->connect(to, bound.port, 0, &of_flow);
  if (!handle) return failed(errno_of(handle.error()));
  Use socket = program().make(*handle, false);
  take(*socket, settings);
  socket->bound = bound;
  const int flags = flags_of(fd);
  if (socket->take_place(fd, flags) < 0) return -1;
  const timeval limit = socket->send_timeout;
  const bool waits = (flags & SOCK_NONBLOCK) == 0;
  put(fd, std::move(socket));
  if (!waits) return failed(EINPROGRESS);
  const Use made = descriptors().find(fd);
  if (!made) return failed(EBADF);
  if (const int code = wait_for(*made, POLLOUT, limit); code != 0) return failed(code == EAGAIN ? EINPROGRESS : code);
  return outcome(*made, 0);
}

int go_on_connecting(Socket& socket) {
  const auto look = program().look(socket.handle);
  if (socket.listener || !look || look->connected) return failed(EISCONN);
  if (look->closed) return outcome(socket, ECONNABORTED);
  if (returns_at_once(socket, 0)) return failed(EALREADY);
  if (const int code = wait_for(socket, POLLOUT, socket.send_timeout); code != 0) return failed(code);
  return outcome(socket, 0);
}

int accept_from(int fd, Socket& listener, sockaddr* address, socklen_t* length, int flags) {
  if (!listener.listener) return failed(EINVAL);
  if (program().left_out()) return failed(EOPNOTSUPP);
  if ((flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) != 0) return failed(EINVAL);
  SocketArea& area = program().area();
  std::optional<Ends> ends;  // made first: without a descriptor for it, the connection stays in the backlog
  for (;;) {
    const auto look = program().look(listener.handle);
    if (program().lost()) return failed(ENETDOWN);
    if (!look || look->closed) return failed(EINVAL);
    if (look->readable) {
      if (address != nullptr && is_bad(length, sizeof *length)) return failed(EFAULT);
      if (!ends && !(ends = Ends::make(flags))) return -1;
      if (const auto flow = area.accept(listener.handle)) {
        listener.hide_readable(fd, area);
        Use socket = program().make(*flow, false);
        static_cast<Settings&>(*socket) = listener;
        socket->hints.forget_listeners();
        area.set_flow_settings(*flow, socket->flow_settings());
        const int made = socket->take(std::move(*ends));
        program().show(*socket);
        program().show_changed();
        const auto known = area.known(*flow);
        const bool told =
            address == nullptr || !known || write_address(known->remote, listener.family, address, length) == 0;
        if (!told) {
          kernel::close(made);
          return -1;
        }
        descriptors().put(made, std::move(socket));
        return made;
      }
    }
    listener.hide_readable(fd, area);
    program().show_changed();
    if (returns_at_once(listener, 0)) return failed(EAGAIN);
    if (const int code = wait_for(listener, POLLIN, listener.receive_timeout); code != 0) return failed(code);
  }
}

}  // namespace

}  // namespace offpath::sockets

using namespace offpath::sockets;

OFP_CALL int socket(int domain, int type, int protocol) noexcept {
  const int made = kernel::socket(domain, type, protocol);
  if (made < 0 || program().policy().agent.empty()) return made;
  constexpr int flags = SOCK_NONBLOCK | SOCK_CLOEXEC;
  if (domain == AF_UNIX)
    count_left(Left::unix_domain);
  else if (domain != AF_INET && domain != AF_INET6)
    count_left(Left::other_families);
  else if ((type & ~flags) != SOCK_STREAM)
    count_left(Left::datagrams);
  return made;
}

// The kernel would refuse the agent's address, which is not this machine's.
OFP_CALL int bind(int fd, const sockaddr* address, socklen_t length) noexcept {
  const auto at = address_for(fd, address, length);
  if (!at) return kernel::bind(fd, address, length);
  if (program().policy().binds_at_agent(*at) && !program().left_out() && !program().vforked())
    return bind_at_agent(fd, *at, address, length);
  if (!program().policy().is_own(at->address)) return kernel::bind(fd, address, length);
  note_own(fd, *at);
  return 0;
}

OFP_CALL int listen(int fd, int backlog) noexcept {
  if (const Use socket = descriptors().find(fd)) {
    if (program().left_out()) return failed(EOPNOTSUPP);
    if (socket->unconnected && socket->bound.port != 0) return offload_listener(fd, socket->bound, backlog);
    return socket->listener ? 0 : failed(EINVAL);
  }
  const auto named = name_of(fd);
  if (!named) return kernel::listen(fd, backlog);
  if (program().left_out()) {
    count_left(Left::forked_child);
    return kernel::listen(fd, backlog);
  }
  const SocketArea::Endpoint at = descriptors().bound(fd).value_or(*named);
  if (const Use port = descriptors().port_of(fd)) return offload_listener(fd, port->bound, backlog);
  if (at.port == 0 || !program().policy().listens(at)) {
    count_left(left_at(at.address));
    return kernel::listen(fd, backlog);
  }
  return offload_listener(fd, at, backlog);
}

OFP_CALL int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  const Use socket = descriptors().find(fd);
  return socket ? accept_from(fd, *socket, address, length, flags) : kernel::accept4(fd, address, length, flags);
}

OFP_CALL int accept(int fd, sockaddr* address, socklen_t* length) { return accept4(fd, address, length, 0); }

OFP_CALL int connect(int fd, const sockaddr* address, socklen_t length) {
  if (const Use socket = descriptors().find(fd)) {
    if (length > sizeof(sockaddr_storage)) return failed(EINVAL);
    if (is_bad(address, length)) return failed(EFAULT);
    if (!socket->unconnected) return go_on_connecting(*socket);
    if (program().left_out()) return failed(EOPNOTSUPP);
    const offpath::Bytes given(reinterpret_cast<const std::byte*>(address), length);
    const Named to = named_by(NamedBy::connect, socket->family, socket->ipv6_only != 0, given);
    if (to.disconnects) return 0;
    if (to.error != 0) return failed(to.error);
    return program().policy().connects(to.at.address) ? begin_connection(fd, to.at, address, length)
                                                      : failed(ENETUNREACH);
  }
  const auto to = address_for(fd, address, length);
  if (!to) return kernel::connect(fd, address, length);
  const bool named = program().policy().connects(to->address);
  if (named && !program().left_out()) return begin_connection(fd, *to, address, length);
  count_left(named ? Left::forked_child : left_at(to->address));
  return kernel::connect(fd, address, length);
}
