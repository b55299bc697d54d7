// Programs' commands. A returned failure means that the command is invalid: it ends the program. A valid command that
// cannot be carried out is answered with an event.
#include "tcp/program/tcp_service.h"

#include <algorithm>
#include <bit>

#include "wire/areas/flow_steering.h"

namespace offpath::tcp {

namespace {

using wire::TcpCommand;
using wire::TcpCommandKind;
using wire::TcpError;
using wire::TcpWay;
namespace event = wire::tcp_event;

constexpr std::uint16_t privileged_ports = 1024;
constexpr std::uint16_t reuse_flags = wire::tcp_reuse_port | wire::tcp_reuse_address;

FlowOptions options_of(const TcpCommand& command) noexcept {
  FlowOptions options;
  options.nagle = (command.flags & wire::tcp_no_delay) == 0;
  options.user_timeout_ns = command.user_timeout_ms * millisecond_ns;
  if ((command.flags & wire::tcp_keepalive) != 0 && command.keepalive_idle_s != 0) {
    options.keepalive_idle_ns = command.keepalive_idle_s * second_ns;
    options.keepalive_interval_ns = std::max<TimeNs>(command.keepalive_interval_s, 1) * second_ns;
    options.keepalive_probes = std::max<std::uint8_t>(command.keepalive_probes, 1);
  }
  return options;
}

TcpError error_of(Error error) noexcept {
  switch (error) {
    case Error::exists:
      return TcpError::address_in_use;
    case Error::no_space:
      return TcpError::no_room;
    default:
      return TcpError::unreachable;
  }
}

}  // namespace

bool TcpService::take_commands(Program& program, TimeNs now) {
  program.commands_full.note(program.area.commands_full(), now);
  TcpCommand command;
  for (unsigned i = 0; i < commands_of_a_round; ++i) {
    auto there = program.area.take(command);
    Status taken;
    if (there && *there)
      taken = take(program, command, now);
    else if (there)
      return i > 0;
    else
      taken = tl::unexpected<Failure>(std::move(there).error());
    if (!taken) {
      end(program, std::move(taken).error());
      return true;
    }
    ++counters_.commands;
  }
  return true;
}

Status TcpService::take(Program& program, const TcpCommand& command, TimeNs now) {
  // These concern the link to the program alone (area_mirror.h).
  if (command.kind == TcpCommandKind::sleep || command.kind == TcpCommandKind::payload) return {};
  if (command.handle >= program.area.layout().flows)
    return fail(Error::protocol, "a command for handle {}; there are {} handles", command.handle,
                program.area.layout().flows);
  if (command.handle >= program.held.size()) program.held.resize(command.handle + 1);
  Held& held = program.held[command.handle];
  const bool of_port = command.kind == TcpCommandKind::listen || command.kind == TcpCommandKind::bind;
  if (of_port && (command.flags & wire::tcp_families) == 0)
    return fail(Error::protocol, "handle {}: a port for connections of no family", command.handle);
  const bool begins = of_port || command.kind == TcpCommandKind::accept_slot || command.kind == TcpCommandKind::connect;
  if (of_port ? core_ != 0 : begins && command.handle % cores_ != core_)
    return fail(Error::protocol, "command {} for handle {} was given to core {} of {}, which is not its core",
                static_cast<int>(command.kind), command.handle, core_, cores_);
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
    case TcpCommandKind::replace: {
      const bool ends = command.kind == TcpCommandKind::release || command.kind == TcpCommandKind::abort;
      if (held.is == Held::Is::free || held.is == Held::Is::stopping)
        return {};  // the connection is gone; the program may not have seen that event yet
      if (held.is == Held::Is::flow && command.kind == TcpCommandKind::shut)
        return shut(program, command.handle), Status();
      if (held.is == Held::Is::flow && command.kind == TcpCommandKind::replace) return replace(program, held, command);
      if (held.is == Held::Is::flow) return for_flow(program, held, command, now);
      if (held.is == Held::Is::claiming) return for_claiming(held, command);
      if (!ends)
        return fail(Error::protocol, "command {} for handle {}, which is not a flow", static_cast<int>(command.kind),
                    command.handle);
      if (held.is == Held::Is::listener && core_ != 0)
        return fail(Error::protocol, "a command for listener {} was given to core {} instead of 0", command.handle,
                    core_);
      if (held.is == Held::Is::bound) {
        leave_port(program, command.handle);
        held.is = Held::Is::free;
        tell(program, command.handle, event::gone);
      } else if (held.is == Held::Is::listener)
        stop(program, command.handle);
      else
        give_back(program, command.handle);
      return {};
    }
    case TcpCommandKind::sleep:
    case TcpCommandKind::payload:
      return {};
  }
  return fail(Error::protocol, "a command has the unknown kind {}", static_cast<int>(command.kind));
}

Status TcpService::take_rings(Program& program, Held& held, const TcpCommand& command) {
  const wire::TcpAreaLayout& layout = program.area.layout();
  OFP_TRY(wire::check_tcp_ring(layout, command.handle, command.send_at, command.send_bytes));
  OFP_TRY(wire::check_tcp_ring(layout, command.handle, command.receive_at, command.receive_bytes));
  held.ring(TcpWay::out) = {command.send_at, command.send_bytes, false};
  held.ring(TcpWay::in) = {command.receive_at, command.receive_bytes, false};
  held.firsts = held.rings;
  for (const TcpWay way : {TcpWay::out, TcpWay::in}) OFP_TRY(keep_for_first(program, command.handle, held.ring(way)));
  return {};
}

Status TcpService::listen(Program& program, Held& held, const TcpCommand& command) {
  if (command.receive_bytes < wire::tcp_ring_bytes_min || command.receive_bytes > wire::tcp_ring_bytes_max)
    return fail(Error::protocol, "handle {}: a listener whose flows have rings of {} bytes", command.handle,
                command.receive_bytes);
  held.port = command.port;
  held.reuse = command.flags & reuse_flags;
  held.families = command.flags & wire::tcp_families;
  const auto refuse = [&](TcpError error) -> Status {
    tell(program, command.handle, event::closed | event::gone, error);
    return {};
  };
  if (command.port < privileged_ports && !program.who.privileged) return refuse(TcpError::denied);
  if (command.port == 0 || !may_have(program, held, command.listener)) return refuse(TcpError::address_in_use);
  held.ring(TcpWay::in).bytes = command.receive_bytes;
  if (!listen_here(program, command.handle, options_of(command))) return refuse(TcpError::address_in_use);
  held.is = Held::Is::listener;
  listens(program, command.handle, options_of(command));
  return {};
}

void TcpService::bind(Program& program, Held& held, const TcpCommand& command) {
  held.port = command.port != 0 ? command.port : free_port();
  held.reuse = command.flags & reuse_flags;
  held.families = command.flags & wire::tcp_families;
  const auto refuse = [&](TcpError error) { tell(program, command.handle, event::closed | event::gone, error); };
  if (held.port == 0) return refuse(TcpError::address_in_use);
  if (held.port < privileged_ports && !program.who.privileged) return refuse(TcpError::denied);
  if (!may_have(program, held, wire::tcp_no_handle)) return refuse(TcpError::address_in_use);
  held.is = Held::Is::bound;
  ports_[held.port].push_back({&program, command.handle});
  tell(program, command.handle, event::listening);
}

Status TcpService::add_accept_slot(Program& program, Held& held, const TcpCommand& command) {
  if (command.listener >= program.area.layout().flows)
    return fail(Error::protocol, "an accept slot for listener {}; there are {} handles", command.listener,
                program.area.layout().flows);
  OFP_TRY(take_rings(program, held, command));
  held.listener = command.listener;
  // The listener may have been refused, and the program may not have seen that event yet.
  if (command.listener >= program.held.size() || program.held[command.listener].is != Held::Is::listener) {
    tell(program, command.handle, event::closed | event::gone, TcpError::refused);
    return {};
  }
  Held& listener = program.held[command.listener];
  if (held.ring(TcpWay::in).bytes < listener.ring(TcpWay::in).bytes)
    return fail(Error::protocol, "an accept slot of {} bytes for a listener that allows {}",
                held.ring(TcpWay::in).bytes, listener.ring(TcpWay::in).bytes);
  held.is = Held::Is::accept_slot;
  held.costs = cost_of(program, held) > 0;
  listener.accept_slots.emplace(held.costs, command.handle);
  return {};
}

Status TcpService::connect(Program& program, Held& held, const TcpCommand& command, const wire::TcpConnect& to,
                           TimeNs now) {
  OFP_TRY(take_rings(program, held, command));
  const Endpoint remote{to.remote_address, to.remote_port};
  const IpAddress& own = stack_->options().own(remote.address.family()).address;
  const auto refuse = [&](TcpError error) -> Status {
    tell(program, command.handle, event::closed | event::gone, error);
    return {};
  };
  if (own.is_unspecified()) return refuse(TcpError::unreachable);
  if (command.port != 0 && wire::core_of_flow(own, command.port, remote.address, remote.port, cores_) != core_)
    return fail(Error::protocol, "a connection from port {} to {} was given to core {} of {}, which is not its core",
                command.port, text_of(remote), core_, cores_);
  held.key = {{own, command.port}, remote};
  held.options = options_of(command);
  if (!charge(program, held)) {
    ++counters_.without_memory;
    return refuse(TcpError::no_room);
  }
  if (command.port != 0) {
    if (command.port < privileged_ports && !program.who.privileged) return refuse(TcpError::denied);
    if (core_ != 0) {
      held.is = Held::Is::claiming;
      messages_.push_back({.kind = CoreMessage::Kind::claim,
                           .program = program.number,
                           .handle = command.handle,
                           .port = command.port,
                           .families = wire::tcp_for(held.key.family())});
      return {};
    }
    if (!claim_here(program, held.key.family(), command.port)) return refuse(TcpError::address_in_use);
    held.claims = true;
  }
  connect_now(program, command.handle, now);
  return {};
}

void TcpService::connect_now(Program& program, std::uint32_t handle, TimeNs now) {
  Held& held = program.held[handle];
  const auto connected = stack_->connect(held.key.local.port, held.key.remote, tag_of(program, handle),
                                         held.ring(TcpWay::in).bytes, now, held.options);
  if (!connected) {
    unclaim(program, held);
    held.is = Held::Is::free;
    return tell(program, handle, event::closed | event::gone, error_of(connected.error().code));
  }
  held.is = Held::Is::flow;
  held.id = *connected;
  held.key = stack_->flow(*connected)->key;
}

// Commands for a connection before core 0 has decided about its port.
Status TcpService::for_claiming(Held& held, const TcpCommand& command) const {
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
      held.options = options_of(command);
      break;
    case TcpCommandKind::release:
    case TcpCommandKind::abort:
      held.is = Held::Is::stopping;
      break;
    default:
      break;  // no more is allowed than the initial window
  }
  return {};
}

Status TcpService::check_position(const Held& held, const TcpCommand& command) {
  if (command.kind == TcpCommandKind::offer && !held.may_offer(command.position, held.ring(TcpWay::out).bytes))
    return fail(Error::protocol, "handle {}: offers bytes up to {}, but from {} on its ring has {} bytes",
                command.handle, command.position, held.acknowledged, held.ring(TcpWay::out).bytes);
  if (command.kind == TcpCommandKind::allow && !held.may_allow(command.position, held.ring(TcpWay::in).bytes))
    return fail(Error::protocol, "handle {}: allows bytes up to {}, but from {} on its ring has {} bytes",
                command.handle, command.position, held.received, held.ring(TcpWay::in).bytes);
  return {};
}

Status TcpService::for_flow(Program& program, Held& held, const TcpCommand& command, TimeNs now) {
  OFP_TRY(check_position(held, command));
  switch (command.kind) {
    case TcpCommandKind::offer:
      held.offered = std::max(held.offered, command.position);
      stack_->offer(held.id, command.position, now);
      return {};
    case TcpCommandKind::allow:
      if (held.shut != 0) held.shut = wire::tcp_shut::refused;
      stack_->allow(held.id, command.position, now);
      note_allowed(program, command.handle, command.position, now);
      return {};
    case TcpCommandKind::finish:
      stack_->finish(held.id);
      return {};
    case TcpCommandKind::release:
      // Bytes may have arrived that the program did not know of.
      if (is_read(program, command.handle))
        stack_->release(held.id, now);
      else
        stack_->abort(held.id, now);
      return {};
    case TcpCommandKind::abort:
      stack_->abort(held.id, now);
      return {};
    case TcpCommandKind::holders:
      held.holders = command.position;
      return {};
    default:
      stack_->set_options(held.id, options_of(command), now);
      return {};
  }
}

void TcpService::shut(Program& program, std::uint32_t handle) {
  Held& held = program.held[handle];
  held.shut = stack_->shut(held.id) ? wire::tcp_shut::done : wire::tcp_shut::refused;
  tell(program, handle, event::received);
}

void TcpService::give_back(Program& program, std::uint32_t handle) {
  Held& slot = program.held[handle];
  program.held[slot.listener].accept_slots.erase({slot.costs, handle});
  slot.is = Held::Is::free;
  tell(program, handle, event::gone);
}

}  // namespace offpath::tcp
