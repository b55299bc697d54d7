#include "sockets/policy.h"

#include <arpa/inet.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <string_view>

#include "base/text.h"

namespace offpath::sockets {

namespace {

constexpr std::uint32_t sockets_min = 16, sockets_max = 65'536;
constexpr std::uint32_t ring_bytes_min = 4096, send_bytes_min = 64 << 10;
// Of virtual memory for each socket, first rings included: what all may use at a time.
constexpr std::uint64_t socket_bytes = 3 << 19, pool_bytes_min = 16 << 20;
constexpr Network loopback{0x7f000000, 0xff000000};

Result<std::uint32_t> parse_address(std::string_view text) {
  in_addr address{};
  if (inet_pton(AF_INET, std::string(text).c_str(), &address) != 1)
    return fail(Error::invalid, "'{}' is no IPv4 address", text);
  return ntohl(address.s_addr);
}

Result<std::uint32_t> parse_number(std::string_view text, std::uint32_t most) {
  const auto number = number_of<std::uint32_t>(text);
  if (!number || *number > most) return fail(Error::invalid, "'{}' is not a number up to {}", text, most);
  return *number;
}

Result<Network> parse_network(std::string_view text) {
  const std::size_t slash = text.find('/');
  OFP_ASSIGN(const std::uint32_t address, parse_address(text.substr(0, slash)));
  std::uint32_t bits = 32;
  if (slash != text.npos) {
    OFP_ASSIGN(bits, parse_number(text.substr(slash + 1), 32));
  }
  const std::uint32_t mask = bits == 0 ? 0 : ~0u << (32 - bits);
  return Network{address & mask, mask};
}

template <class Take>
Status each_of(std::string_view list, const Take& take) {
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    OFP_TRY(take(list.substr(0, comma)));
    list = comma == list.npos ? std::string_view() : list.substr(comma + 1);
  }
  return {};
}

}  // namespace

bool Policy::listens(std::uint32_t address, std::uint16_t port) const noexcept {
  if (agent.empty() || (address != 0 && address != own)) return false;
  return ports_all || std::ranges::find(ports, port) != ports.end();
}

bool Policy::is_loopback(std::uint32_t address) noexcept { return loopback.has(address); }

bool Policy::connects(std::uint32_t address) const noexcept {
  if (agent.empty() || address == 0 || is_loopback(address)) return false;
  return std::ranges::any_of(networks, [&](const Network& each) { return each.has(address); });
}

bool Policy::binds_at_agent(std::uint32_t address, std::uint16_t port) const noexcept {
  if (address != 0 && address == own) return port == 0 || listens(address, port);
  return address == 0 && port != 0 && listens(address, port);
}

std::uint32_t Policy::send_bytes() const noexcept { return std::max(ring_bytes, send_bytes_min); }

channel::SocketOptions Policy::options(std::uint64_t kept_bytes) const noexcept {
  const std::uint64_t all = sockets * socket_bytes, first = sockets * (std::uint64_t{send_bytes()} + ring_bytes);
  return {.flows = sockets,
          .send_bytes = send_bytes(),
          .receive_bytes = ring_bytes,
          .pool_bytes = align_up(std::max(all - std::min(all, first), pool_bytes_min), channel::RingPool::word_bytes),
          .kept_bytes = kept_bytes};
}

Result<Policy> read_policy(const char* agent, const char* address, const char* listen, const char* connect,
                           const char* fallback, const char* sockets, const char* ring) {
  Policy policy;
  const std::string_view falls_back = fallback != nullptr ? fallback : "0";
  if (falls_back != "0" && falls_back != "1")
    return fail(Error::invalid, "OFFPATH_SOCKETS_FALLBACK is '{}': 0 or 1", falls_back);
  policy.falls_back = falls_back == "1";
  if (sockets != nullptr) {
    OFP_ASSIGN(policy.sockets, parse_number(sockets, sockets_max));
    if (policy.sockets < sockets_min)
      return fail(Error::invalid, "OFFPATH_SOCKETS_MAX is {}: {} to {}", policy.sockets, sockets_min, sockets_max);
  }
  if (ring != nullptr) {
    OFP_ASSIGN(policy.ring_bytes, parse_number(ring, wire::tcp_ring_bytes_max));
    if (!std::has_single_bit(policy.ring_bytes) || policy.ring_bytes < ring_bytes_min)
      return fail(Error::invalid, "OFFPATH_SOCKETS_RING is {}: powers of two from {} to {}", policy.ring_bytes,
                  ring_bytes_min, wire::tcp_ring_bytes_max);
  }
  if (agent != nullptr) policy.agent = agent;
  if (address != nullptr) {
    OFP_ASSIGN(policy.own, parse_address(address));
  }
  if (listen != nullptr) {
    policy.ports_all = false;
    OFP_TRY(each_of(listen, [&](std::string_view text) -> Status {
      OFP_ASSIGN(const std::uint32_t port, parse_number(text, 0xffff));
      policy.ports.push_back(static_cast<std::uint16_t>(port));
      return {};
    }));
  }
  OFP_TRY(each_of(connect != nullptr ? connect : "0.0.0.0/0", [&](std::string_view text) -> Status {
    OFP_ASSIGN(const Network network, parse_network(text));
    policy.networks.push_back(network);
    return {};
  }));
  return policy;
}

Result<Policy> read_policy_of_environment() {
  return read_policy(std::getenv("OFFPATH_AGENT"), std::getenv("OFFPATH_SOCKETS_ADDRESS"),
                     std::getenv("OFFPATH_SOCKETS_LISTEN"), std::getenv("OFFPATH_SOCKETS_CONNECT"),
                     std::getenv("OFFPATH_SOCKETS_FALLBACK"), std::getenv("OFFPATH_SOCKETS_MAX"),
                     std::getenv("OFFPATH_SOCKETS_RING"));
}

}  // namespace offpath::sockets
