#include "link/address.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "link/control/control_socket.h"
#include "link/doca/doca_link.h"
#include "link/verbs/verbs_link.h"

namespace offpath::link {

namespace {

constexpr int backlog = 128;
constexpr std::string_view root_address = "unix:/run/offpath/agent.sock";

struct Scheme {
  std::string_view name;
  Address::Kind kind;
};
constexpr Scheme network_schemes[] = {{"tcp", Address::Kind::tcp},
                                      {"tls", Address::Kind::tls},
                                      {"verbs", Address::Kind::verbs},
                                      {"doca", Address::Kind::doca}};

Result<sockaddr_un> unix_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  static_assert(unix_path_bytes_max == sizeof address.sun_path - 1);
  if (path.size() > unix_path_bytes_max)
    return fail(Error::invalid, "address unix:{}: the path has {} bytes, a Unix socket's has at most {}", path,
                path.size(), unix_path_bytes_max);
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

struct FreeAddresses {
  void operator()(addrinfo* found) const noexcept { freeaddrinfo(found); }
};
using FoundAddresses = std::unique_ptr<addrinfo, FreeAddresses>;

Result<FoundAddresses> look_up(const Address& address, bool passive) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int code = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &wanted, &found);
  if (code != 0) return fail(Error::not_found, "address {}: {}", address.text(), gai_strerror(code));
  return FoundAddresses(found);
}

tl::unexpected<Failure> nobody_listens(const Address& address) {
  return fail(Error::peer_lost, "no agent listens at {}: start one with `offpath agent`", address.text());
}

tl::unexpected<Failure> dial_failure(const Address& address, int error_number) {
  if (error_number == ECONNREFUSED || error_number == ENOENT) return nobody_listens(address);
  const std::string call = fmt::format("connecting to the agent at {}", address.text());
  if (error_number == EACCES)
    return fail(Error::denied,
                "{}: this user may not use the socket; security.allow_uids of the agent's configuration lists the "
                "users that may",
                call);
  return fail_errno(error_number, call);
}

// Waits until a connect() under way has succeeded or failed; returns its errno.
int finish_connect(int socket, TimeNs deadline) {
  pollfd look{socket, POLLOUT, 0};
  for (;;) {
    if (monotonic_ns() >= deadline) return ETIMEDOUT;
    const int ready = poll_until({&look, 1}, deadline);
    if (ready > 0) break;
    if (ready < 0 && errno != EINTR) return errno;
  }
  int error_number = 0;
  socklen_t length = sizeof error_number;
  if (getsockopt(socket, SOL_SOCKET, SO_ERROR, &error_number, &length) != 0) return errno;
  return error_number;
}

Result<Fd> dial_unix(const Address& address, TimeNs deadline) {
  OFP_ASSIGN(const sockaddr_un to, unix_address(address.path));
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return fail_errno(errno, "socket");
  while (connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return dial_failure(address, errno);
    // The agent's queue of connections is full.
    if (monotonic_ns() >= deadline)
      return fail(Error::timeout, "the agent at {} accepts no connections: it is busy or stopped", address.text());
    const timespec pause{0, 2'000'000};
    nanosleep(&pause, nullptr);
  }
  return socket;
}

Result<Fd> listen_unix(const Address& address, bool everyone) {
  OFP_ASSIGN(const sockaddr_un at, unix_address(address.path));
  const auto* name = reinterpret_cast<const sockaddr*>(&at);
  struct stat status{};
  if (lstat(address.path.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode))
      return fail(Error::exists, "{}: a file that is not a socket exists there", address.text());
    const Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!probe) return fail_errno(errno, "socket");
    if (connect(probe.get(), name, sizeof at) == 0 || errno == EAGAIN)
      return fail(Error::exists, "{}: another agent listens there already", address.text());
    if (errno == ECONNREFUSED) unlink(address.path.c_str());
  }
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return fail_errno(errno, "socket");
  // Before bind: the file takes its mode from the socket's inode, so it never has a wider one.
  if (fchmod(socket.get(), everyone ? 0666 : 0600) != 0) return fail_errno(errno, "fchmod");
  if (bind(socket.get(), name, sizeof at) != 0)
    return fail_errno(errno, fmt::format("listening at {}", address.text()));
  if (chmod(address.path.c_str(), everyone ? 0666 : 0600) != 0)  // the umask may have cleared bits
    return fail_errno(errno, fmt::format("chmod {}", address.path));
  if (listen(socket.get(), backlog) != 0) return fail_errno(errno, "listen");
  return socket;
}

Result<Fd> listen_network(Address& address) {
  OFP_ASSIGN(const FoundAddresses found, look_up(address, true));
  int error_number = EADDRNOTAVAIL;
  for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
    Fd socket(::socket(at->ai_family, at->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, at->ai_protocol));
    const int on = 1;
    if (!socket || setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(socket.get(), at->ai_addr, at->ai_addrlen) != 0 || listen(socket.get(), backlog) != 0) {
      error_number = errno;
      continue;
    }
    sockaddr_storage bound{};
    socklen_t length = sizeof bound;
    if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0)
      return fail_errno(errno, "getsockname");
    address.port = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                                     : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
    return socket;
  }
  return fail_errno(error_number, fmt::format("listening at {}", address.text()));
}

}  // namespace

Result<Address> Address::parse(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view scheme = text.substr(0, colon);
  const std::string_view rest = colon == std::string_view::npos ? std::string_view{} : text.substr(colon + 1);
  Address address;
  if (scheme == "unix") {
    if (rest.empty() || rest.front() != '/' || rest.find('\0') != std::string_view::npos)
      return fail(Error::invalid, "address '{}': after \"unix:\" comes an absolute path", text);
    address.path = rest;
    OFP_TRY(unix_address(address.path));
    return address;
  }
  const auto* named = std::ranges::find(network_schemes, scheme, &Scheme::name);
  if (named == std::end(network_schemes))
    return fail(Error::invalid, "address '{}': it must be unix:/path or tcp, tls, verbs or doca:HOST:PORT", text);
  address.kind = named->kind;
  const std::size_t last = rest.rfind(':');
  if (last == std::string_view::npos)
    return fail(Error::invalid, "address '{}': the port is missing ({}:HOST:PORT)", text, scheme);
  std::string_view host = rest.substr(0, last);
  const std::string_view port = rest.substr(last + 1);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (host.empty()) return fail(Error::invalid, "address '{}': the host is missing ({}:HOST:PORT)", text, scheme);
  if (host.find_first_of("[]") != std::string_view::npos)
    return fail(Error::invalid, "address '{}': brackets go around an IPv6 address, once ({}:[::1]:PORT)", text, scheme);
  if (!bracketed && host.find(':') != std::string_view::npos)
    return fail(Error::invalid, "address '{}': an IPv6 address needs brackets ({}:[{}]:{})", text, scheme, host, port);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc{} || end != port.data() + port.size())
    return fail(Error::invalid, "address '{}': the port is '{}', it must be a number from 0 to 65535", text, port);
  address.host = host;
  return address;
}

std::string Address::text() const {
  if (kind == Kind::unix_socket) return "unix:" + path;
  const std::string_view scheme = std::ranges::find(network_schemes, kind, &Scheme::kind)->name;
  if (host.find(':') != std::string::npos) return fmt::format("{}:[{}]:{}", scheme, host, port);
  return fmt::format("{}:{}:{}", scheme, host, port);
}

Result<Address> default_address() {
  if (geteuid() == 0) return Address::parse(root_address);
  const char* directory = std::getenv("XDG_RUNTIME_DIR");
  if (directory == nullptr || *directory != '/')
    return fail(Error::invalid, "XDG_RUNTIME_DIR is '{}', which is not a directory",
                directory == nullptr ? "" : directory);
  return Address::parse(fmt::format("unix:{}/offpath/agent.sock", directory));
}

Result<Address> find_default_agent() {
  std::string tried;
  for (Result<Address>& address : std::array{default_address(), Address::parse(root_address)}) {
    if (!address) continue;
    if (access(address->path.c_str(), F_OK) == 0) return std::move(address);
    if (tried != address->text()) tried += (tried.empty() ? "" : " or ") + address->text();
  }
  return fail(
      Error::invalid,
      "no agent given, and none at {}, where agents listen by default: start one with `offpath agent`, pass its "
      "address, or set OFFPATH_AGENT",
      tried);
}

Result<Fd> listen_at(Address& address, bool everyone) {
  if (address.kind == Address::Kind::verbs) OFP_TRY(check_verbs(address));
  if (address.kind == Address::Kind::doca) OFP_TRY(check_doca(address));
  return address.kind == Address::Kind::unix_socket ? listen_unix(address, everyone) : listen_network(address);
}

Result<Fd> accept_from(int listener) {
  for (;;) {
    Fd socket(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) return socket;
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Fd();
    return fail_errno(errno, "accept");
  }
}

Result<Fd> dial(const Address& address, TimeNs deadline) {
  if (address.kind == Address::Kind::unix_socket) return dial_unix(address, deadline);
  OFP_ASSIGN(const FoundAddresses found, look_up(address, false));
  int error_number = ECONNREFUSED;
  for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
    Fd socket(::socket(at->ai_family, at->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, at->ai_protocol));
    if (!socket) {
      error_number = errno;
      continue;
    }
    error_number = connect(socket.get(), at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
    if (error_number == EINPROGRESS || error_number == EINTR) error_number = finish_connect(socket.get(), deadline);
    if (error_number == 0) {
      tune_network_socket(socket.get());
      return socket;
    }
  }
  return dial_failure(address, error_number);
}

namespace {

void set_option(int socket, int level, int option, int value) noexcept {
  (void)setsockopt(socket, level, option, &value, sizeof value);
}

}  // namespace

void tune_network_socket(int socket) noexcept {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  end_when_silent(socket, silence_default_ns);
}

// The kernel checks an idle connection only when it probes, so the connection ends up to one interval after the user
// timeout. With unacknowledged data the timeout counts from the first retransmission. Both are subtracted, so that the
// connection ends in time.
void end_when_silent(int socket, TimeNs silence_ns) noexcept {
  const int silence_s = static_cast<int>(silence_ns / second_ns);
  const int interval_s = std::max(1, silence_s / 4);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, silence_s / 2));
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, interval_s);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, std::max(silence_s * 500, (silence_s - interval_s - 1) * 1000));
}

}  // namespace offpath::link
