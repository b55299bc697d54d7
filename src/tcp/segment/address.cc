#include "tcp/segment/address.h"

#include <arpa/inet.h>

namespace offpath::tcp {

Result<Ipv4Address> ipv4_address(std::string_view text) {
  in_addr address{};
  if (inet_pton(AF_INET, std::string(text).c_str(), &address) != 1)
    return fail(Error::invalid, "'{}' is not an IPv4 address such as 10.0.0.1", brief(text));
  return Ipv4Address{ntohl(address.s_addr)};
}

std::string text_of(Ipv4Address address) {
  const std::uint32_t value = address.value;
  return fmt::format("{}.{}.{}.{}", value >> 24, value >> 16 & 255, value >> 8 & 255, value & 255);
}

std::string text_of(const Endpoint& endpoint) { return fmt::format("{}:{}", text_of(endpoint.address), endpoint.port); }

}  // namespace offpath::tcp
