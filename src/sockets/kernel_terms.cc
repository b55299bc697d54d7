#include "sockets/kernel_terms.h"

#include <arpa/inet.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace offpath::sockets {

using channel::AgentWords;
using channel::SocketArea;

namespace {
constexpr std::size_t shortest_in6 = 24;  // without sin6_scope_id (RFC 2133)

// The kernel binds a socket of IPv4 to "every address" without a family, too.
std::optional<SocketArea::Endpoint> endpoint_without_family(int family, Bytes address) noexcept {
  sockaddr_in in{};
  if (family != AF_INET || address.size() < sizeof in) return std::nullopt;
  std::memcpy(&in, address.data(), sizeof in);
  if (in.sin_family != AF_UNSPEC || in.sin_addr.s_addr != htonl(INADDR_ANY)) return std::nullopt;
  return SocketArea::Endpoint{wire::ipv4(INADDR_ANY), ntohs(in.sin_port)};
}
}  // namespace

Named named_by(NamedBy call, int family, bool is_ipv6_only, Bytes address) noexcept {
  sa_family_t its_family = AF_UNSPEC;
  if (address.size() < sizeof its_family) return {.error = EINVAL};
  std::memcpy(&its_family, address.data(), sizeof its_family);
  if (call == NamedBy::connect && its_family == AF_UNSPEC) return {.disconnects = true};
  if (address.size() < (family == AF_INET ? sizeof(sockaddr_in) : shortest_in6)) return {.error = EINVAL};
  auto at = endpoint_of(family, address);
  if (!at && call == NamedBy::bind) at = endpoint_without_family(family, address);
  if (!at) return {.error = EAFNOSUPPORT};
  if (is_ipv6_only && at->address.is_v4()) return {.error = call == NamedBy::bind ? EINVAL : ENETUNREACH};
  return {.at = *at};
}

std::optional<SocketArea::Endpoint> endpoint_of(int family, Bytes address) noexcept {
  if (family == AF_INET) {
    sockaddr_in in{};
    if (address.size() < sizeof in) return std::nullopt;
    std::memcpy(&in, address.data(), sizeof in);
    if (in.sin_family != AF_INET) return std::nullopt;
    return SocketArea::Endpoint{wire::ipv4(ntohl(in.sin_addr.s_addr)), ntohs(in.sin_port)};
  }
  sockaddr_in6 in6{};
  if (address.size() < shortest_in6) return std::nullopt;
  std::memcpy(&in6, address.data(), std::min(address.size(), sizeof in6));
  if (in6.sin6_family != AF_INET6) return std::nullopt;
  return SocketArea::Endpoint{std::bit_cast<wire::IpAddress>(in6.sin6_addr), ntohs(in6.sin6_port)};
}

std::uint16_t families_of(const wire::IpAddress& address, bool is_ipv6_only) noexcept {
  if (address.is_v4()) return wire::tcp_for_ipv4;
  return address.is_unspecified() && !is_ipv6_only ? wire::tcp_families : wire::tcp_for_ipv6;
}

int mismatch_of(const wire::IpAddress& bound, const wire::IpAddress& to) noexcept {
  if (bound.is_v4() == to.is_v4() || bound == wire::IpAddress{}) return 0;
  return bound.is_v4() ? EAFNOSUPPORT : ENETUNREACH;
}

int unknown_option(int level, int family) noexcept {
  const bool is_known = level == SOL_SOCKET || level == IPPROTO_TCP || level == IPPROTO_IP;
  return family == AF_INET && !is_known ? EOPNOTSUPP : ENOPROTOOPT;
}

KernelAddress kernel_address(const SocketArea::Endpoint& endpoint, int family) noexcept {
  KernelAddress made;
  if (family == AF_INET) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(endpoint.address.v4());
    in.sin_port = htons(endpoint.port);
    std::memcpy(&made.storage, &in, sizeof in);
    made.length = sizeof in;
    return made;
  }
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  in6.sin6_port = htons(endpoint.port);
  in6.sin6_addr = std::bit_cast<in6_addr>(endpoint.address);
  std::memcpy(&made.storage, &in6, sizeof in6);
  made.length = sizeof in6;
  return made;
}

int errno_of(wire::TcpError error) noexcept {
  switch (error) {
    case wire::TcpError::none:
      return 0;
    case wire::TcpError::refused:
      return ECONNREFUSED;
    case wire::TcpError::reset:
      return ECONNRESET;
    case wire::TcpError::timed_out:
      return ETIMEDOUT;
    case wire::TcpError::unreachable:
      return EHOSTUNREACH;
    case wire::TcpError::address_in_use:
      return EADDRINUSE;
    case wire::TcpError::no_room:
      return ENOBUFS;
    case wire::TcpError::denied:
      return EACCES;
  }
  return EIO;
}

int errno_of(const Failure& why) noexcept {
  switch (why.code) {
    case Error::no_space:
      return EMFILE;  // --sockets
    case Error::would_block:
      return ENOBUFS;
    case Error::unsupported:
      return ENETUNREACH;
    default:
      return EINVAL;
  }
}

CongestionName congestion_name(wire::TcpCongestion chosen, const channel::SocketArea& area) noexcept {
  chosen = tcp_congestion_read(chosen);
  const std::string_view text = name_of(chosen == wire::TcpCongestion::agents ? area.agent().congestion() : chosen);
  CongestionName name{};
  std::ranges::copy(text, name.begin());
  return name;
}

CongestionChoice congestion_choice(std::string_view value, const channel::SocketArea& area,
                                   AgentWords::Rights rights) noexcept {
  const wire::TcpCongestion congestion = wire::tcp_congestion_named(value.substr(0, value.find('\0')));
  if (congestion == wire::TcpCongestion::agents) return {.error = ENOENT};
  if (!area.agent().may_choose(congestion, rights)) return {.error = EPERM};
  return {congestion};
}

tcp_info info_of(Role role, const SocketArea::Look* look) noexcept {
  tcp_info info{};
  info.tcpi_state = role == Role::unconnected         ? TCP_CLOSE
                    : role == Role::listener          ? TCP_LISTEN
                    : look == nullptr || look->closed ? TCP_CLOSE
                    : !look->connected                ? TCP_SYN_SENT
                    : look->finished                  ? TCP_CLOSE_WAIT
                                                      : TCP_ESTABLISHED;
  if (look == nullptr || look->mss == 0) return info;
  info.tcpi_snd_mss = info.tcpi_rcv_mss = info.tcpi_advmss = look->mss;
  info.tcpi_unacked = static_cast<std::uint32_t>((look->unacknowledged + look->mss - 1) / look->mss);
  info.tcpi_rtt = look->round_trip_us;
  info.tcpi_snd_cwnd = std::max(look->window / look->mss, 1u);
  info.tcpi_rcv_space = look->receive_ring;
  return info;
}

}  // namespace offpath::sockets
