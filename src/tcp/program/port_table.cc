#include "tcp/program/port_table.h"

#include <algorithm>

namespace offpath::tcp {

namespace {
constexpr IpFamily families[] = {IpFamily::v4, IpFamily::v6};
}  // namespace

// As in the kernel: a port is shared with SO_REUSEPORT, by one owner's programs, and with SO_REUSEADDR as long as
// nobody listens on it. Each family has its own ports.
bool PortTable::may_have(const Program& program, const Held& wanted, std::uint32_t except) const {
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

std::uint16_t PortTable::free_port() {
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

const PortTable::Sharer* PortTable::listener_at(IpFamily family, std::uint16_t port) const noexcept {
  const auto found = ports_.find(port);
  if (found == ports_.end()) return nullptr;
  const auto listens = [family](const Sharer& each) {
    return each.held().is == Held::Is::listener && each.held().is_for(family);
  };
  const auto first = std::ranges::find_if(found->second, listens);
  return first == found->second.end() ? nullptr : &*first;
}

bool PortTable::listen(Program& program, std::uint32_t handle, const FlowOptions& options) {
  Held& held = program.held[handle];
  const std::uint32_t bytes = held.ring(wire::TcpWay::in).bytes;
  const auto differs = [&](IpFamily family) {
    const Sharer* const other = held.is_for(family) ? listener_at(family, held.port) : nullptr;
    return other != nullptr && other->held().ring(wire::TcpWay::in).bytes != bytes;
  };
  if (std::ranges::any_of(families, differs)) return false;
  for (const IpFamily family : families)
    if (held.is_for(family) && listener_at(family, held.port) == nullptr &&
        !core_.stack->listen(family, held.port, ProgramTable::tag_of(program, handle), bytes, options))
      return false;
  held.options = options;
  ports_[held.port].push_back({&program, handle});
  return true;
}

void PortTable::leave(Program& program, std::uint32_t handle) {
  const Held& held = program.held[handle];
  const auto found = ports_.find(held.port);
  if (found == ports_.end() || std::erase(found->second, Sharer{&program, handle}) == 0) return;
  for (const IpFamily family : families) {
    if (held.is != Held::Is::listener || !held.is_for(family)) continue;
    const Sharer* const other = listener_at(family, held.port);
    if (other == nullptr)
      core_.stack->stop_listening(family, held.port);
    else
      core_.stack->retag_listener(family, held.port, ProgramTable::tag_of(*other->program, other->handle),
                                  other->held().options);
  }
  if (found->second.empty()) ports_.erase(found);
}

void PortTable::leave_all(Program& program) {
  std::vector<std::uint32_t> left;
  for (const auto& [port, sharers] : ports_)
    for (const Sharer& each : sharers)
      if (each.program == &program) left.push_back(each.handle);
  for (const std::uint32_t handle : left) leave(program, handle);
}

void PortTable::bind(Program& program, std::uint32_t handle) {
  ports_[program.held[handle].port].push_back({&program, handle});
}

// Listeners that share a port take connections in turn.
std::optional<PortTable::Sharer> PortTable::take_slot(IpFamily family, std::uint16_t port) {
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
    if (slot == listener.accept_slots.end() || !charges_.charge(program, program.held[slot->second])) continue;
    const std::uint32_t handle = slot->second;
    listener.accept_slots.erase(slot);
    return Sharer{&program, handle};
  }
  ++(any ? core_.counters.without_memory : core_.counters.without_accept_slot);
  return std::nullopt;
}

bool PortTable::claim(Program& program, IpFamily family, std::uint16_t port) {
  const auto found = ports_.find(port);
  if (found != ports_.end() && std::ranges::any_of(found->second, [&](const Sharer& each) {
        return each.program != &program && each.held().is_for(family);
      }))
    return false;
  ++program.claims[{family, port}];
  return true;
}

void PortTable::unclaim(Program& program, IpFamily family, std::uint16_t port) {
  const auto found = program.claims.find({family, port});
  if (found != program.claims.end() && --found->second == 0) program.claims.erase(found);
}

bool PortTable::is_claimed_by_others(const Program& program, const Held& wanted) const {
  return std::ranges::any_of(programs_, [&](const auto& each) {
    const auto claims = [&](IpFamily family) {
      return wanted.is_for(family) && each.second.claims.contains({family, wanted.port});
    };
    return each.second.who.owner() != program.who.owner() && std::ranges::any_of(families, claims);
  });
}

}  // namespace offpath::tcp
