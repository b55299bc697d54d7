// How the memory of flows' rings is charged to the users of programs. A program names the memory; each block of it is
// charged by the first core that needs it (tcp/area/ring_blocks.h), and stays charged until the program ends.
#pragma once

#include "tcp/program/program_table.h"
#include "tcp/program/service_core.h"

namespace offpath::tcp {

class RingCharges {
 public:
  RingCharges(const ServiceCore& core, const ProgramTable& programs) noexcept : core_(core), programs_(programs) {}

  // A first ring that a command names. Error: a flow has a larger one there.
  [[nodiscard]] static Status keep_for_first(const Program& program, std::uint32_t handle, const Held::Ring& ring);
  // Charges a flow's first rings. False, and nothing is charged: the limit is reached.
  [[nodiscard]] bool charge(Program& program, const Held& held) const;
  // Of both rings of a flow: the bytes that charge() would charge.
  [[nodiscard]] static std::uint64_t cost_of(const Program& program, const Held& held);

  // Lends the memory of a larger ring. Error: another ring lies there.
  [[nodiscard]] static Status lend(const Program& program, std::uint32_t handle, const Held::Ring& ring);
  // Charges it. False: the limit is reached.
  [[nodiscard]] bool charge_larger(Program& program, wire::TcpWay way, const Held::Ring& ring) const;
  // A larger ring is the program's again; other rings are left as they are.
  static void return_ring(Program& program, Held::Ring& ring);

 private:
  enum class RingIs { first, larger };
  [[nodiscard]] bool may_charge(const Program& program, std::uint64_t bytes, RingIs is) const;
  [[nodiscard]] static std::uint64_t cost_of(const Program& program, wire::TcpWay way, const Held::Ring& ring);
  static void pay(Program& program, wire::TcpWay way, const Held::Ring& ring);

  const ServiceCore& core_;
  const ProgramTable& programs_;
};

}  // namespace offpath::tcp
