// Where a TCP stream stands: the one table of its positions.
//
// A position counts the bytes of one direction of a connection from 0. Positions only grow, so a repeated or late word
// of one does no harm, and whoever hears of two takes the larger. Byte p lies at p modulo the size of its ring.
//
//   out, from the program to the peer:  acknowledged <= sent <= offered  <= acknowledged + send ring
//   in, from the peer to the program:   read <= received <= allowed      <= read + receive ring
//
//   position      who moves it  when                                           who is told, and how
//   offered       program       a call of send has copied bytes into the ring  agent: TcpWishKind::offer
//   sent          stack         a segment has left                             nobody
//   acknowledged  peer          an acknowledgement came                        program: TcpNews::acknowledged
//   received      peer          what came before it lies whole in the ring     program: TcpNews::received
//   read          program       a call of receive has copied bytes out         nobody: `allowed` says it
//   allowed       program       a quarter of the ring was read                 agent: TcpWishKind::allow
//
// Three keep them, each of its own, because none of them may read what another one writes without a check:
//
//   keeper                             of which direction, and what is told to it by the others
//   SocketArea::Cell (the program's)   both, and `read`; acknowledged and received as the news had them last
//   TcpService::Held (the agent's)     both; offered as the wish had it, acknowledged and received as the stack had
//                                      them last: a wish is checked against these
//   Flow (the stack's)                 both; `sent` is the sequence number `next`, `acknowledged` is the byte of `una`,
//                                      `received` the one of `receive_next`
#pragma once

#include <cstdint>

namespace offpath::wire {

struct TcpPositionsOut {
  std::uint64_t offered = 0, acknowledged = 0;

  [[nodiscard]] constexpr std::uint64_t unacknowledged() const noexcept { return offered - acknowledged; }
  // Whether bytes up to `position` can lie in a ring that keeps what is not acknowledged.
  [[nodiscard]] constexpr bool may_offer(std::uint64_t position, std::uint32_t ring_bytes) const noexcept {
    return position <= acknowledged + ring_bytes;
  }
};

struct TcpPositionsIn {
  std::uint64_t received = 0, allowed = 0;

  // How many bytes more may come; none after the window was shut over them.
  [[nodiscard]] constexpr std::uint64_t room() const noexcept { return allowed > received ? allowed - received : 0; }
  // Whether bytes up to `position` can lie in a ring of which at most everything received was read.
  [[nodiscard]] constexpr bool may_allow(std::uint64_t position, std::uint32_t ring_bytes) const noexcept {
    return position <= received + ring_bytes;
  }
};

}  // namespace offpath::wire
