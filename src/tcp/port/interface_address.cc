#include "tcp/port/interface_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <bit>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>

namespace offpath::tcp {

namespace {

std::uint32_t value_of(const sockaddr* address) noexcept {
  return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr);
}

IpAddress ipv6_of(const sockaddr* address) noexcept {
  return std::bit_cast<IpAddress>(reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

std::uint8_t length_of(const IpAddress& mask) noexcept {
  int bits = 0;
  for (unsigned at = 0; at < 4; ++at) bits += std::popcount(mask.word(at));
  return static_cast<std::uint8_t>(bits);
}

}  // namespace

Result<std::vector<InterfaceAddress>> addresses_of_interface(const std::string& interface) {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) {
    if (errno == EAFNOSUPPORT) return fail(Error::denied, "getifaddrs: this process may not open netlink sockets");
    return fail_errno(errno, "getifaddrs");
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> all(first, ::freeifaddrs);
  std::vector<InterfaceAddress> addresses;
  for (const ifaddrs* each = all.get(); each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_netmask == nullptr || interface != each->ifa_name) continue;
    if (each->ifa_addr->sa_family == AF_INET)
      addresses.push_back(
          {ipv4(value_of(each->ifa_addr)), static_cast<std::uint8_t>(std::popcount(value_of(each->ifa_netmask)))});
    else if (each->ifa_addr->sa_family == AF_INET6)
      addresses.push_back({ipv6_of(each->ifa_addr), length_of(ipv6_of(each->ifa_netmask))});
  }
  return addresses;
}

// Fields of a line: interface, destination, gateway, flags, two counts, metric, mask, …; addresses are network-order
// words printed as hexadecimal in the machine's byte order.
std::optional<IpAddress> gateway_in(std::string_view routes, std::string_view interface) {
  std::optional<IpAddress> gateway;
  std::uint32_t least = 0;
  std::istringstream lines{std::string(routes)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    std::uint32_t destination = 0, by = 0, flags = 0, references = 0, uses = 0, metric = 0, mask = 0;
    if (!(words >> name >> std::hex >> destination >> by >> flags >> std::dec >> references >> uses >> metric >>
          std::hex >> mask))
      continue;
    constexpr std::uint32_t up_by_gateway = 1 | 2;
    if (name != interface || destination != 0 || mask != 0 || (flags & up_by_gateway) != up_by_gateway) continue;
    if (gateway && metric >= least) continue;
    gateway = ipv4(ntohl(by));
    least = metric;
  }
  return gateway;
}

Result<std::optional<IpAddress>> gateway_of_interface(const std::string& interface) {
  std::ifstream file("/proc/net/route");
  const std::string routes{std::istreambuf_iterator<char>(file), {}};
  if (!file) return fail(Error::io, "/proc/net/route cannot be read");
  return gateway_in(routes, interface);
}

}  // namespace offpath::tcp
