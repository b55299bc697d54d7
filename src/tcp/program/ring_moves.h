// The rings of programs' flows: the first ones, when a larger one is advised, and how another one takes the place of a
// ring (TcpCommandKind::replace). A program names the memory; here it is checked, and charged by RingCharges. A ring
// gets larger on advice. The flow's first ring takes its place again when the program says so, which knows how long the
// flow has been idle and which others need the memory.
#pragma once

#include "tcp/program/ring_charges.h"

namespace offpath::tcp {

class RingMoves {
 public:
  RingMoves(ServiceCore& core, RingCharges& charges) noexcept : core_(core), charges_(charges) {}

  // The first rings of a handle, which the command names.
  [[nodiscard]] static Status begin(Program& program, Held& held, const wire::TcpCommand& command);
  // The command `replace` of a flow. Error: it is invalid.
  [[nodiscard]] Status replace(Program& program, Held& held, const wire::TcpCommand& command);
  // The program has allowed bytes before `position`.
  void note_allowed(Program& program, std::uint32_t handle, std::uint64_t position, TimeNs now);
  // Bytes before Held::acknowledged were acknowledged.
  void note_acknowledged(const Program& program, Held& held, TimeNs now) noexcept {
    measure(program, held, wire::TcpWay::out, held.acknowledged, now);
  }
  // Before an event of the flow: the ring for outgoing bytes before the present one may be free.
  static void end_acknowledged(Program& program, Held& held) {
    if (held.is_moving(wire::TcpWay::out) && held.acknowledged >= held.move(wire::TcpWay::out).from)
      end(program, held, wire::TcpWay::out);
  }
  // The flow is gone, and the program is about to be told. Until it is, its commands are checked against these rings.
  static void return_all(Program& program, Held& held);

 private:
  void measure(const Program& program, Held& held, wire::TcpWay way, std::uint64_t position, TimeNs now) noexcept;
  [[nodiscard]] Status grow(Program& program, Held& held, const wire::TcpCommand& command);
  [[nodiscard]] Status shrink(Program& program, Held& held, const wire::TcpCommand& command);
  static void answer(Program& program, const wire::TcpCommand& command, std::uint32_t bits);
  [[nodiscard]] Status check_begin(const Held& held, wire::TcpWay way, const wire::TcpCommand& command) const;
  static void end(Program& program, Held& held, wire::TcpWay way);

  ServiceCore& core_;
  RingCharges& charges_;
};

}  // namespace offpath::tcp
