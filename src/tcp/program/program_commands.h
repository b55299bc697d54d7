// Programs' commands: each is copied out of the ring, checked, and carried out. A returned failure means that a command
// is invalid: it ends the program. A valid command that cannot be carried out is answered with an event.
#pragma once

#include "tcp/program/core_agreement.h"
#include "tcp/program/port_table.h"
#include "tcp/program/ring_moves.h"

namespace offpath::tcp {

class ProgramCommands {
 public:
  static constexpr unsigned commands_of_a_round = 256;  // then the next program has its turn

  ProgramCommands(ServiceCore& core, PortTable& ports, RingCharges& charges, RingMoves& rings,
                  CoreAgreement& agreement) noexcept
      : core_(core), ports_(ports), charges_(charges), rings_(rings), agreement_(agreement) {}

  // Takes the commands of a round; true: some.
  [[nodiscard]] Result<bool> take(Program& program, TimeNs now);

 private:
  [[nodiscard]] Status take(Program& program, const wire::TcpCommand& command, TimeNs now);
  [[nodiscard]] Status listen(Program& program, Held& held, const wire::TcpCommand& command);
  void bind(Program& program, Held& held, const wire::TcpCommand& command);
  [[nodiscard]] Status add_accept_slot(Program& program, Held& held, const wire::TcpCommand& command);
  [[nodiscard]] Status connect(Program& program, Held& held, const wire::TcpCommand& command,
                               const wire::TcpConnect& to, TimeNs now);
  [[nodiscard]] Status for_existing(Program& program, Held& held, const wire::TcpCommand& command, TimeNs now);
  [[nodiscard]] static Status for_claiming(Program& program, Held& held, const wire::TcpCommand& command);
  [[nodiscard]] static Status check_position(const Held& held, const wire::TcpCommand& command);
  [[nodiscard]] Status for_flow(Program& program, Held& held, const wire::TcpCommand& command, TimeNs now);
  void shut(Program& program, std::uint32_t handle);

  ServiceCore& core_;
  PortTable& ports_;
  RingCharges& charges_;
  RingMoves& rings_;
  CoreAgreement& agreement_;
};

}  // namespace offpath::tcp
