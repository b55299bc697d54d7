// The parts of a TcpService (src/tcp/program), each of which a test can use alone: one core with a stack without a
// network, and programs whose areas lie in ordinary memory.
#pragma once

#include <list>
#include <memory>
#include <vector>

#include "connections/area/socket_records.h"
#include "tcp/congestion/congestion.h"
#include "tcp/program/core_agreement.h"
#include "tcp/program/port_table.h"
#include "tcp/program/program_table.h"
#include "tcp/program/program_wakes.h"
#include "tcp/program/ring_charges.h"
#include "tcp/program/ring_moves.h"
#include "testing/sockets/area_script.h"
#include "testing/tcp/stack_parts.h"

namespace offpath::tcp {

struct ServiceParts {
  static constexpr std::uint32_t flows = 64, ring_bytes = 16 << 10;
  static constexpr channel::SocketOptions options{
      .flows = flows, .send_bytes = ring_bytes, .receive_bytes = ring_bytes, .pool_bytes = 4 << 20};

  explicit ServiceParts(const TcpServiceLimits& limits = {}, std::uint32_t number = 0, std::uint32_t cores = 1)
      : core{limits, number, cores} {
    StackOptions own;
    set_test_address(own, 0x0a000001);
    stack = std::make_unique<Stack>(own, PortCapabilities{StackParts::own_mac, test_mtu(1500)}, *congestion, owner, 0);
    core.stack = stack.get();
  }

  Program& add(const ProgramUser& who = {}) {
    const wire::TcpAreaLayout layout = channel::SocketRecords::layout_of(options);
    auto& memory = memories.emplace_back(layout.bytes / sizeof(std::uint64_t));
    const MutableBytes bytes{reinterpret_cast<std::byte*>(memory.data()), layout.bytes};
    Program& program = programs.add(
        ++last_number, layout, core.number, who, [bytes] { return bytes; }, std::make_shared<RingBlocks>(layout.bytes));
    OFP_ASSERT(program.area.attach(bytes));
    return program;
  }
  // A handle with first rings; its own blocks.
  Held& handle(Program& program, std::uint32_t handle) {
    Held& held = program.held.use(handle);
    const std::uint64_t at = first_ring(program, handle);
    held.rings = held.firsts = {Held::Ring{at, ring_bytes, false}, Held::Ring{at + ring_bytes, ring_bytes, false}};
    return held;
  }
  [[nodiscard]] static std::uint64_t first_ring(const Program& program, std::uint32_t handle) {
    return align_up(program.area.layout().own(), RingBlocks::block_bytes) + std::uint64_t{handle} * 2 * ring_bytes;
  }
  // A listener on the port, of all families.
  Held& listener(Program& program, std::uint32_t handle, std::uint16_t port, std::uint16_t reuse = 0) {
    Held& held = this->handle(program, handle);
    held.port = port;
    held.reuse = reuse;
    held.families = wire::tcp_for(test_family());
    return held;
  }
  [[nodiscard]] bool listen(Program& program, std::uint32_t handle, std::uint16_t port, std::uint16_t reuse = 0) {
    Held& held = listener(program, handle, port, reuse);
    if (!ports.may_have(program, held, wire::tcp_no_handle) || !ports.listen(program, handle, {})) return false;
    program.set(held, Held::Is::listener);
    return true;
  }
  // The listener has one more accept slot.
  void slot(Program& program, std::uint32_t listener, std::uint32_t slot) {
    Held& held = handle(program, slot);
    held.listener = listener;
    program.set(held, Held::Is::accept_slot);
    held.costs = RingCharges::cost_of(program, held) > 0;
    program.held[listener].accept_slots.emplace(held.costs, slot);
  }

  ServiceCore core;
  std::unique_ptr<const CongestionControl> congestion = congestion_control("new_reno").value();
  FakeOwner owner;
  std::unique_ptr<Stack> stack;
  std::list<std::vector<std::uint64_t>> memories;
  ProgramTable programs;
  RingCharges charges{core, programs};
  RingMoves rings{core, charges};
  PortTable ports{core, programs, charges};
  CoreAgreement agreement{core, ports};
  std::uint64_t last_number = 0;
};

}  // namespace offpath::tcp
