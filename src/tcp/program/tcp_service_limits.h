// Limits of programs' TCP connections (tcp_service.h).
#pragma once

#include <cstdint>

#include "wire/areas/tcp_congestion.h"

namespace offpath::tcp {

// The defaults are those of the settings `tcp.*`.
struct TcpServiceLimits {
  std::uint32_t programs_max = 256;
  std::uint32_t flows_of_program_max = 4096;        // handles of one program
  std::uint64_t bytes_of_program_max = 8ull << 30;  // size of one program's area
  // Memory in receive rings, into which the agent writes bytes from peers: for one user, and for all. Each core has an
  // equal part of it.
  std::uint64_t receive_bytes_of_user_max = 64ull << 40, receive_bytes_max = 16ull << 30;
  // Bits (wire::tcp_congestion_bit) of the congestion control that unprivileged programs may choose beside the stack's.
  std::uint8_t congestions =
      wire::tcp_congestion_bit(wire::TcpCongestion::new_reno) | wire::tcp_congestion_bit(wire::TcpCongestion::cubic);
};

}  // namespace offpath::tcp
