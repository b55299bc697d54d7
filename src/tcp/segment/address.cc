#include "tcp/segment/address.h"

#include <arpa/inet.h>

namespace offpath::tcp {

Result<IpAddress> ip_address(std::string_view text) {
  const std::string copy(text);
  if (in_addr address{}; inet_pton(AF_INET, copy.c_str(), &address) == 1) return ipv4(ntohl(address.s_addr));
  IpAddress address;
  if (inet_pton(AF_INET6, copy.c_str(), address.bytes.data()) != 1)
    return fail(Error::invalid, "'{}' is not an IP address such as 10.0.0.1 or 2001:db8::1", brief(text));
  return address;
}

std::string text_of(const IpAddress& address) {
  if (address.is_v4()) {
    const std::uint32_t value = address.v4();
    return fmt::format("{}.{}.{}.{}", value >> 24, value >> 16 & 255, value >> 8 & 255, value & 255);
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  return inet_ntop(AF_INET6, address.bytes.data(), text.data(), text.size());
}

std::string text_of(const Endpoint& endpoint) {
  const std::string address = text_of(endpoint.address);
  return endpoint.address.is_v4() ? fmt::format("{}:{}", address, endpoint.port)
                                  : fmt::format("[{}]:{}", address, endpoint.port);
}

}  // namespace offpath::tcp
