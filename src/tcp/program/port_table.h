// The ports that programs have on one core: listeners, on core 0 also ports that are only bound, and on core 0 the
// ports from which programs connect. As in the kernel, several handles may share a port.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "tcp/program/program_table.h"
#include "tcp/program/ring_charges.h"

namespace offpath::tcp {

class PortTable {
 public:
  // A handle that listens on a port, or, on core 0, is bound to it.
  struct Sharer {
    Program* program;
    std::uint32_t handle;
    [[nodiscard]] Held& held() const noexcept { return program->held[handle]; }
    friend bool operator==(const Sharer&, const Sharer&) noexcept = default;
  };

  PortTable(ServiceCore& core, ProgramTable& programs, RingCharges& charges) noexcept
      : core_(core), programs_(programs), charges_(charges) {}

  // ---- listeners and bound ports
  // Whether a handle may have the port that it names; `except` has it already.
  [[nodiscard]] bool may_have(const Program& program, const Held& wanted, std::uint32_t except) const;
  [[nodiscard]] std::uint16_t free_port();  // 0: there is none
  void bind(Program& program, std::uint32_t handle);
  // The stack takes connections to the handle's port from now on. False: the port's listeners have receive rings of
  // another size, or the stack has no room for one more.
  [[nodiscard]] bool listen(Program& program, std::uint32_t handle, const FlowOptions& options);
  void leave(Program& program, std::uint32_t handle);
  void leave_all(Program& program);
  // An accept slot of a listener on this port, whose rings are charged. None: no listener has one, or none can be
  // charged.
  [[nodiscard]] std::optional<Sharer> take_slot(IpFamily family, std::uint16_t port);

  // ---- ports that programs name for connections, on core 0
  // False: it is another program's port. If this one connected from it, the peer's SYN to that port would become a
  // simultaneous open of the two.
  [[nodiscard]] bool claim(Program& program, IpFamily family, std::uint16_t port);
  static void unclaim(Program& program, IpFamily family, std::uint16_t port);

 private:
  // The listener on this port that the stack knows; null: nobody listens.
  [[nodiscard]] const Sharer* listener_at(IpFamily family, std::uint16_t port) const noexcept;
  [[nodiscard]] bool is_claimed_by_others(const Program& program, const Held& wanted) const;

  ServiceCore& core_;
  ProgramTable& programs_;
  RingCharges& charges_;
  std::map<std::uint16_t, std::vector<Sharer>> ports_;  // several may share one (SO_REUSEPORT)
  std::uint16_t last_port_ = 0;                         // that free_port() found
};

}  // namespace offpath::tcp
