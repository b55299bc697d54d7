#include "sockets/policy.h"

#include <arpa/inet.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <string_view>

#include "base/text.h"

namespace offpath::sockets {

namespace {

constexpr std::uint32_t sockets_min = 16, sockets_max = wire::tcp_flows_max;
constexpr std::uint32_t ring_bytes_min = 4096, send_bytes_min = 64 << 10;
// Virtual memory for each socket, first rings included: the bound on the use by all at a time. Beyond first rings,
// bounds of it: a search in the pool looks at a word for each 4 MiB.
constexpr std::uint64_t socket_bytes = 3 << 19, pool_bytes_min = 16 << 20, pool_bytes_max = 8ull << 30;
constexpr unsigned all_bits = 128, bits_before_ipv4 = 96;
constexpr std::string_view all_networks = "0.0.0.0/0,::/0";

Result<wire::IpAddress> parse_address(std::string_view text) {
  in_addr address{};
  wire::IpAddress six;
  if (inet_pton(AF_INET, std::string(text).c_str(), &address) == 1) return wire::ipv4(ntohl(address.s_addr));
  if (inet_pton(AF_INET6, std::string(text).c_str(), six.bytes.data()) == 1) return six;
  return fail(Error::invalid, "'{}' is not an IP address", text);
}

Result<std::uint32_t> parse_number(std::string_view text, std::uint32_t most) {
  const auto number = number_of<std::uint32_t>(text);
  if (!number || *number > most) return fail(Error::invalid, "'{}' is not a number up to {}", text, most);
  return *number;
}

Result<Network> parse_network(std::string_view text) {
  const std::size_t slash = text.find('/');
  OFP_ASSIGN(const wire::IpAddress address, parse_address(text.substr(0, slash)));
  if (slash == text.npos) return Network{address, all_bits};
  const bool is_ipv6 = text.substr(0, slash).find(':') != text.npos;
  const unsigned before = is_ipv6 ? 0 : bits_before_ipv4;
  OFP_ASSIGN(const std::uint32_t bits, parse_number(text.substr(slash + 1), all_bits - before));
  return Network{address, before + bits};
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

bool Network::has(const wire::IpAddress& other) const noexcept {
  if (address.is_v4() != other.is_v4()) return false;
  for (unsigned at = 0; at < bits; at += 32) {
    const unsigned beyond = bits - at < 32 ? 32 - (bits - at) : 0;
    if ((address.word(at / 32) ^ other.word(at / 32)) >> beyond != 0) return false;
  }
  return true;
}

Reach reach_of(const wire::IpAddress& address) noexcept {
  constexpr Network loopback_of_ipv4{wire::ipv4(0x7f000000), bits_before_ipv4 + 8},
      loopback{{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}}, all_bits}, link_local{{{0xfe, 0x80}}, 10},
      groups_of_ipv4{wire::ipv4(0xe0000000), bits_before_ipv4 + 4}, groups{{{0xff}}, 8};
  if (loopback_of_ipv4.has(address) || loopback.has(address)) return Reach::machine;
  if (groups_of_ipv4.has(address) || groups.has(address)) return Reach::group;
  return link_local.has(address) ? Reach::link : Reach::anywhere;
}

bool Policy::listens(const channel::SocketArea::Endpoint& at) const noexcept {
  if (agent.empty() || (!at.address.is_unspecified() && !is_own(at.address))) return false;
  return ports_all || std::ranges::find(ports, at.port) != ports.end();
}

bool Policy::connects(const wire::IpAddress& address) const noexcept {
  if (agent.empty() || address.is_unspecified() || reach_of(address) != Reach::anywhere) return false;
  return std::ranges::any_of(networks, [&](const Network& each) { return each.has(address); });
}

bool Policy::binds_at_agent(const channel::SocketArea::Endpoint& at) const noexcept {
  if (is_own(at.address)) return at.port == 0 || listens(at);
  return at.address.is_unspecified() && at.port != 0 && listens(at);
}

std::uint32_t Policy::send_bytes() const noexcept { return std::max(ring_bytes, send_bytes_min); }

channel::SocketOptions Policy::options(std::uint64_t kept_bytes) const noexcept {
  const std::uint64_t all = sockets * socket_bytes, first = sockets * (std::uint64_t{send_bytes()} + ring_bytes);
  return {.flows = sockets,
          .send_bytes = send_bytes(),
          .receive_bytes = ring_bytes,
          .pool_bytes = align_up(std::clamp(all - std::min(all, first), pool_bytes_min, pool_bytes_max),
                                 channel::RingPool::word_bytes),
          .kept_bytes = kept_bytes};
}

Result<Policy> read_policy(const char* agent, const char* address, const char* listen, const char* connect,
                           const char* fallback, const char* sockets, const char* ring) {
  Policy policy;
  const std::string_view falls_back = fallback != nullptr ? fallback : "0";
  if (falls_back != "0" && falls_back != "1")
    return fail(Error::invalid, "OFFPATH_SOCKETS_FALLBACK is '{}': it has to be 0 or 1", falls_back);
  policy.falls_back = falls_back == "1";
  if (sockets != nullptr) {
    OFP_ASSIGN(policy.sockets, parse_number(sockets, sockets_max));
    if (policy.sockets < sockets_min)
      return fail(Error::invalid, "OFFPATH_SOCKETS_MAX is {}: {} to {} are allowed", policy.sockets, sockets_min,
                  sockets_max);
  }
  if (ring != nullptr) {
    OFP_ASSIGN(policy.ring_bytes, parse_number(ring, wire::tcp_ring_bytes_max));
    if (!std::has_single_bit(policy.ring_bytes) || policy.ring_bytes < ring_bytes_min)
      return fail(Error::invalid, "OFFPATH_SOCKETS_RING is {}: powers of two from {} to {} are allowed",
                  policy.ring_bytes, ring_bytes_min, wire::tcp_ring_bytes_max);
  }
  if (agent != nullptr) policy.agent = agent;
  if (address != nullptr) {
    OFP_TRY(each_of(address, [&](std::string_view text) -> Status {
      OFP_ASSIGN(const wire::IpAddress own, parse_address(text));
      if (own.is_unspecified() || reach_of(own) == Reach::machine || reach_of(own) == Reach::group)
        return fail(Error::invalid, "'{}' cannot be the address of an agent", text);
      wire::IpAddress& of_family = policy.addresses[static_cast<std::size_t>(own.family())];
      if (!of_family.is_unspecified())
        return fail(Error::invalid, "OFFPATH_SOCKETS_ADDRESS is '{}': at most one address of each family is allowed",
                    address);
      of_family = own;
      return {};
    }));
  }
  if (listen != nullptr) {
    policy.ports_all = false;
    OFP_TRY(each_of(listen, [&](std::string_view text) -> Status {
      OFP_ASSIGN(const std::uint32_t port, parse_number(text, 0xffff));
      policy.ports.push_back(static_cast<std::uint16_t>(port));
      return {};
    }));
  }
  OFP_TRY(each_of(connect != nullptr ? connect : all_networks, [&](std::string_view text) -> Status {
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
