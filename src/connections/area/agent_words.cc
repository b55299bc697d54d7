#include "connections/area/agent_words.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>

namespace offpath::channel {

wire::IpAddress AgentWords::own_address(wire::IpFamily family) const noexcept {
  const auto read = [&]<class Word>(Word, std::size_t offset) {
    auto* const at = reinterpret_cast<Word*>(reinterpret_cast<std::byte*>(line_) + offset);
    return std::atomic_ref<Word>(*at).load(std::memory_order_relaxed);
  };
  if (family == wire::IpFamily::v4) return wire::ipv4(read(std::uint32_t{}, offsetof(wire::TcpAgentLine, address4)));
  constexpr std::size_t first = offsetof(wire::TcpAgentLine, address6), half = sizeof(std::uint64_t);
  const std::array halves{read(std::uint64_t{}, first), read(std::uint64_t{}, first + half)};
  return {std::bit_cast<decltype(wire::IpAddress::bytes)>(halves)};
}

std::uint16_t AgentWords::families() const noexcept {
  const auto has = [this](wire::IpFamily family) { return !own_address(family).is_unspecified(); };
  return static_cast<std::uint16_t>((has(wire::IpFamily::v4) ? wire::tcp_for_ipv4 : 0) |
                                    (has(wire::IpFamily::v6) ? wire::tcp_for_ipv6 : 0));
}

wire::TcpCongestion AgentWords::congestion() const noexcept {
  return tcp_congestion_read(std::atomic_ref(line_->congestion).load(std::memory_order_relaxed));
}

bool AgentWords::may_choose(wire::TcpCongestion congestion, Rights rights) const noexcept {
  const std::uint8_t set = rights == Rights::of_program ? line_->congestions : line_->congestions_of_all;
  return (set & tcp_congestion_bit(congestion)) != 0;
}

}  // namespace offpath::channel
