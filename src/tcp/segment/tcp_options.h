// TCP's options (RFC 9293, 3.2; RFC 7323; RFC 2018; RFC 9768).
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "tcp/segment/sequence.h"

namespace offpath::tcp {

inline constexpr std::size_t tcp_options_bytes_max = 40;
inline constexpr std::size_t sack_blocks_max = 4;  // three beside timestamps
inline constexpr std::uint8_t window_scale_max = 14;

struct Timestamps {
  std::uint32_t value = 0, echo = 0;
  friend bool operator==(const Timestamps&, const Timestamps&) = default;
};

// Payload that has arrived so far by its mark, in bytes modulo 2^24 (RFC 9768, 3.2.3). The first fields of one of two
// orders: capable_0, congested, capable_1, or the reverse.
struct EcnBytes {
  static constexpr std::uint32_t mask = 0xffffff;
  std::optional<std::uint32_t> capable_0{}, congested{}, capable_1{};
  friend bool operator==(const EcnBytes&, const EcnBytes&) = default;
};

struct TcpOptions {
  std::optional<std::uint16_t> mss{};
  std::optional<std::uint8_t> window_scale{};
  bool sack_permitted = false;
  std::optional<Timestamps> timestamps{};
  std::optional<EcnBytes> ecn_bytes{};
  std::uint8_t sack_count = 0;
  std::array<SequenceRange, sack_blocks_max> sack{};
  friend bool operator==(const TcpOptions&, const TcpOptions&) = default;
};

// Unknown options are skipped, and reading stops at an option with an impossible length: invalid options do not
// invalidate a segment.
[[nodiscard]] TcpOptions read_tcp_options(Bytes bytes) noexcept;

// Bytes that the option takes, a multiple of four.
[[nodiscard]] constexpr std::size_t ecn_option_bytes(const EcnBytes& told) noexcept {
  const std::size_t fields = told.capable_0 && told.capable_1   ? 3
                             : told.congested                   ? 2
                             : told.capable_0 || told.capable_1 ? 1
                                                                : 0;
  return (2 + 3 * fields + 3) / 4 * 4;
}

// Returns how many bytes the options take, a multiple of four. SACK blocks without room are left out, the last ones
// first.
[[nodiscard]] std::size_t write_tcp_options(const TcpOptions& options,
                                            std::span<std::byte, tcp_options_bytes_max> to) noexcept;

}  // namespace offpath::tcp
