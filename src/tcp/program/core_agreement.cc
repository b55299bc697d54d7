#include "tcp/program/core_agreement.h"

namespace offpath::tcp {

using wire::TcpError;
namespace event = wire::tcp_event;

namespace {

IpFamily family_of(const CoreMessage& claim) noexcept {
  return claim.families == wire::tcp_for_ipv6 ? IpFamily::v6 : IpFamily::v4;
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

// ---- listeners

void CoreAgreement::listen(Program& program, std::uint32_t handle, const FlowOptions& options) {
  const Held& held = program.held[handle];
  if (core_.cores == 1) return program.tell(handle, event::listening);
  ask_others(program, handle,
             {.kind = CoreMessage::Kind::listen,
              .program = program.number,
              .handle = handle,
              .port = held.port,
              .families = held.families,
              .receive_bytes = held.ring(wire::TcpWay::in).bytes,
              .options = options});
}

void CoreAgreement::stop(Program& program, std::uint32_t handle) {
  stop_here(program, handle);
  if (core_.cores == 1) return program.tell(handle, event::gone);
  program.set(program.held[handle], Held::Is::stopping);
  ask_others(program, handle, {.kind = CoreMessage::Kind::stop, .program = program.number, .handle = handle});
}

void CoreAgreement::stop_here(Program& program, std::uint32_t handle) {
  ports_.leave(program, handle);
  while (!program.held[handle].accept_slots.empty())
    program.give_back(program.held[handle].accept_slots.begin()->second);
  program.set(program.held[handle], Held::Is::free);
}

void CoreAgreement::ask_others(Program& program, std::uint32_t handle, CoreMessage message) {
  program.held[handle].awaited += core_.cores - 1;
  messages_.push_back(std::move(message));
}

Status CoreAgreement::on_message(const CoreMessage& message, Program& program, TimeNs now) {
  switch (message.kind) {
    case CoreMessage::Kind::done:
      on_done(program, message.handle);
      return {};
    case CoreMessage::Kind::claim:
      on_claim(message, program);
      return {};
    case CoreMessage::Kind::unclaim:
      PortTable::unclaim(program, family_of(message), message.port);
      return {};
    case CoreMessage::Kind::granted:
    case CoreMessage::Kind::denied:
      on_answer(message, program, now);
      return {};
    case CoreMessage::Kind::listen:
    case CoreMessage::Kind::stop:
      break;
  }
  return on_listener(message, program);
}

Status CoreAgreement::on_listener(const CoreMessage& message, Program& program) {
  Held& held = program.held.use(message.handle);
  if (message.kind == CoreMessage::Kind::listen) {
    if (held.is != Held::Is::free || held.listed)
      return fail(Error::protocol, "handle {} listens, and is in use on another core", message.handle);
    program.set(held, Held::Is::listener);
    held.port = message.port;
    held.families = message.families;
    held.ring(wire::TcpWay::in).bytes = message.receive_bytes;
    // The port was free at core 0, and this core has processed every earlier message.
    OFP_ASSERT(ports_.listen(program, message.handle, message.options));
  } else if (held.is == Held::Is::listener) {
    stop_here(program, message.handle);
  }
  messages_.push_back({.kind = CoreMessage::Kind::done, .program = message.program, .handle = message.handle});
  return {};
}

void CoreAgreement::on_done(Program& program, std::uint32_t handle) {
  OFP_ASSERT(program.held.find(handle) != nullptr);
  Held& held = program.held[handle];
  OFP_ASSERT(held.awaited > 0);  // each core that was asked answers once
  if (--held.awaited > 0) return;
  if (held.is == Held::Is::listener) return program.tell(handle, event::listening);
  OFP_ASSERT(held.is == Held::Is::stopping);
  program.set(held, Held::Is::free);
  program.tell(handle, event::gone);
}

// ---- connections

void CoreAgreement::connect(Program& program, std::uint32_t handle, TimeNs now) {
  Held& held = program.held[handle];
  const std::uint16_t port = held.key.local.port;
  if (port != 0 && core_.number != 0) {
    program.set(held, Held::Is::claiming);
    return messages_.push_back({.kind = CoreMessage::Kind::claim,
                                .program = program.number,
                                .handle = handle,
                                .port = port,
                                .families = wire::tcp_for(held.key.family())});
  }
  if (port != 0) {
    if (!ports_.claim(program, held.key.family(), port))
      return program.tell(handle, event::closed | event::gone, TcpError::address_in_use);
    held.claims = true;
  }
  begin(program, handle, now);
}

void CoreAgreement::begin(Program& program, std::uint32_t handle, TimeNs now) {
  Held& held = program.held[handle];
  const auto connected =
      core_.stack->connect(held.key.local.port, held.key.remote, ProgramTable::tag_of(program, handle),
                           held.ring(wire::TcpWay::in).bytes, now, held.options);
  if (!connected) {
    unclaim(program, held);
    program.set(held, Held::Is::free);
    return program.tell(handle, event::closed | event::gone, error_of(connected.error().code));
  }
  program.set(held, Held::Is::flow);
  held.id = *connected;
  held.key = core_.stack->flow(*connected)->key;
}

void CoreAgreement::unclaim(Program& program, Held& held) {
  if (!std::exchange(held.claims, false)) return;
  if (core_.number == 0) return PortTable::unclaim(program, held.key.family(), held.key.local.port);
  messages_.push_back({.kind = CoreMessage::Kind::unclaim,
                       .program = program.number,
                       .handle = 0,
                       .port = held.key.local.port,
                       .families = wire::tcp_for(held.key.family())});
}

void CoreAgreement::on_claim(const CoreMessage& message, Program& program) {
  CoreMessage answer = message;
  answer.kind =
      ports_.claim(program, family_of(message), message.port) ? CoreMessage::Kind::granted : CoreMessage::Kind::denied;
  messages_.push_back(std::move(answer));
}

void CoreAgreement::on_answer(const CoreMessage& message, Program& program, TimeNs now) {
  if (message.handle % core_.cores != core_.number) return;
  Held& held = program.held[message.handle];
  const bool given_up = held.is == Held::Is::stopping;
  OFP_ASSERT(given_up || held.is == Held::Is::claiming);
  program.set(held, Held::Is::free);
  held.claims = message.kind == CoreMessage::Kind::granted;
  if (given_up) unclaim(program, held);
  if (given_up) return program.tell(message.handle, event::gone);
  if (!held.claims) return program.tell(message.handle, event::closed | event::gone, TcpError::address_in_use);
  begin(program, message.handle, now);
  if (held.is != Held::Is::flow) return;
  if (held.offered > 0) core_.stack->offer(held.id, held.offered, now);
  if (held.finishes) core_.stack->finish(held.id);
}

}  // namespace offpath::tcp
