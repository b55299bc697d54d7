#include "supervise/calls.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "sockets/kernel_terms.h"
#include "sockets/left_to_kernel.h"
#include "supervise/options.h"

namespace offpath::supervise {

namespace {

using Is = Supervised::Is;
using sockets::count_left;
using sockets::Left;

constexpr int type_flags = SOCK_NONBLOCK | SOCK_CLOEXEC;
constexpr std::uint16_t low_ports = 1024;
constexpr socklen_t address_max = sizeof(sockaddr_storage);

// A signal has interrupted the call before its answer came, and the thread repeats it.
bool waits_already(const Supervised& socket, const Call& call) {
  return std::ranges::any_of(socket.waiting, [&](const Waiting& each) {
    return each.call.thread == call.thread && each.call.number == call.number;
  });
}

bool repeats(const Call& call, const Call& before) {
  return call.thread == before.thread && call.number == before.number && call.arguments == before.arguments;
}

// Errors of a thread that could not be looked at, perhaps because its call had ended. Nothing was done for it.
bool is_callers_error(std::int64_t value) {
  return value == -EFAULT || value == -EBADF || value == -EACCES || value == -EPERM;
}

// After Caller::of().
bool lacks_descriptors() { return errno == EMFILE || errno == ENFILE; }

std::optional<Bytes> read_address(const Call& call, const Caller& caller, std::array<std::byte, address_max>& to) {
  const auto length = static_cast<socklen_t>(call.arguments[2]);
  if (length > to.size()) return std::nullopt;
  const MutableBytes bytes = MutableBytes(to).first(length);
  return caller.read(call.arguments[1], bytes) ? std::optional<Bytes>(bytes) : std::nullopt;
}

bool is_asked_again(const Call& call, const Caller& caller, const Supervised& socket) {
  if (call.number == SYS_connect && socket.is != Is::connected) return false;
  std::array<std::byte, address_max> room;
  const auto address = read_address(call, caller, room);
  return address && std::ranges::equal(*address, socket.asked);
}

}  // namespace

Calls::Calls(const sockets::Policy& policy, std::string name, Notifications calls)
    : policy_(policy),
      calls_(std::move(calls)),
      relay_(policy, std::move(name), [this](Supervised& socket) { changed(socket); }) {
  struct stat status{};
  network_ = ::stat("/proc/self/ns/net", &status) == 0 ? status.st_ino : 0;
}

void Calls::take() {
  if (const auto call = calls_.next()) handle(*call);
}

void Calls::handle(const Call& call) {
  const auto caller = Caller::of(call, calls_);
  if (!caller) {
    // In the kernel the call would not follow the policy.
    if (lacks_descriptors())
      calls_.answer(call, -ENFILE);
    else
      calls_.let_continue(call);
    return;
  }
  if (call.number == SYS_socket) return make_socket(call, *caller);
  if (call.number == SYS_io_uring_setup) {
    ++rings_;
    calls_.let_continue(call);
    return;
  }
  Supervised* const socket = relay_.find(caller->socket_at(call.integer(0)));
  if (socket == nullptr) {
    calls_.let_continue(call);
    return;
  }
  if (const auto kept = std::exchange(socket->undelivered, std::nullopt);
      kept && repeats(call, kept->call) && (!kept->perhaps || is_asked_again(call, *caller, *socket))) {
    answer(*socket, call, kept->value);
    if (kept->perhaps && socket->undelivered && socket->undelivered->perhaps) socket->undelivered.reset();  // once
    return;
  }
  switch (call.number) {
    case SYS_bind:
      return bind(call, *caller, *socket);
    case SYS_listen:
      return listen(call, *caller, *socket);
    case SYS_accept:
    case SYS_accept4:
      return accept(call, *caller, *socket);
    case SYS_connect:
      return connect(call, *caller, *socket);
    case SYS_shutdown:
      return shutdown(call, *socket);
    case SYS_getsockname:
    case SYS_getpeername:
      return get_name(call, *caller, *socket, call.number == SYS_getpeername);
    case SYS_getsockopt:
      return get_option(call, *caller, *socket);
    case SYS_setsockopt:
      return set_option(call, *caller, *socket);
    default:
      calls_.let_continue(call);
  }
}

// ---- how calls end

void Calls::answer(Supervised& socket, const Call& call, std::int64_t value) {
  const bool sent = calls_.answer(call, value);
  const bool keeps = sent ? value == 0 && (call.number == SYS_bind || call.number == SYS_connect)
                          : call.number != SYS_accept && call.number != SYS_accept4 && !is_callers_error(value);
  if (keeps) socket.undelivered = {call, value, sent};
}

void Calls::answer_all(Supervised& socket, std::int64_t value) {
  limited_.erase(socket.inode);
  for (const Waiting& each : std::exchange(socket.waiting, {})) answer(socket, each.call, value);
}

// A thread that repeats an interrupted call takes its former place.
void Calls::wait(Supervised& socket, const Call& call, TimeNs until) {
  std::erase_if(socket.waiting, [&](const Waiting& each) { return each.call.thread == call.thread; });
  socket.waiting.push_back({call, until});
  if (until != never) limited_.insert(socket.inode);
}

TimeNs Calls::next_due() const noexcept {
  TimeNs due = never;
  for (const ino_t inode : limited_)
    if (const auto* const socket = const_cast<Relay&>(relay_).find(inode))
      for (const Waiting& each : socket->waiting) due = std::min(due, each.until);
  return due;
}

void Calls::expire(TimeNs now) {
  if (next_due() > now) return;
  for (const ino_t inode : std::exchange(limited_, {})) {
    Supervised* const socket = relay_.find(inode);
    if (socket == nullptr) continue;
    for (const Waiting& each : std::exchange(socket->waiting, {}))
      if (each.until <= now)
        answer(*socket, each.call, each.call.number == SYS_connect ? -EINPROGRESS : -EAGAIN);
      else
        wait(*socket, each.call, each.until);
  }
}

bool Calls::replace(const Call& call, Supervised& socket, int fd, bool close_on_exec) {
  if (calls_.replace(call, fd, call.integer(0), close_on_exec)) return true;
  if (errno != ENOENT && errno != ESRCH) answer(socket, call, -errno);
  return false;
}

void Calls::leave_to_kernel(const Call& call, const Caller& caller, Supervised& socket) {
  const int options = options_of(socket);
  const auto flags = caller.flags_of(call.integer(0));
  if (options < 0 || !flags) return answer(socket, call, options < 0 ? -errno : -EBADF);
  if (flags->non_blocking) ::fcntl(options, F_SETFL, ::fcntl(options, F_GETFL) | O_NONBLOCK);
  if (!replace(call, socket, options, flags->close_on_exec)) return;
  relay_.forget(socket);
  calls_.let_continue(call);
}

// Never a socket bound to the agent's address.
bool Calls::falls_back(const Supervised& socket) const noexcept {
  if (!policy_.falls_back || socket.bound || socket.port || socket.is != Is::undecided) return false;
  count_left(Left::no_agent);
  return true;
}

// ---- sockets and their ports

void Calls::make_socket(const Call& call, const Caller& caller) {
  const int family = call.integer(0), type = call.integer(1), protocol = call.integer(2);
  std::optional<Left> left;
  if (family == AF_UNIX)
    left = Left::unix_domain;
  else if (family != AF_INET && family != AF_INET6)
    left = Left::other_families;
  else if ((type & ~type_flags) != SOCK_STREAM)
    left = Left::datagrams;
  else if (caller.network() != network_)
    left = Left::other_network;
  if (left) count_left(*left);
  // Multipath TCP is TCP to a peer that has none; the kernel has it where the socket is left to it.
  const bool is_tcp = protocol == 0 || protocol == IPPROTO_TCP || protocol == IPPROTO_MPTCP;
  if (left || !is_tcp) {
    calls_.let_continue(call);
    return;
  }
  Fd kernels(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, protocol));
  if (!kernels) {
    calls_.answer(call, -errno);
    return;
  }
  if (!relay_.has_room()) {
    calls_.answer(call, -EMFILE);
    return;
  }
  auto made = StreamPair::make((type & SOCK_NONBLOCK) != 0);
  if (!made) {
    calls_.answer(call, -ENFILE);
    return;
  }
  const Fd programs = std::move(made->programs);
  Supervised& socket = relay_.add(std::move(*made), family);
  socket.kernels = std::make_shared<Fd>(std::move(kernels));
  const int number = calls_.answer_descriptor(call, programs.get(), (type & SOCK_CLOEXEC) != 0);
  if (number >= 0) return;
  relay_.forget(socket);
  if (number != -ENOENT) calls_.answer(call, number);
}

bool Calls::is_ipv6_only(Supervised& socket) {
  return socket.family == AF_INET6 && number_of(options_of(socket), {IPPROTO_IPV6, IPV6_V6ONLY}) != 0;
}

// As in the kernel, a socket with an address of IPv6 alone is IPv6 only.
void Calls::set_own(Supervised& socket, const SocketArea::Endpoint& at) {
  const int only = 1;
  if (!at.address.is_v4()) ::setsockopt(options_of(socket), IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
  socket.bound = at;
}

// The families that the agent has of those of the address, and who shares the port.
std::uint16_t Calls::port_flags_of(Supervised& socket, const wire::IpAddress& address) {
  const std::uint16_t families = sockets::families_of(address, is_ipv6_only(socket)) & relay_.area().agent().families();
  return static_cast<std::uint16_t>(families | reuse_flags_of(options_of(socket)));
}

// The address that the program has asked for or that the kernel has bound.
std::optional<SocketArea::Endpoint> Calls::bound_to(const Supervised& socket) const {
  if (socket.bound) return socket.bound;
  sockaddr_storage name{};
  socklen_t length = sizeof name;
  if (!socket.kernels || ::getsockname(socket.kernels->get(), reinterpret_cast<sockaddr*>(&name), &length) != 0)
    return std::nullopt;
  return sockets::endpoint_of(socket.family, Bytes(reinterpret_cast<const std::byte*>(&name), length));
}

void Calls::bind(const Call& call, const Caller& caller, Supervised& socket) {
  if (waits_already(socket, call)) return wait(socket, call, never);
  if (socket.is != Is::undecided) return answer(socket, call, -EINVAL);
  std::array<std::byte, address_max> room;
  const auto address = read_address(call, caller, room);
  if (!address) return answer(socket, call, call.arguments[2] > address_max ? -EINVAL : -EFAULT);
  socket.asked.assign(address->begin(), address->end());
  const auto named = sockets::named_by(sockets::NamedBy::bind, socket.family, is_ipv6_only(socket), *address);
  if (named.error != 0) return answer(socket, call, -named.error);
  if (socket.bound || socket.port) return answer(socket, call, -EINVAL);
  const auto* const at = &named.at;
  const bool is_own = policy_.is_own(at->address);
  const bool at_agent = policy_.binds_at_agent(*at);
  // The agent sees the rights of the supervisor.
  if ((is_own || at_agent) && at->port != 0 && at->port < low_ports && !caller.has_right(CAP_NET_BIND_SERVICE))
    return answer(socket, call, -EACCES);
  if (at_agent) return bind_at_agent(call, caller, socket, *at);
  if (is_own) {
    set_own(socket, *at);
    return answer(socket, call, 0);
  }
  // A listener there is the kernel's. Without a port, it may be a connection's own address.
  if (at->port != 0 || sockets::reach_of(at->address) == sockets::Reach::machine) {
    count_left(sockets::left_at(at->address));
    return leave_to_kernel(call, caller, socket);
  }
  const int options = options_of(socket);
  const int done =
      ::bind(options, reinterpret_cast<const sockaddr*>(address->data()), static_cast<socklen_t>(address->size()));
  answer(socket, call, done == 0 ? 0 : -errno);
}

// Asks the agent for the port, so that a conflict shows at bind. Without an agent listen and connect fail.
void Calls::bind_at_agent(const Call& call, const Caller& caller, Supervised& socket, SocketArea::Endpoint at) {
  socket.bound = at;
  SocketArea* const area = relay_.open();
  if (area == nullptr) {
    if (at.address.is_unspecified()) {  // a fallback finds the kernel's socket bound
      socket.bound.reset();
      const auto name = sockets::kernel_address(at, socket.family);
      if (::bind(options_of(socket), reinterpret_cast<const sockaddr*>(&name.storage), name.length) != 0)
        return answer(socket, call, -errno);
    }
    return answer(socket, call, 0);
  }
  const std::uint16_t flags = port_flags_of(socket, at.address);
  if ((flags & wire::tcp_families) == 0) {
    socket.bound.reset();
    if (!at.address.is_unspecified()) return answer(socket, call, -EADDRNOTAVAIL);
    count_left(sockets::left_without(at.address.family()));
    return leave_to_kernel(call, caller, socket);
  }
  const auto handle = area->bind(at.port, flags);
  if (!handle) {
    socket.bound.reset();
    return answer(socket, call, -sockets::errno_of(handle.error()));
  }
  relay_.set_port(socket, *handle);
  wait(socket, call, never);
}

void Calls::decide_port(Supervised& socket) {
  const auto look = relay_.open() != nullptr ? relay_.area().known(*socket.port) : fail(Error::peer_lost, "no agent");
  if (look && !look->closed && !look->connected) return;
  int code = look ? sockets::errno_of(look->error) : ENETDOWN;
  if (code == 0 && look->closed) code = EADDRINUSE;
  if (code == 0) {
    socket.bound->port = look->local.port;
    if (!socket.bound->address.is_unspecified()) set_own(socket, *socket.bound);
    // Every address: the kernel keeps the port as well, as for any bind.
    const auto name = sockets::kernel_address(*socket.bound, socket.family);
    if (socket.bound->address.is_unspecified() &&
        ::bind(options_of(socket), reinterpret_cast<const sockaddr*>(&name.storage), name.length) != 0)
      code = errno;
  }
  if (code != 0) {
    relay_.release_port(socket);
    socket.bound.reset();
  }
  answer_all(socket, -code);
}

// ---- listeners

void Calls::listen(const Call& call, const Caller& caller, Supervised& socket) {
  if (waits_already(socket, call)) return wait(socket, call, never);
  if (socket.is == Is::listening && !socket.stopped) return answer(socket, call, 0);
  if (socket.is != Is::undecided && !socket.stopped) return answer(socket, call, -EINVAL);
  const auto at = bound_to(socket);
  if (!at) return leave_to_kernel(call, caller, socket);
  if (!socket.port && !socket.stopped && (at->port == 0 || !policy_.listens(*at))) {
    if (socket.bound && !socket.bound->address.is_unspecified()) return answer(socket, call, -EADDRNOTAVAIL);
    count_left(sockets::left_at(at->address));
    return leave_to_kernel(call, caller, socket);
  }
  offload_listener(call, caller, socket, *at);
}

void Calls::offload_listener(const Call& call, const Caller& caller, Supervised& socket, SocketArea::Endpoint at) {
  SocketArea* const area = relay_.open();
  if (area == nullptr)
    return falls_back(socket) ? leave_to_kernel(call, caller, socket) : answer(socket, call, -ENETDOWN);
  const auto backlog = static_cast<std::uint32_t>(std::clamp(call.integer(1), 1, policy_.backlog_max()));
  const std::uint16_t flags = port_flags_of(socket, at.address);
  if ((flags & wire::tcp_families) == 0) {
    count_left(sockets::left_without(at.address.family()));
    return leave_to_kernel(call, caller, socket);
  }
  const channel::FlowSettings settings = settings_of(socket);
  const auto handle = area->listen(at.port, backlog, flags, socket.port.value_or(wire::tcp_no_handle), &settings);
  if (!handle) return answer(socket, call, -sockets::errno_of(handle.error()));
  relay_.set_handle(socket, *handle);
  socket.bound = at;
  socket.is = Is::beginning;
  wait(socket, call, never);
}

void Calls::decide_listener(Supervised& socket) {
  const auto look = relay_.open() != nullptr ? relay_.area().known(*socket.handle) : fail(Error::peer_lost, "no agent");
  if (look && !look->closed && !look->connected) return;
  if (!look || look->closed) {
    const int code = look ? sockets::errno_of(look->error) : ENETDOWN;
    relay_.release(socket);
    socket.is = Is::undecided;
    return answer_all(socket, code != 0 ? -code : -EADDRINUSE);
  }
  relay_.release_port(socket);
  give_back_options(socket);
  socket.stopped = false;
  socket.is = Is::listening;
  sockets::count_offloaded();
  answer_all(socket, 0);
  serve(socket);
}

// The kernel's socket gives up its port, which it cannot do while it is open.
void Calls::give_back_options(Supervised& socket) {
  Fd fresh = copy_of_options(options_of(socket), socket.family);
  if (fresh) socket.kernels = std::make_shared<Fd>(std::move(fresh));
}

void Calls::accept(const Call& call, const Caller& caller, Supervised& socket) {
  const int flags = call.number == SYS_accept4 ? call.integer(3) : 0;
  if (socket.is != Is::listening || socket.stopped || (flags & ~type_flags) != 0) return answer(socket, call, -EINVAL);
  if (relay_.open() == nullptr) return answer(socket, call, -ENETDOWN);
  const Served served = give_connection(call, socket);
  if (socket.pair.shows_readable()) {
    // look() would take in the event of a connection that has come since, and the listener would show no new edge.
    const auto look = relay_.area().known(*socket.handle);
    if (socket.accepted.empty() && look && !look->readable)
      socket.pair.hide_readable(caller.copy_of(call.integer(0), socket.inode).get());
  }
  if (served != Served::none_waits) return;
  const auto now = caller.flags_of(call.integer(0));
  if (!now || now->non_blocking) return answer(socket, call, -EAGAIN);
  wait(socket, call, limit_of(options_of(socket), SO_RCVTIMEO));
}

// Ends the call with the oldest connection. no_room: ended with an error, and the connection stays.
Calls::Served Calls::give_connection(const Call& call, Supervised& listener) {
  if (listener.accepted.empty()) {
    const auto flow = relay_.area().accept(*listener.handle);
    if (!flow) return Served::none_waits;
    listener.accepted.push_back(*flow);
  }
  const SocketArea::Handle flow = listener.accepted.front();
  const int flags = call.number == SYS_accept4 ? call.integer(3) : 0;
  const auto caller = Caller::of(call, calls_);
  if (!caller) {
    if (!lacks_descriptors()) return Served::yes;  // interrupted
    answer(listener, call, -ENFILE);
    return Served::no_room;
  }
  auto made = StreamPair::make((flags & SOCK_NONBLOCK) != 0);
  if (!made) {
    answer(listener, call, -ENFILE);
    return Served::no_room;
  }
  const auto look = relay_.area().known(flow);
  const SocketArea::Endpoint remote = look ? look->remote : SocketArea::Endpoint{};
  if (call.arguments[1] != 0) {
    const auto name = sockets::kernel_address(remote, listener.family);
    const Bytes bytes(reinterpret_cast<const std::byte*>(&name.storage), name.length);
    socklen_t room = 0;
    if (!caller->read(call.arguments[2], std::as_writable_bytes(std::span(&room, 1))) ||
        !caller->write(call.arguments[1], bytes.first(std::min(room, name.length))) ||
        !caller->write(call.arguments[2], std::as_bytes(std::span(&name.length, 1)))) {
      answer(listener, call, -EFAULT);
      return Served::no_room;
    }
  }
  const Fd programs = std::move(made->programs);
  Supervised& socket = relay_.add(std::move(*made), listener.family);
  socket.kernels = listener.kernels;
  socket.shares_options = true;
  socket.congestion = listener.congestion;
  const int number = calls_.answer_descriptor(call, programs.get(), (flags & SOCK_CLOEXEC) != 0);
  if (number < 0) {
    relay_.forget(socket);
    if (number == -ENOENT) return Served::yes;
    answer(listener, call, number);
    return Served::no_room;
  }
  listener.accepted.pop_front();
  relay_.set_handle(socket, flow);
  relay_.area().set_flow_settings(flow, flow_settings_of(options_of(listener), listener.congestion));
  sockets::count_offloaded();
  relay_.begin(socket);
  return Served::yes;
}

// Threads that wait in accept come first; then poll shows the remaining connections.
void Calls::serve(Supervised& listener) {
  if (relay_.open() == nullptr || listener.stopped) {
    answer_all(listener, listener.stopped ? -EINVAL : -ENETDOWN);
    return listener.pair.show_readable();
  }
  while (!listener.waiting.empty()) {
    const Waiting first = listener.waiting.front();
    if (give_connection(first.call, listener) == Served::none_waits) break;
    std::erase_if(listener.waiting, [&](const Waiting& each) { return each.call.id == first.call.id; });
  }
  const auto look = relay_.area().known(*listener.handle);
  if (!listener.accepted.empty() || (look && look->readable)) listener.pair.show_readable();
}

// ---- connections

void Calls::connect(const Call& call, const Caller& caller, Supervised& socket) {
  if (socket.is == Is::connected || socket.is == Is::listening || socket.is == Is::beginning)
    return answer(socket, call, -EISCONN);
  if (socket.is == Is::connecting) {
    const auto flags = caller.flags_of(call.integer(0));
    if (!flags || flags->non_blocking) return answer(socket, call, -EALREADY);
    return wait(socket, call, limit_of(options_of(socket), SO_SNDTIMEO));
  }
  if (socket.is == Is::ended) return connect_anew(call, caller, socket);
  std::array<std::byte, address_max> room;
  const auto address = read_address(call, caller, room);
  if (!address) return answer(socket, call, call.arguments[2] > address_max ? -EINVAL : -EFAULT);
  socket.asked.assign(address->begin(), address->end());
  const auto to = sockets::named_by(sockets::NamedBy::connect, socket.family, is_ipv6_only(socket), *address);
  if (to.error != 0 || to.disconnects) return answer(socket, call, -to.error);
  if (policy_.connects(to.at.address)) return begin_connection(call, caller, socket, to.at);
  leave_connection(call, caller, socket, sockets::left_at(to.at.address));
}

void Calls::leave_connection(const Call& call, const Caller& caller, Supervised& socket, Left why) {
  count_left(why);
  if (socket.port) relay_.release_port(socket);
  if (socket.bound && !socket.bound->address.is_unspecified()) return answer(socket, call, -ENETUNREACH);
  leave_to_kernel(call, caller, socket);
}

// After a failure that was reported, with another pair.
void Calls::connect_anew(const Call& call, const Caller& caller, Supervised& socket) {
  if (socket.error != 0) return answer(socket, call, -std::exchange(socket.error, 0));
  const auto flags = caller.flags_of(call.integer(0));
  if (!flags) return answer(socket, call, -EBADF);
  auto made = StreamPair::make(flags->non_blocking);
  if (!made) return answer(socket, call, -ENFILE);
  const Fd programs = std::move(made->programs);
  if (!replace(call, socket, programs.get(), flags->close_on_exec)) return;
  Supervised& fresh = relay_.add(std::move(*made), socket.family);
  fresh.kernels = socket.kernels;
  fresh.shares_options = socket.shares_options;
  fresh.bound = socket.bound;
  relay_.forget(socket);
  connect(call, caller, fresh);
}

void Calls::begin_connection(const Call& call, const Caller& caller, Supervised& socket, SocketArea::Endpoint to) {
  SocketArea* const area = relay_.open();
  if (area == nullptr)
    return falls_back(socket) ? leave_to_kernel(call, caller, socket) : answer(socket, call, -ENETDOWN);
  if ((area->agent().families() & wire::tcp_for(to.address.family())) == 0)
    return leave_connection(call, caller, socket, sockets::left_without(to.address.family()));
  const SocketArea::Endpoint bound = socket.bound.value_or(SocketArea::Endpoint{});
  const auto name = bound_to(socket);
  if (const int code = sockets::mismatch_of(name ? name->address : wire::IpAddress{}, to.address))
    return answer(socket, call, -code);
  const auto flags = caller.flags_of(call.integer(0));
  if (!flags) return answer(socket, call, -EBADF);
  const channel::FlowSettings settings = settings_of(socket);
  const auto handle = area->connect(to, bound.port, 0, &settings);
  if (!handle) return answer(socket, call, -sockets::errno_of(handle.error()));
  relay_.set_handle(socket, *handle);
  give_back_options(socket);
  socket.is = Is::connecting;
  sockets::count_offloaded();
  // Also for a call that waits: a signal or SO_SNDTIMEO may end it, and the program polls then.
  socket.pair.fill(caller.copy_of(call.integer(0), socket.inode).get());
  if (!flags->non_blocking) return wait(socket, call, limit_of(options_of(socket), SO_SNDTIMEO));
  answer(socket, call, -EINPROGRESS);
}

void Calls::decide_connection(Supervised& socket) {
  const auto look = relay_.open() != nullptr ? relay_.area().known(*socket.handle) : fail(Error::peer_lost, "no agent");
  if (look && !look->closed && !look->connected) return;
  if (look && !look->closed) {
    relay_.begin(socket);
    relay_.release_port(socket);
    return answer_all(socket, 0);
  }
  int code = look ? sockets::errno_of(look->error) : ECONNRESET;
  if (code == 0) code = ECONNABORTED;
  std::erase_if(socket.waiting, [&](const Waiting& each) { return !calls_.is_open(each.call); });
  if (socket.waiting.empty()) return relay_.end(socket, code);
  // Nobody has seen the attempt but those that wait: the socket may connect again.
  relay_.release(socket);
  socket.pair.drain();
  socket.is = Is::undecided;
  answer_all(socket, -code);
}

void Calls::changed(Supervised& socket) {
  if (socket.program_gone && socket.is != Is::connected) return answer_all(socket, -EBADF);
  switch (socket.is) {
    case Is::undecided:
      if (socket.port && !socket.waiting.empty()) decide_port(socket);
      return;
    case Is::beginning:
      return decide_listener(socket);
    case Is::listening:
      return serve(socket);
    case Is::connecting:
      return decide_connection(socket);
    case Is::connected:
    case Is::ended:
      return;
  }
}

void Calls::shutdown(const Call& call, Supervised& socket) {
  const int how = call.integer(1);
  if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR) return answer(socket, call, -EINVAL);
  if (socket.is == Is::connected) {  // the relay sees the effects on the pair
    calls_.let_continue(call);
    return;
  }
  if (socket.is == Is::listening && how == SHUT_WR) return answer(socket, call, 0);
  if (socket.is == Is::listening && !socket.stopped) {
    if (relay_.open() != nullptr) static_cast<void>(relay_.area().stop(*socket.handle));
    socket.stopped = true;
    relay_.release(socket);
    answer_all(socket, -EINVAL);
    socket.pair.show_readable();
    return answer(socket, call, 0);
  }
  if (socket.is != Is::connecting) return answer(socket, call, -ENOTCONN);
  answer_all(socket, -ECONNRESET);
  relay_.end(socket, ECONNRESET);
  answer(socket, call, 0);
}

}  // namespace offpath::supervise
