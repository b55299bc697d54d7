// The positions of a TCP stream, all in one table.
//
// A position counts the bytes of one direction of a connection from 0. Positions only grow, so a repeated or late value
// does no harm, and a reader of two values takes the larger. Byte p is stored at p modulo the size of its ring.
//
//   out, from the program to the peer:  acknowledged <= sent <= offered  <= acknowledged + send ring
//   in, from the peer to the program:   read <= received <= allowed      <= read + receive ring
//
//   position      moved by      when                                           reported to, and how
//   offered       program       a call of send has copied bytes into the ring  agent: TcpCommandKind::offer
//   sent          stack         a segment has left                             not reported
//   acknowledged  peer          an acknowledgement arrived                     program: TcpEvent::acknowledged
//   received      peer          all bytes before it have arrived in the ring   program: TcpEvent::received
//   read          program       a call of receive has copied bytes out         agent, when the program ends: a word
//   allowed       program       a quarter of the ring was read                 agent: TcpCommandKind::allow
//
// Where another ring takes the place of a ring (TcpCommandKind::replace), bytes from an agreed position on lie in the
// other one, whose size is then that of the ring. It is larger, so it has room for all that the bounds above allow; or
// it is the flow's first one, and nothing was in the ring. `allowed` is then less than before: it is the one position
// that can go back, after a `shut`.
//
// Three parties keep copies of their own, because none of them may use another one's values without a check:
//
//   keeper                             directions, and the values learnt from the others
//   SocketCell (the program's)         both, and `read`, which is also in the flow's word of TcpAreaLayout::reads();
//                                      acknowledged and received from the last event
//   Held (the agent's)                 both; offered from the last command, acknowledged and received from the stack:
//                                      commands are checked against these
//   Flow (the stack's)                 both; `sent` is the sequence number `next`, `acknowledged` is the byte of `una`,
//                                      `received` that of `receive_next`
#pragma once

#include <cstdint>

namespace offpath::wire {

struct TcpPositionsOut {
  std::uint64_t offered = 0, acknowledged = 0;

  [[nodiscard]] constexpr std::uint64_t unacknowledged() const noexcept { return offered - acknowledged; }
  // Whether poll calls the flow writable: a third of the ring is free, as in Linux. With less, a program that polls
  // before each write would be woken for every acknowledgement.
  [[nodiscard]] constexpr bool is_writable(std::uint32_t ring_bytes) const noexcept {
    return ring_bytes - unacknowledged() >= ring_bytes / 3;
  }
  // Whether bytes up to `position` fit into a ring that keeps unacknowledged bytes.
  [[nodiscard]] constexpr bool may_offer(std::uint64_t position, std::uint32_t ring_bytes) const noexcept {
    return position <= acknowledged + ring_bytes;
  }
};

struct TcpPositionsIn {
  std::uint64_t received = 0, allowed = 0;

  // How many more bytes may arrive; 0 if the window was shut below `received`.
  [[nodiscard]] constexpr std::uint64_t room() const noexcept { return allowed > received ? allowed - received : 0; }
  // Whether bytes up to `position` fit into a ring, given that at most all received bytes were read.
  [[nodiscard]] constexpr bool may_allow(std::uint64_t position, std::uint32_t ring_bytes) const noexcept {
    return position <= received + ring_bytes;
  }
};

}  // namespace offpath::wire
