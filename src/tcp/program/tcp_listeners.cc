// Programs' listeners, which every core knows: see core_message.h.
#include "tcp/program/tcp_service.h"

#include <algorithm>
#include <utility>

namespace offpath::tcp {

namespace {
using wire::TcpError;
namespace event = wire::tcp_event;
constexpr IpFamily families[] = {IpFamily::v4, IpFamily::v6};

IpFamily family_of(const CoreMessage& claim) noexcept {
  return claim.families == wire::tcp_for_ipv6 ? IpFamily::v6 : IpFamily::v4;
}
}  // namespace

void TcpService::listens(Program& program, std::uint32_t handle, const FlowOptions& options) {
  const Held& held = program.held[handle];
  if (cores_ == 1) return tell(program, handle, event::listening);
  ask_others(program, handle,
             {.kind = CoreMessage::Kind::listen,
              .program = program.number,
              .handle = handle,
              .port = held.port,
              .families = held.families,
              .receive_bytes = held.ring(wire::TcpWay::in).bytes,
              .options = options});
}

void TcpService::stop(Program& program, std::uint32_t handle) {
  stop_here(program, handle);
  if (cores_ == 1) return tell(program, handle, event::gone);
  program.held[handle].is = Held::Is::stopping;
  ask_others(program, handle, {.kind = CoreMessage::Kind::stop, .program = program.number, .handle = handle});
}

void TcpService::stop_here(Program& program, std::uint32_t handle) {
  leave_port(program, handle);
  while (!program.held[handle].accept_slots.empty())
    give_back(program, program.held[handle].accept_slots.begin()->second);
  program.held[handle].is = Held::Is::free;
}

void TcpService::ask_others(Program& program, std::uint32_t handle, CoreMessage message) {
  program.held[handle].awaited += cores_ - 1;
  messages_.push_back(std::move(message));
}

void TcpService::on_message(const CoreMessage& message, TimeNs now) {
  Program* program = find(message.program);
  if (program == nullptr) return;  // the program has ended on this core; core 0 knows or will learn it
  switch (message.kind) {
    case CoreMessage::Kind::done:
      return on_done(*program, message.handle);
    case CoreMessage::Kind::claim:
      return on_claim(message, *program);
    case CoreMessage::Kind::unclaim:
      return unclaim_here(*program, family_of(message), message.port);
    case CoreMessage::Kind::granted:
    case CoreMessage::Kind::denied:
      return on_answer(message, *program, now);
    case CoreMessage::Kind::listen:
    case CoreMessage::Kind::stop:
      break;
  }
  if (message.handle >= program->held.size()) program->held.resize(message.handle + 1);
  if (message.kind == CoreMessage::Kind::listen) {
    Held& held = program->held[message.handle];
    if (held.is != Held::Is::free || held.listed) {
      end(*program, {Error::protocol, fmt::format("handle {} listens, and is in use on another core", message.handle)});
      return finish_ended(now);
    }
    held.is = Held::Is::listener;
    held.port = message.port;
    held.families = message.families;
    held.ring(wire::TcpWay::in).bytes = message.receive_bytes;
    // The port was free at core 0, and this core has processed every earlier message.
    OFP_ASSERT(listen_here(*program, message.handle, message.options));
  } else if (program->held[message.handle].is == Held::Is::listener) {
    stop_here(*program, message.handle);
  }
  messages_.push_back({.kind = CoreMessage::Kind::done, .program = message.program, .handle = message.handle});
}

void TcpService::on_done(Program& program, std::uint32_t handle) {
  OFP_ASSERT(handle < program.held.size() &&
             program.held[handle].awaited > 0);  // each core that was asked answers once
  Held& held = program.held[handle];
  if (--held.awaited > 0) return;
  if (held.is == Held::Is::listener) return tell(program, handle, event::listening);
  OFP_ASSERT(held.is == Held::Is::stopping);
  held.is = Held::Is::free;
  tell(program, handle, event::gone);
}

// ---- ports that several handles want

// As in the kernel: a port is shared with SO_REUSEPORT, by one owner's programs, and with SO_REUSEADDR as long as
// nobody listens on it. Each family has its own ports.
bool TcpService::may_have(const Program& program, const Held& wanted, std::uint32_t except) const {
  constexpr std::size_t sharers_max = 256;
  const auto admits = [&](const Sharer& other) {
    if (other.program == &program && other.handle == except) return true;
    if ((other.held().families & wanted.families) == 0) return true;
    const std::uint16_t both = other.held().reuse & wanted.reuse;
    if ((both & wire::tcp_reuse_port) != 0 && other.program->who.owner() == program.who.owner()) return true;
    return (both & wire::tcp_reuse_address) != 0 && other.held().is == Held::Is::bound;
  };
  const auto found = ports_.find(wanted.port);
  if (found != ports_.end() && (found->second.size() >= sharers_max || !std::ranges::all_of(found->second, admits)))
    return false;
  return !is_claimed_by_others(program, wanted);
}

std::uint16_t TcpService::free_port() {
  constexpr std::uint16_t first = 49'152, ports = 16'384;  // RFC 6335, 6
  for (std::uint16_t i = 0; i < ports; ++i) {
    last_port_ = static_cast<std::uint16_t>((last_port_ + 1) % ports);
    const auto port = static_cast<std::uint16_t>(first + last_port_);
    if (!ports_.contains(port) && std::ranges::none_of(programs_, [&](const auto& each) {
          const auto claims = [&](IpFamily family) { return each.second.claims.contains({family, port}); };
          return std::ranges::any_of(families, claims);
        }))
      return port;
  }
  return 0;
}

const TcpService::Sharer* TcpService::listener_at(IpFamily family, std::uint16_t port) const noexcept {
  const auto found = ports_.find(port);
  if (found == ports_.end()) return nullptr;
  const auto listens = [family](const Sharer& each) {
    return each.held().is == Held::Is::listener && each.held().is_for(family);
  };
  const auto first = std::ranges::find_if(found->second, listens);
  return first == found->second.end() ? nullptr : &*first;
}

// False: the port's listeners have receive rings of another size.
bool TcpService::listen_here(Program& program, std::uint32_t handle, const FlowOptions& options) {
  const Held& held = program.held[handle];
  const std::uint32_t bytes = held.ring(wire::TcpWay::in).bytes;
  const auto differs = [&](IpFamily family) {
    const Sharer* const other = held.is_for(family) ? listener_at(family, held.port) : nullptr;
    return other != nullptr && other->held().ring(wire::TcpWay::in).bytes != bytes;
  };
  if (std::ranges::any_of(families, differs)) return false;
  for (const IpFamily family : families)
    if (held.is_for(family) && listener_at(family, held.port) == nullptr &&
        !stack_->listen(family, held.port, tag_of(program, handle), bytes, options))
      return false;
  ports_[held.port].push_back({&program, handle});
  return true;
}

void TcpService::leave_port(Program& program, std::uint32_t handle) {
  const Held& held = program.held[handle];
  const auto found = ports_.find(held.port);
  if (found == ports_.end() || std::erase(found->second, Sharer{&program, handle}) == 0) return;
  for (const IpFamily family : families) {
    if (held.is != Held::Is::listener || !held.is_for(family)) continue;
    const Sharer* const other = listener_at(family, held.port);
    if (other == nullptr)
      stack_->stop_listening(family, held.port);
    else
      stack_->retag_listener(family, held.port, tag_of(*other->program, other->handle));
  }
  if (found->second.empty()) ports_.erase(found);
}

// Listeners that share a port take connections in turn.
std::optional<TcpService::Sharer> TcpService::slot_of(IpFamily family, std::uint16_t port) {
  const auto found = ports_.find(port);
  if (found == ports_.end()) return std::nullopt;
  std::vector<Sharer>& sharers = found->second;
  bool any = false;
  for (std::size_t i = 0; i < sharers.size(); ++i) {
    std::rotate(sharers.begin(), sharers.begin() + 1, sharers.end());
    Program& program = *sharers.back().program;
    Held& listener = sharers.back().held();
    if (!listener.is_for(family)) continue;
    any |= !listener.accept_slots.empty();
    // Where the first one cannot be charged, the others would cost as much.
    const auto slot = listener.accept_slots.begin();
    if (slot == listener.accept_slots.end() || !charge(program, program.held[slot->second])) continue;
    const std::uint32_t handle = slot->second;
    listener.accept_slots.erase(slot);
    return Sharer{&program, handle};
  }
  ++(any ? counters_.without_memory : counters_.without_accept_slot);
  return std::nullopt;
}

// ---- ports that programs name for connections

// Another program's port, on core 0: if this one connected from it, the peer's SYN to that port would become a
// simultaneous open of the two.
bool TcpService::claim_here(Program& program, IpFamily family, std::uint16_t port) {
  const auto found = ports_.find(port);
  if (found != ports_.end() && std::ranges::any_of(found->second, [&](const Sharer& each) {
        return each.program != &program && each.held().is_for(family);
      }))
    return false;
  ++program.claims[{family, port}];
  return true;
}

void TcpService::unclaim_here(Program& program, IpFamily family, std::uint16_t port) {
  const auto found = program.claims.find({family, port});
  if (found != program.claims.end() && --found->second == 0) program.claims.erase(found);
}

void TcpService::unclaim(Program& program, Held& held) {
  if (!std::exchange(held.claims, false)) return;
  if (core_ == 0) return unclaim_here(program, held.key.family(), held.key.local.port);
  messages_.push_back({.kind = CoreMessage::Kind::unclaim,
                       .program = program.number,
                       .handle = 0,
                       .port = held.key.local.port,
                       .families = wire::tcp_for(held.key.family())});
}

bool TcpService::is_claimed_by_others(const Program& program, const Held& wanted) const {
  return std::ranges::any_of(programs_, [&](const auto& each) {
    const auto claims = [&](IpFamily family) {
      return wanted.is_for(family) && each.second.claims.contains({family, wanted.port});
    };
    return each.second.who.owner() != program.who.owner() && std::ranges::any_of(families, claims);
  });
}

void TcpService::on_claim(const CoreMessage& message, Program& program) {
  CoreMessage answer = message;
  answer.kind =
      claim_here(program, family_of(message), message.port) ? CoreMessage::Kind::granted : CoreMessage::Kind::denied;
  messages_.push_back(std::move(answer));
}

void TcpService::on_answer(const CoreMessage& message, Program& program, TimeNs now) {
  if (message.handle % cores_ != core_) return;
  Held& held = program.held[message.handle];
  const bool given_up = held.is == Held::Is::stopping;
  OFP_ASSERT(given_up || held.is == Held::Is::claiming);
  held.is = Held::Is::free;
  held.claims = message.kind == CoreMessage::Kind::granted;
  if (given_up) unclaim(program, held);
  if (given_up) return tell(program, message.handle, event::gone);
  if (!held.claims) return tell(program, message.handle, event::closed | event::gone, TcpError::address_in_use);
  connect_now(program, message.handle, now);
  if (held.is != Held::Is::flow) return;
  if (held.offered > 0) stack_->offer(held.id, held.offered, now);
  if (held.finishes) stack_->finish(held.id);
}

}  // namespace offpath::tcp
