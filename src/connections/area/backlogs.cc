#include "connections/area/backlogs.h"

#include <algorithm>

namespace offpath::channel {

using wire::TcpCommand;
using wire::TcpCommandKind;
namespace event = wire::tcp_event;

void Backlogs::begin(Handle handle, std::uint32_t backlog) noexcept {
  SocketCell& listener = records_.cell(handle);
  listener.is = SocketCell::Is::listener;
  listener.listens = true;
  listener.serial = ++records_.shared().listeners;
  listener.backlog = backlog;
  for (std::uint32_t core = 0; core < commands_.cores(); ++core)
    records_.accept_slots(handle, core) = {0, no_handle, no_handle};
}

// Connections are spread unevenly, so each core gets one and a half times its share.
std::uint32_t Backlogs::slots_of_core(const SocketCell& listener) const noexcept {
  const std::uint32_t cores = commands_.cores();
  return std::min(listener.backlog, (3 * listener.backlog + 2 * cores - 1) / (2 * cores));
}

void Backlogs::fill(Handle handle) noexcept {
  const SocketCell& listener = records_.cell(handle);
  const std::uint32_t wanted = slots_of_core(listener);
  const std::uint32_t listening = (listener.told & event::listening) != 0 ? commands_.cores() : 1;
  for (std::uint32_t core = 0; core < listening && !listener.gone && !listener.stopped; ++core) {
    fill(handle, core);
    set_lacks(handle, core, records_.accept_slots(handle, core).count < wanted);
  }
}

void Backlogs::fill(Handle handle, std::uint32_t core) noexcept {
  const SocketCell& listener = records_.cell(handle);
  const std::uint32_t wanted = slots_of_core(listener);
  while (records_.accept_slots(handle, core).count < wanted && commands_.room(core)) {
    const auto slot = handles_.take(core);
    if (!slot) break;
    SocketCell& cell = records_.cell(*slot);
    cell.is = SocketCell::Is::accept_slot;
    cell.listener = handle;
    cell.serial = listener.serial;
    TcpCommand command{};
    command.kind = TcpCommandKind::accept_slot;
    command.listener = handle;
    rings_.name(*slot, command);
    records_.post(commands_, core, command);
    ++records_.accept_slots(handle, core).count;
  }
}

void Backlogs::fill_some() noexcept {
  HandlePass pass(lacking_, records_.shared().next_lacking);
  while (may_fill()) {
    const auto handle = pass.next();
    if (!handle) break;
    if (lacks_any(*handle))
      fill(*handle);
    else
      lacking_.remove(*handle);
  }
}

bool Backlogs::may_fill() const noexcept {
  for (std::uint32_t core = 0; core < commands_.cores(); ++core)
    if (records_.shared().lacking[core] > 0 && handles_.has_any(core) && commands_.room(core)) return true;
  return false;
}

bool Backlogs::all_full() noexcept {
  for (auto listener = lacking_.next(0); listener; listener = lacking_.next(*listener + 1)) {
    if (lacks_any(*listener)) return false;
    lacking_.remove(*listener);
  }
  return true;
}

void Backlogs::set_lacks(Handle handle, std::uint32_t core, bool lacks) noexcept {
  SocketCell& listener = records_.cell(handle);
  if (lacks) {
    lacking_.add(handle);
    records_.shared().set_unsettled(true);
  }
  const auto bit = static_cast<std::uint16_t>(1u << core);
  if (((listener.lacks & bit) != 0) == lacks) return;
  listener.lacks ^= bit;
  std::uint32_t& lacking = records_.shared().lacking[core];
  lacks ? ++lacking : --lacking;
}

void Backlogs::arrived(Handle flow) noexcept {
  AcceptSlots& there = records_.accept_slots(records_.cell(flow).listener, commands_.core_of(flow));
  (there.first_waiting == no_handle ? there.first_waiting : records_.cell(there.last_waiting).next) = flow;
  there.last_waiting = flow;
}

void Backlogs::returned(Handle slot) noexcept {
  const Handle listener = records_.cell(slot).listener;
  if (!is_expected(slot) || records_.cell(listener).gone) return;
  const std::uint32_t core = commands_.core_of(slot);
  --records_.accept_slots(listener, core).count;
  set_lacks(listener, core, true);
}

// Cores report independently, and a program may identify a peer's connections by their order.
Backlogs::Handle Backlogs::oldest(Handle listener) const noexcept {
  Handle oldest = no_handle;
  for (std::uint32_t core = 0; core < commands_.cores(); ++core) {
    const Handle first = records_.accept_slots(listener, core).first_waiting;
    if (first != no_handle && (oldest == no_handle || records_.cell(first).begun < records_.cell(oldest).begun))
      oldest = first;
  }
  return oldest;
}

void Backlogs::accept(Handle listener, Handle oldest) noexcept {
  AcceptSlots& there = records_.accept_slots(listener, commands_.core_of(oldest));
  there.first_waiting = std::exchange(records_.cell(oldest).next, no_handle);
  --there.count;
}

void Backlogs::recount(Handle handle) noexcept {
  const std::uint16_t lacks = records_.cell(handle).lacks;
  if (lacks == 0) return;
  for (std::uint32_t core = 0; core < commands_.cores(); ++core) records_.shared().lacking[core] += lacks >> core & 1u;
  lacking_.add(handle);
  records_.shared().set_unsettled(true);
}

}  // namespace offpath::channel
