#include "tcp/program/program_commands.h"

#include <algorithm>
#include <bit>

#include "wire/areas/flow_steering.h"

namespace offpath::tcp {

using wire::TcpCommand;
using wire::TcpCommandKind;
using wire::TcpError;
using wire::TcpWay;
namespace event = wire::tcp_event;

namespace {

constexpr std::uint16_t privileged_ports = 1024;
constexpr std::uint16_t reuse_flags = wire::tcp_reuse_port | wire::tcp_reuse_address;

// `congestions`: bits of those that the program may choose.
FlowOptions options_of(const TcpCommand& command, std::uint8_t congestions) noexcept {
  FlowOptions options;
  options.traffic_class4 = wire::tcp_traffic_class_of(command.flags);
  options.traffic_class6 = command.kind == TcpCommandKind::connect
                               ? options.traffic_class4
                               : static_cast<std::uint8_t>(command.traffic_class6 & wire::tcp_traffic_class_mask);
  const wire::TcpCongestion congestion = wire::tcp_congestion_of(command.flags);
  if ((congestions & tcp_congestion_bit(congestion)) != 0) options.congestion = congestion;
  options.nagle = (command.flags & wire::tcp_no_delay) == 0;
  options.user_timeout_ns = command.user_timeout_ms * millisecond_ns;
  if ((command.flags & wire::tcp_keepalive) != 0 && command.keepalive_idle_s != 0) {
    options.keepalive_idle_ns = command.keepalive_idle_s * second_ns;
    options.keepalive_interval_ns = std::max<TimeNs>(command.keepalive_interval_s, 1) * second_ns;
    options.keepalive_probes = std::max<std::uint8_t>(command.keepalive_probes, 1);
  }
  return options;
}

}  // namespace

Result<bool> ProgramCommands::take(Program& program, TimeNs now) {
  program.commands_full.note(program.area.commands_full(), now);
  TcpCommand command;
  for (unsigned i = 0; i < commands_of_a_round; ++i) {
    OFP_ASSIGN(const bool there, program.area.take(command));
    if (!there) return i > 0;
    OFP_TRY(take(program, command, now));
    ++core_.counters.commands;
  }
  return true;
}

Status ProgramCommands::take(Program& program, const TcpCommand& command, TimeNs now) {
  // These concern the link to the program alone (area_mirror.h).
  if (command.kind == TcpCommandKind::sleep || command.kind == TcpCommandKind::payload) return {};
  if (command.handle >= program.area.layout().flows)
    return fail(Error::protocol, "a command for handle {}; there are {} handles", command.handle,
                program.area.layout().flows);
  Held& held = program.held.use(command.handle);
  const bool of_port = command.kind == TcpCommandKind::listen || command.kind == TcpCommandKind::bind;
  if (of_port && (command.flags & wire::tcp_families) == 0)
    return fail(Error::protocol, "handle {}: a port for connections of no family", command.handle);
  const bool has_options = command.kind == TcpCommandKind::listen || command.kind == TcpCommandKind::connect ||
                           command.kind == TcpCommandKind::options;
  if (has_options && wire::tcp_congestion_of(command.flags) > wire::TcpCongestion::timely)
    return fail(Error::protocol, "handle {}: the unknown congestion control {}", command.handle,
                static_cast<int>(wire::tcp_congestion_of(command.flags)));
  const bool begins = of_port || command.kind == TcpCommandKind::accept_slot || command.kind == TcpCommandKind::connect;
  if (of_port ? core_.number != 0 : begins && command.handle % core_.cores != core_.number)
    return fail(Error::protocol, "command {} for handle {} was given to core {} of {}, which is not its core",
                static_cast<int>(command.kind), command.handle, core_.number, core_.cores);
  if (begins && (held.is != Held::Is::free || held.listed))
    return fail(Error::protocol, "a command that begins handle {}, which is in use", command.handle);
  switch (command.kind) {
    case TcpCommandKind::bind:
      return bind(program, held, command), Status();
    case TcpCommandKind::listen:
      return listen(program, held, command);
    case TcpCommandKind::accept_slot:
      return add_accept_slot(program, held, command);
    case TcpCommandKind::connect:
      return connect(program, held, command, std::bit_cast<wire::TcpConnect>(command), now);
    case TcpCommandKind::offer:
    case TcpCommandKind::allow:
    case TcpCommandKind::finish:
    case TcpCommandKind::release:
    case TcpCommandKind::abort:
    case TcpCommandKind::options:
    case TcpCommandKind::holders:
    case TcpCommandKind::shut:
    case TcpCommandKind::replace:
      return for_existing(program, held, command, now);
    case TcpCommandKind::sleep:
    case TcpCommandKind::payload:
      return {};
  }
  return fail(Error::protocol, "a command has the unknown kind {}", static_cast<int>(command.kind));
}

// A command for a handle that an earlier one has begun.
Status ProgramCommands::for_existing(Program& program, Held& held, const TcpCommand& command, TimeNs now) {
  const bool ends = command.kind == TcpCommandKind::release || command.kind == TcpCommandKind::abort;
  if (held.is == Held::Is::free || held.is == Held::Is::stopping)
    return {};  // the connection is gone; the program may not have seen that event yet
  if (held.is == Held::Is::flow && command.kind == TcpCommandKind::shut) return shut(program, command.handle), Status();
  if (held.is == Held::Is::flow && command.kind == TcpCommandKind::replace)
    return rings_.replace(program, held, command);
  if (held.is == Held::Is::flow) return for_flow(program, held, command, now);
  if (held.is == Held::Is::claiming) return for_claiming(program, held, command);
  if (!ends)
    return fail(Error::protocol, "command {} for handle {}, which is not a flow", static_cast<int>(command.kind),
                command.handle);
  if (held.is == Held::Is::listener && core_.number != 0)
    return fail(Error::protocol, "a command for listener {} was given to core {} instead of 0", command.handle,
                core_.number);
  if (held.is == Held::Is::bound) {
    ports_.leave(program, command.handle);
    program.set(held, Held::Is::free);
    program.tell(command.handle, event::gone);
  } else if (held.is == Held::Is::listener)
    agreement_.stop(program, command.handle);
  else
    program.give_back(command.handle);
  return {};
}

Status ProgramCommands::listen(Program& program, Held& held, const TcpCommand& command) {
  if (command.receive_bytes < wire::tcp_ring_bytes_min || command.receive_bytes > wire::tcp_ring_bytes_max)
    return fail(Error::protocol, "handle {}: a listener whose flows have rings of {} bytes", command.handle,
                command.receive_bytes);
  held.port = command.port;
  held.reuse = command.flags & reuse_flags;
  held.families = command.flags & wire::tcp_families;
  const auto refuse = [&](TcpError error) -> Status {
    program.tell(command.handle, event::closed | event::gone, error);
    return {};
  };
  if (command.port < privileged_ports && !program.who.privileged) return refuse(TcpError::denied);
  if (command.port == 0 || !ports_.may_have(program, held, command.listener)) return refuse(TcpError::address_in_use);
  held.ring(TcpWay::in).bytes = command.receive_bytes;
  const FlowOptions options = options_of(command, program.congestions);
  if (!ports_.listen(program, command.handle, options)) return refuse(TcpError::address_in_use);
  program.set(held, Held::Is::listener);
  agreement_.listen(program, command.handle, options);
  return {};
}

void ProgramCommands::bind(Program& program, Held& held, const TcpCommand& command) {
  held.port = command.port != 0 ? command.port : ports_.free_port();
  held.reuse = command.flags & reuse_flags;
  held.families = command.flags & wire::tcp_families;
  const auto refuse = [&](TcpError error) { program.tell(command.handle, event::closed | event::gone, error); };
  if (held.port == 0) return refuse(TcpError::address_in_use);
  if (held.port < privileged_ports && !program.who.privileged) return refuse(TcpError::denied);
  if (!ports_.may_have(program, held, wire::tcp_no_handle)) return refuse(TcpError::address_in_use);
  program.set(held, Held::Is::bound);
  ports_.bind(program, command.handle);
  program.tell(command.handle, event::listening);
}

Status ProgramCommands::add_accept_slot(Program& program, Held& held, const TcpCommand& command) {
  if (command.listener >= program.area.layout().flows)
    return fail(Error::protocol, "an accept slot for listener {}; there are {} handles", command.listener,
                program.area.layout().flows);
  OFP_TRY(RingMoves::begin(program, held, command));
  held.listener = command.listener;
  // The listener may have been refused, and the program may not have seen that event yet.
  Held* const listener = program.held.find(command.listener);
  if (listener == nullptr || listener->is != Held::Is::listener) {
    program.tell(command.handle, event::closed | event::gone, TcpError::refused);
    return {};
  }
  if (held.ring(TcpWay::in).bytes < listener->ring(TcpWay::in).bytes)
    return fail(Error::protocol, "an accept slot of {} bytes for a listener that allows {}",
                held.ring(TcpWay::in).bytes, listener->ring(TcpWay::in).bytes);
  program.set(held, Held::Is::accept_slot);
  held.costs = RingCharges::cost_of(program, held) > 0;
  listener->accept_slots.emplace(held.costs, command.handle);
  return {};
}

Status ProgramCommands::connect(Program& program, Held& held, const TcpCommand& command, const wire::TcpConnect& to,
                                TimeNs now) {
  OFP_TRY(RingMoves::begin(program, held, command));
  const Endpoint remote{to.remote_address, to.remote_port};
  const IpAddress& own = core_.stack->options().own(remote.address.family()).address;
  const auto refuse = [&](TcpError error) -> Status {
    program.tell(command.handle, event::closed | event::gone, error);
    return {};
  };
  if (own.is_unspecified()) return refuse(TcpError::unreachable);
  if (command.port != 0 &&
      wire::core_of_flow(own, command.port, remote.address, remote.port, core_.cores) != core_.number)
    return fail(Error::protocol, "a connection from port {} to {} was given to core {} of {}, which is not its core",
                command.port, text_of(remote), core_.number, core_.cores);
  held.key = {{own, command.port}, remote};
  held.options = options_of(command, program.congestions);
  if (!charges_.charge(program, held)) {
    ++core_.counters.without_memory;
    return refuse(TcpError::no_room);
  }
  if (command.port != 0 && command.port < privileged_ports && !program.who.privileged) return refuse(TcpError::denied);
  agreement_.connect(program, command.handle, now);
  return {};
}

// Commands for a connection before core 0 has decided about its port.
Status ProgramCommands::for_claiming(Program& program, Held& held, const TcpCommand& command) {
  OFP_TRY(check_position(held, command));
  switch (command.kind) {
    case TcpCommandKind::offer:
      held.offered = std::max(held.offered, command.position);
      break;
    case TcpCommandKind::finish:
      held.finishes = true;
      break;
    case TcpCommandKind::holders:
      held.holders = command.position;
      break;
    case TcpCommandKind::options:
      held.options = options_of(command, program.congestions);
      break;
    case TcpCommandKind::release:
    case TcpCommandKind::abort:
      program.set(held, Held::Is::stopping);
      break;
    default:
      break;  // no more is allowed than the initial window
  }
  return {};
}

Status ProgramCommands::check_position(const Held& held, const TcpCommand& command) {
  if (command.kind == TcpCommandKind::offer && !held.may_offer(command.position, held.ring(TcpWay::out).bytes))
    return fail(Error::protocol, "handle {}: offers bytes up to {}, but from {} on its ring has {} bytes",
                command.handle, command.position, held.acknowledged, held.ring(TcpWay::out).bytes);
  if (command.kind == TcpCommandKind::allow && !held.may_allow(command.position, held.ring(TcpWay::in).bytes))
    return fail(Error::protocol, "handle {}: allows bytes up to {}, but from {} on its ring has {} bytes",
                command.handle, command.position, held.received, held.ring(TcpWay::in).bytes);
  return {};
}

Status ProgramCommands::for_flow(Program& program, Held& held, const TcpCommand& command, TimeNs now) {
  OFP_TRY(check_position(held, command));
  switch (command.kind) {
    case TcpCommandKind::offer:
      held.offered = std::max(held.offered, command.position);
      core_.stack->offer(held.id, command.position, now);
      return {};
    case TcpCommandKind::allow:
      if (held.shut != 0) held.shut = wire::tcp_shut::refused;
      core_.stack->allow(held.id, command.position, now);
      rings_.note_allowed(program, command.handle, command.position, now);
      return {};
    case TcpCommandKind::finish:
      core_.stack->finish(held.id);
      return {};
    case TcpCommandKind::release:
      // Bytes may have arrived that the program did not know of.
      if (program.has_read(command.handle, core_.stack->flow(held.id)))
        core_.stack->release(held.id, now);
      else
        core_.stack->abort(held.id, now);
      return {};
    case TcpCommandKind::abort:
      core_.stack->abort(held.id, now);
      return {};
    case TcpCommandKind::holders:
      held.holders = command.position;
      return {};
    default:
      core_.stack->set_options(held.id, options_of(command, program.congestions), now);
      return {};
  }
}

void ProgramCommands::shut(Program& program, std::uint32_t handle) {
  Held& held = program.held[handle];
  held.shut = core_.stack->shut(held.id) ? wire::tcp_shut::done : wire::tcp_shut::refused;
  program.tell(handle, event::received);
}

}  // namespace offpath::tcp
